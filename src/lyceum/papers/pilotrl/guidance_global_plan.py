"""A plan of the whole comes before acting: the policy follows given plans, then writes them, then both (PilotRL).

Source: PilotRL, arXiv:2508.00344: the paradigm AdaPlan and its three phases.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

from pydantic import Field

from lyceum.core.notes import Note
from lyceum.core.settings import GuidanceSettings
from lyceum.core.solution import ladder_of
from lyceum.core.tree import Node, Tree, solved
from lyceum.core.types import Context, Grade, Hint, Rollout, TaskSource
from lyceum.guidance.base import (
    TaskGuide,
    answers_to,
    asked_of,
    check_ladders,
    notes_of,
    own_prompt,
    states_answer,
)
from lyceum.utils.aio import gather
from lyceum.utils.numbers import mean


class GlobalPlan(GuidanceSettings):
    """One model plans and executes. In phase ``follow`` it executes plans that the tasks come with, and earns the
    outcome plus ``adherence`` times the share of the plan's steps that it does, in their order. In phase ``plan`` it
    writes plans, each of which earns the accuracy of executions with it plus ``followed`` times the mean share of its
    steps that they do; these are not trained. In phase ``both`` plans and executions are trained, and executions are
    paid for adherence too.

    A plan that states the answer or has no step is not executed, and earns nothing.
    """

    plays: ClassVar[tuple[str, ...]] = ("planner", "executor")

    kind: Literal["global-plan"] = "global-plan"
    phase: Literal["follow", "plan", "both"] = "both"
    """What is trained."""
    tier: str = Field(default="planning", min_length=1)
    """Tier of the tasks' hints that are plans, for ``follow``: one of a task's, drawn at random."""
    plans: int = Field(default=4, ge=1, le=64)
    """Plans that are written per task; each is executed as often as the rollout samples."""
    ask: str = Field(
        default="{problem}\n\nDo not solve this yet. Write a plan: the steps, one per line.", pattern=r"\{problem\}"
    )
    """What the user says to the planner; ``{problem}`` is the task's last message."""
    before: str = Field(default="", max_length=20)
    """Text at the beginning of a plan that is no step."""
    between: str = Field(default="\n", min_length=1, max_length=20)
    """Text between the steps of a plan."""
    doing: str = Field(default="{step}", pattern=r"\{step\}")
    """What doing a step looks like in an execution; ``{step}`` is the step, which counts as a whole word."""
    adherence: float = Field(default=0.2, ge=0, le=100)
    """What an execution earns for doing every step of its plan."""
    followed: float = Field(default=1.0, ge=0, le=100)
    """What a written plan earns if its executions do every step of it. Without this, a text that nobody can execute
    earns what the executor reaches on its own."""

    def check_tasks(self, source: TaskSource) -> None:
        if self.phase == "follow":
            check_ladders("guidance.global-plan", source, allow_leaks=False, tiers=[self.tier])

    def build(self, source: TaskSource, *, seed: int) -> GlobalPlanGuide:
        return GlobalPlanGuide(self, source)

    def steps(self, plan: str) -> list[str]:
        return [step.strip() for step in plan.removeprefix(self.before).split(self.between) if step.strip()]

    def done(self, plan: str, text: str) -> float:
        """The share of a plan's steps, 0 to 1, that a text has one after the other; 1 where the plan has none."""
        steps = self.steps(plan)
        place = found = 0
        for step in steps:
            word = rf"(?<!\w){re.escape(step)}(?!\w)"
            at = re.compile(word.join(map(re.escape, self.doing.split("{step}")))).search(text, place)
            if at is None:
                break
            place, found = at.end(), found + 1
        return found / len(steps) if steps else 1.0


@dataclass
class PlansDone(Note):
    """What became of a task's plans.

    Attributes:
        written, leaked, truncated, empty: how many; those that state the answer, are unfinished or have no step are
            not executed.
        steps: of each written plan that was executed.
        accuracy: of the executions of each plan that was executed.
        followed: mean share of each written plan's steps that its executions did.
        done: share of the plan's steps that each execution did.
    """

    kind: ClassVar[str] = "global-plan"
    written: int = 0
    leaked: int = 0
    truncated: int = 0
    empty: int = 0
    steps: list[int] = field(default_factory=list)
    followed: list[float] = field(default_factory=list)
    accuracy: list[float] = field(default_factory=list)
    done: list[float] = field(default_factory=list)


class GlobalPlanGuide(TaskGuide):
    """Has no state."""

    tested = True  # its roles are sampled in every task

    def __init__(self, settings: GlobalPlan, source: TaskSource) -> None:
        self.settings, self.source = settings, source

    async def roll(self, rollout: Rollout, context: Context, start: Node, n: int | None) -> list[Node]:
        note = PlansDone()
        context.tree.add_note(note)
        if self.settings.phase == "follow":
            plans = [hint for hint in ladder_of(context.task) if hint.tier == self.settings.tier]
            if not plans:
                return await rollout(context.acting("executor"), start, n)
            plan = plans[context.seed(self.settings.kind) % len(plans)]
            return await self.executed(rollout, context, plan.text, n, note)
        planner = context.acting("planner")
        prompt = own_prompt(planner, asked_of(context.task, self.settings.ask), "plans")
        if prompt is None:
            return []
        plans = await rollout(planner, prompt, self.settings.plans)
        note.written = len(plans)
        executions = await gather([self.planned(rollout, context, leaf, n, note) for leaf in plans])
        trained = self.settings.phase == "both"
        return [*plans, *(leaf for leaves in executions for leaf in leaves if trained)]

    async def planned(
        self, rollout: Rollout, context: Context, plan: Node, n: int | None, note: PlansDone
    ) -> list[Node]:
        """The executions of a written plan, which is graded by them; none where it is not executed."""
        truncated = plan.finish == "length"
        leaked = not truncated and states_answer(context.task, plan.completion)
        steps = len(self.settings.steps(plan.completion))
        empty = not truncated and not steps
        note.truncated += truncated
        note.leaked += leaked
        note.empty += empty
        if truncated or leaked or empty:
            plan.grade = Grade(0.0, False, parts={"executed": 0.0})
            return []
        leaves = await self.executed(rollout, context, plan.completion, n, note)
        accuracy = solved(leaves)
        if accuracy is None:
            plan.grade = Grade.ungraded("no execution of the plan was graded")
            return leaves
        done = [leaf.grade.parts.get("adherence") for leaf in leaves if leaf.grade is not None]
        followed = mean([share for share in done if share is not None])
        note.accuracy.append(accuracy)
        note.followed.append(followed)
        note.steps.append(steps)
        outcome = accuracy + self.settings.followed * followed
        plan.grade = Grade(outcome, True, parts={"executed": 1.0, "helped": accuracy, "followed": followed})
        return leaves

    async def executed(
        self, rollout: Rollout, context: Context, plan: str, n: int | None, note: PlansDone
    ) -> list[Node]:
        """Graded executions of a plan, paid for doing it; none where no token is left."""
        hinted = self.source.hinted(context.task, Hint("plan", plan))
        leaves = await answers_to(rollout, context.acting("executor"), hinted.messages, f"plan {plan}", n)
        for leaf in leaves:
            done = self.settings.done(plan, leaf.completion)
            note.done.append(done)
            if leaf.grade is not None and leaf.grade.outcome is not None:
                leaf.grade = self.paid(leaf.grade, leaf.grade.outcome, done)
        return leaves

    def paid(self, grade: Grade, outcome: float, done: float) -> Grade:
        parts = {**grade.parts, "adherence": done}
        return replace(grade, outcome=outcome + self.settings.adherence * done, correct=grade.verdict, parts=parts)

    def observe(self, trees: Sequence[Tree]) -> None:
        notes = [note for _, note in notes_of(trees, PlansDone)]
        accuracy, done = ([one for note in notes for one in getattr(note, name)] for name in ("accuracy", "done"))
        metrics: dict[str, float] = {
            "plans/written": sum(note.written for note in notes),
            "plans/leaked": sum(note.leaked for note in notes),
            "plans/truncated": sum(note.truncated for note in notes),
            "plans/empty": sum(note.empty for note in notes),
            "plans/told_apart": sum(len(set(note.accuracy)) > 1 for note in notes),
        }
        if steps := [one for note in notes for one in note.steps]:
            metrics["plans/steps"] = mean([float(one) for one in steps])
            metrics["plans/followed"] = mean([one for note in notes for one in note.followed])
        if accuracy:
            metrics["accuracy/mean"] = mean(accuracy)
        if done:
            metrics["adherence/mean"] = mean(done)
            metrics["adherence/partial"] = sum(share < 1 for share in done)
        self._metrics = metrics
