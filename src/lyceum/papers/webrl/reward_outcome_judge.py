"""WebRL's outcome reward: a fine-tuned model says YES or NO of a finished trajectory, and that is all that pays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from lyceum.core.settings import RewardSettings
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Grade, Grader, GradingContext, Message, Task, TaskSource
from lyceum.reward.base import BaseGrader
from lyceum.reward.scorer.models import ScorerModel, log_odds, probability
from lyceum.utils.numbers import mean


class OutcomeJudge(RewardSettings):
    """1 where the stage's ``reference`` finds success at least as likely as failure after a trajectory, else 0.

    The trajectory is shown as a conversation: the task, what was written and answered, and ``ask``; the model's own
    words are compared, none is sampled. Beside a part ``task`` of weight 0 its accuracy is measured
    (``reward/outcome-judge/right``, and wrong successes and failures); no verdict reaches the outcome.

    Source:
        WebRL, arXiv:2411.02337 (the outcome-supervised reward model); THUDM/WebRL, ``scripts/process_data.py:
        add_overall_reward``.
    """

    requires: ClassVar = ("reference",)

    kind: Literal["outcome-judge"] = "outcome-judge"
    ask: str = Field(default="Was the task done? Answer YES or NO.", min_length=1, max_length=1000)
    """What the user says after a trajectory."""
    words: tuple[str, str] = ("YES", "NO")
    """What says that it succeeded, and that it did not."""
    passes: float = Field(default=0.5, gt=0, lt=1)
    """Lowest probability of the first word, of both, that is a success."""
    micro_batch_tokens: int = Field(default=8192, ge=1)
    """Unique tokens per forward pass."""

    @model_validator(mode="after")
    def _words_differ(self) -> OutcomeJudge:
        if self.words[0] == self.words[1]:
            raise ValueError(f"words: got {self.words[0]!r} twice; allowed: two that differ")
        return self

    def build(self, source: TaskSource) -> Grader:
        return OutcomeJudgeGrader(self)


class OutcomeJudgeGrader(BaseGrader):
    """Keeps no state beyond a step's metrics."""

    def __init__(self, settings: OutcomeJudge) -> None:
        self.settings = settings
        self.model = ScorerModel(path="reference")
        self.measured: dict[str, float] = {}

    async def __call__(self, task: Task, leaves: Sequence[Node], context: GradingContext) -> list[Grade]:
        of = self.settings
        asked = [shown(task, leaf, of.ask) for leaf in leaves]
        odds = await log_odds(self.model, asked, of.words, context, of.micro_batch_tokens)
        return [self.grade(leaf, probability(each)) for leaf, each in zip(leaves, odds, strict=True)]

    def grade(self, leaf: Node, likely: float) -> Grade:
        """A truncated trajectory never succeeded."""
        outcome = float(likely >= self.settings.passes and leaf.finish != "length")
        return Grade(outcome, parts={"success": outcome, "probability": likely})

    def observe(self, trees: Sequence[Tree]) -> None:
        said = [
            (bool(grade.parts.get("outcome-judge/success")), grade.verdict)
            for tree in trees
            for _, grade, _ in tree.graded_with_outcome()
            if grade.verdict is not None and grade.parts.get("outcome-judge/success") is not None
        ]
        if not said:
            self.measured = {}
            return
        wrong_yes, wrong_no = ([yes is side for yes, verdict in said if verdict is not side] for side in (True, False))
        self.measured = {
            "right": mean([float(yes is verdict) for yes, verdict in said]),
            **({"failures_paid": mean([float(one) for one in wrong_yes])} if wrong_yes else {}),
            **({"successes_unpaid": mean([float(one) for one in wrong_no])} if wrong_no else {}),
        }

    def metrics(self) -> dict[str, float]:
        """Of the step just observed: how often it is right by the tasks' rule, and the shares of failures that it pays
        and of successes that it does not."""
        return self.measured


def shown(task: Task, leaf: Node, ask: str) -> list[Message]:
    """A trajectory, what was answered in it included, as a conversation that ends with a question about it."""
    text = "".join(node.text for node in leaf.path()[1:])
    return [*task.messages, {"role": "assistant", "content": text}, {"role": "user", "content": ask}]
