"""A planner asks a tool, another model answers with what came of it, and the planner earns what that was good for.

Source: AI-SearchPlanner, arXiv:2508.20368: a small planner is trained, a frozen model answers; the planner earns how
much better it answers with the planner's findings than without, less the cost of its queries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from pydantic import Field

from lyceum.core.needs import Need
from lyceum.core.notes import Note
from lyceum.core.settings import GuidanceSettings
from lyceum.core.tree import Node, Tree, solved
from lyceum.core.types import Context, Grade, Hint, Origin, Rollout, Sampling, TaskSource
from lyceum.guidance.base import TaskGuide, notes_of
from lyceum.rollout.turns import CALLS
from lyceum.utils.aio import gather
from lyceum.utils.numbers import mean


class SearchPlanner(GuidanceSettings):
    """The rollout's trajectories are the planner's; what the environment answered in each, and nothing of the planner's
    own, is a hint in the answerer's prompt. Only the planner is trained: with a model of its own (``roles: {models:
    [planner, answerer], play: {planner: planner, answerer: answerer}}``) the answerer stays what it was as the stage
    began.

        r = accuracy with the findings - accuracy without - cost * calls
    """

    requires: ClassVar = (
        Need(
            "environment",
            line="{own} with {given}, which has no environment to ask; allowed: a rollout with one, such as 'turns'",
        ),
    )
    plays: ClassVar[tuple[str, ...]] = ("planner", "answerer")

    kind: Literal["search-planner"] = "search-planner"
    answers: int = Field(default=1, ge=1, le=64)
    """Answers with the findings of each trajectory."""
    direct: int = Field(default=4, ge=1, le=256)
    """Answers per task without any."""
    cost: float = Field(default=0.1, ge=0)
    """What each call of the tool costs, in the reward's unit: 0 trains for answers alone, more for fewer calls."""
    findings: str = Field(default="{findings}", pattern=r"\{findings\}")
    """The hint, with the tool's answers joined by ``between``."""
    between: str = "\n"
    """What stands between two of the tool's answers."""
    sampling: Sampling = Sampling()
    """How answers are sampled; within the task's budget."""

    def build(self, source: TaskSource, *, seed: int) -> SearchPlannerGuide:
        return SearchPlannerGuide(self, source)

    def earned(self, found: float, direct: float, calls: int) -> float:
        """What a plan earns: accuracy with its findings less that without, less the cost of its calls."""
        return found - direct - self.cost * calls


@dataclass
class Planned(Note):
    """What a task's plans were good for.

    Attributes:
        direct: accuracy without findings; None where none was graded.
        found, calls: accuracy with the findings, and calls, of each trajectory that was graded.
    """

    kind: ClassVar[str] = "search-planner"
    direct: float | None = None
    found: list[float] = field(default_factory=list)
    calls: list[int] = field(default_factory=list)


class SearchPlannerGuide(TaskGuide):
    """Has no state."""

    def __init__(self, settings: SearchPlanner, source: TaskSource) -> None:
        self.settings, self.source = settings, source

    async def roll(self, rollout: Rollout, context: Context, start: Node, n: int | None) -> list[Node]:
        plans = await rollout(context.acting("planner"), start, n)
        note = Planned()
        context.tree.add_note(note)
        note.direct = await self.accuracy(context, "", self.settings.direct)
        found = await gather(
            [self.accuracy(context, findings(leaf, self.settings), self.settings.answers) for leaf in plans]
        )
        for leaf, share in zip(plans, found, strict=True):
            leaf.grade = self.grade(leaf, share, note)
        return plans

    async def accuracy(self, context: Context, text: str, samples: int) -> float | None:
        """The answerer's, with a text as its hint or without; None where nothing could be answered or graded."""
        answerer = context.acting("answerer")
        hinted = self.source.hinted(context.task, Hint("findings", text)) if text else context.task
        tokens = answerer.render(hinted.messages)
        prompt = answerer.tree.add_prompt(tokens, answerer.decode(tokens))
        most = min(self.settings.sampling.max_completion_tokens, answerer.budget_left, answerer.tokens_left(prompt))
        if most <= 0:
            return None
        sampling = self.settings.sampling.model_copy(update={"max_completion_tokens": most})
        leaves = await answerer.extend(prompt, samples, sampling)
        await answerer.grade(leaves)
        return solved(leaves)

    def grade(self, plan: Node, found: float | None, note: Planned) -> Grade:
        """A trajectory's grade; its verdict is whether some answer with its findings is right."""
        if plan.grade is not None and plan.grade.outcome is None:
            return plan.grade  # the environment failed
        if found is None or note.direct is None:
            return Grade.ungraded("no answer was graded, or no token was left for one")
        calls = sum(node.stats.get(CALLS, 0) for node in plan.path())
        note.found.append(found)
        note.calls.append(calls)
        parts = {"found": found, "gain": found - note.direct, "calls": float(calls)}
        return Grade(self.settings.earned(found, note.direct, calls), found > 0, parts=parts)

    def observe(self, trees: Sequence[Tree]) -> None:
        notes = [note for _, note in notes_of(trees, Planned) if note.direct is not None and note.found]
        if not notes:
            self._metrics = {}
            return
        gains = [share - (note.direct or 0) for note in notes for share in note.found]
        self._metrics = {
            "accuracy/direct": mean([note.direct or 0 for note in notes]),
            "accuracy/found": mean([share for note in notes for share in note.found]),
            "plans/helped": sum(gain > 0 for gain in gains),
            "plans/harmed": sum(gain < 0 for gain in gains),
            "calls/mean": mean([float(calls) for note in notes for calls in note.calls]),
        }


def findings(plan: Node, settings: SearchPlanner) -> str:
    """The hint that a trajectory's findings make; empty where the environment answered nothing."""
    answers = [node.text for node in plan.path() if node.origin is Origin.TOOL and node.text]
    return settings.findings.replace("{findings}", settings.between.join(answers)) if answers else ""
