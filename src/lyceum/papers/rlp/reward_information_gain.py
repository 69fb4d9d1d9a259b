"""How much likelier a thought makes the text that really follows (RLP): a reward without a verifier."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from lyceum.core.needs import Need
from lyceum.core.settings import RewardSettings
from lyceum.core.tree import Node
from lyceum.core.types import Grade, Grader, GradingContext, Scored, Task, TaskSource
from lyceum.core.user_files import describe
from lyceum.utils.aio import gather
from lyceum.utils.errors import RecipeError
from lyceum.utils.numbers import mean


class InformationGain(RewardSettings):
    """The log-probability of the task's answer below a completion, less that of the same text right below the prompt.

        r = sum_t log p(x_t | context, thought, x_<t) - sum_t log p_average(x_t | context, x_<t)

    The completion is a thought, and the answer is the text that follows the context in a document: nothing is parsed
    or compared, and any text will do. Nobody is told whether an answer was correct.

    Source:
        RLP, arXiv:2510.01265, equations 3 to 5, where the text is the next token.
    """

    asks_model: ClassVar[bool] = True
    requires: ClassVar = ("score", Need("average", when=lambda own: own.baseline == "average"))

    kind: Literal["information-gain"] = "information-gain"
    baseline: Literal["average", "policy", "none"] = "average"
    """What predicts the text without a thought: the stage's slow ``average`` of the policy, the policy itself, or
    nothing: the reward is then the log-probability below the thought. It is the same for all thoughts of a context, so
    that it cancels where credit compares them with each other."""
    tokens: int | None = Field(None, ge=1, le=1_000_000)
    """Number of tokens of the text that are predicted, its first ones; null: all. 1 is the next token."""
    per: Literal["text", "token"] = "text"
    """Log-probabilities are added up (nats per text), or averaged (nats per token)."""
    close: str = Field("", max_length=1000)
    """Text that ends a thought, such as </think>; where a completion does not end in it, it is put there before the
    text is predicted."""

    def check_tasks(self, source: TaskSource) -> None:
        super().check_tasks(source)
        if not isinstance(source[0].answer, str) or not source[0].answer:
            raise RecipeError(
                f"reward.kind: got 'information-gain', but the answer of task {source[0].id!r} is no text; allowed: "
                "tasks whose answer is the text to predict, such as kind 'text'"
            )

    def build(self, source: TaskSource) -> Grader:
        return self.grade

    async def grade(self, task: Task, leaves: Sequence[Node], context: GradingContext) -> list[Grade]:
        if not isinstance(task.answer, str) or not task.answer:
            return [Grade.ungraded(f"the answer of task {task.id!r} is no text")] * len(leaves)
        without: dict[tuple[int, ...], float] = {}
        for prompt in dict.fromkeys(tuple(leaf.root.tokens) for leaf in leaves):
            without[prompt] = await self.without_thought(self.predicted(prompt, task.answer, context), context)
        # One task's thoughts wait together: their scores share a batch.
        return await gather(
            [self.gain(leaf, task.answer, without[tuple(leaf.root.tokens)], context) for leaf in leaves]
        )

    async def gain(self, leaf: Node, text: str, without: float, context: GradingContext) -> Grade:
        path = self.below(leaf, text, context)
        if path.start == path.stop:
            return Grade.ungraded("the tokenizer has no token for the text that follows")
        try:
            scores = await context.score(path.tokens)
        except ValueError as error:  # longer than the model's context
            return Grade.ungraded(describe(error))
        below = self.total(scores[path.start : path.stop])
        return Grade(below - without, parts={"with": below, "without": without})

    async def without_thought(self, path: Scored, context: GradingContext) -> float:
        match self.baseline:
            case "none":
                return 0.0
            case "policy":
                return self.total((await context.score(path.tokens))[path.start : path.stop])
            case "average":
                return self.total((await context.score_under("average", [path]))[0])

    def below(self, leaf: Node, text: str, context: GradingContext) -> Scored:
        """The text below a thought, which is closed first; an end of sequence is no part of it."""
        tokens = leaf.path_tokens()
        if tokens[-1:] == context.encode("")[-1:]:
            tokens = tokens[:-1]
        if self.close and not leaf.completion.rstrip().endswith(self.close.rstrip()):
            tokens = [*tokens, *context.encode_after(tokens, self.close)]
        return self.predicted(tokens, text, context)

    def predicted(self, path: Sequence[int], text: str, context: GradingContext) -> Scored:
        """The text's first tokens right after a path."""
        tokens = context.encode_after(path, text)[: self.tokens]
        return Scored([*path, *tokens], len(path), len(path) + len(tokens))

    def total(self, logprob: Sequence[float]) -> float:
        return sum(logprob) if self.per == "text" or not logprob else mean(logprob)
