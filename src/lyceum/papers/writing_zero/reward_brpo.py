"""One sample of each group is the reference, and the others earn what a judge says of them against it (BRPO)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field

from lyceum.core.component import require_keys
from lyceum.core.settings import RewardSettings
from lyceum.core.tallies import TALLY, Tally
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Grade, GradingContext, Message, State, Task, TaskSource
from lyceum.reward._judging import JudgingGrader
from lyceum.reward.base import ungraded_by
from lyceum.reward.scorer.judging import JudgeModel, Question
from lyceum.utils.aio import gather

PRINCIPLES = (
    "First write the principles by which answers to this question should be judged, then criticise each answer by "
    "them. The better answer follows them more closely. Length, confidence and order earn nothing."
)
FIRST = {"A": True, "B": False}
"""Whether a verdict is for the answer shown first."""


class Brpo(RewardSettings):
    """1 for a completion that the judge finds better than the reference, -1 for one that it finds worse.

    The reference is drawn anew for each group, from among the completions that are graded together; it earns 0, and so
    do completions of the same text and ties. With ``credit: reinforce`` that is each one's advantage, as in the paper:
    nothing is centred or divided, and the reference is not trained.

    Source:
        Writing-Zero, arXiv:2506.00103 (bootstrapped relative policy optimisation, read in its abstract and in summaries
        of it; that the judge's order may be checked is ours).
    """

    requires: ClassVar = ("company",)

    kind: Literal["brpo"] = "brpo"
    judge: JudgeModel = JudgeModel()
    """Who compares."""
    principles: str = Field(PRINCIPLES, min_length=1)
    """What the judge is told to compare by; it writes principles of its own."""
    orders: Literal["random", "both"] = "random"
    """Which of a pair is shown first: drawn by lot, or both are asked, and verdicts that disagree are a tie. ``both``
    costs twice, and a judge that prefers whatever comes first then decides nothing."""

    @property
    def waits_for_model(self) -> bool:
        return self.judge.waits_for_model

    def build(self, source: TaskSource) -> BrpoGrader:
        self.judge.check_files()
        return BrpoGrader(self)


class BrpoGrader(JudgingGrader):
    """Counts its verdicts over a step."""

    def __init__(self, settings: Brpo) -> None:
        super().__init__(settings.judge)
        self.settings = settings
        self.tally = Tally("compared", "tied", "better", "votes", "first")
        self.measured: dict[str, float] = {}

    async def __call__(self, task: Task, leaves: Sequence[Node], context: GradingContext) -> list[Grade]:
        if len(leaves) < 2:
            return [Grade.ungraded("there is no other completion to compare it with")] * len(leaves)
        chosen = context.seed("brpo", leaves[0].address) % len(leaves)
        reference = leaves[chosen]

        async def one(i: int, leaf: Node) -> Grade:
            if i == chosen:
                return Grade(0.0, parts={"reference": 1.0})
            if leaf.completion == reference.completion:
                return Grade(0.0, parts={"reference": 0.0, "same": 1.0})
            try:
                won = await self.against(reference, leaf, task.messages, context)
            except Exception as error:
                return ungraded_by(error)
            if won is None:
                return Grade.ungraded("no reply of the judge ends in A or B")
            self.tally.count(compared=1, tied=won == 0, better=won == 1)
            return Grade(float(won), parts={"reference": 0.0, "same": 0.0})

        return await gather([one(i, leaf) for i, leaf in enumerate(leaves)])

    async def against(
        self, reference: Node, leaf: Node, messages: Sequence[Message], context: GradingContext
    ) -> int | None:
        """1 where the completion is better than the reference, -1 where it is worse, 0 for a tie; None where no vote
        can be read."""
        key = (reference.address, leaf.address)
        orders = [False, True] if self.settings.orders == "both" else [bool(context.seed("brpo", "order", *key) % 2)]
        total = 0
        for reference_first in orders:
            pair = (reference, leaf) if reference_first else (leaf, reference)
            texts = [each.completion for each in pair]
            question = Question(messages, texts, self.settings.principles, "better", "A or B")
            firsts = await self.asker.verdicts(
                question, context, ("brpo", int(reference_first), *key), lambda vote: FIRST.get(vote.upper())
            )
            if not firsts:
                return None
            self.tally.count(votes=len(firsts), first=sum(firsts))
            lead = sum(1 if first != reference_first else -1 for first in firsts)
            total += (lead > 0) - (lead < 0)
        return (total > 0) - (total < 0)

    def observe(self, trees: Sequence[Tree]) -> None:
        of = self.tally.taken()
        self.measured = {"pairs/compared": of["compared"], "pairs/tied": of["tied"]}
        if of["compared"]:
            self.measured["better/share"] = of["better"] / of["compared"]
        if of["votes"]:
            self.measured["first/share"] = of["first"] / of["votes"]

    def metrics(self) -> dict[str, float]:
        """Comparisons with a verdict, ties, how often the reference lost, how often the answer shown first won (half of
        the time, where the judge has no preference for a place); and the judge's own."""
        return self.measured | super().metrics()

    def state_dict(self) -> State:
        return {"asker": super().state_dict(), TALLY: dict(self.tally)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        require_keys("reward.brpo", given=state, needed=self.state_dict())
        self.tally.update(state[TALLY])
        super().load_state_dict(state["asker"])
