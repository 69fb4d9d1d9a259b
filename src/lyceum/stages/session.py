"""What all stages of a run share: the policy, the run folder, evaluation, interruption."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from lyceum.digests import step_digests
from lyceum.evaluate.run import MAX_REASONS, Exam, details_ungraded, reasons_ungraded
from lyceum.forest import Forest
from lyceum.policy import Policy
from lyceum.progress import Progress
from lyceum.run import Run
from lyceum.stages.counts import (
    LEARNS_NOTHING,
    MAX_NOTHING_GRADED,
    TO_LEARN,
    Counts,
    NothingGraded,
)
from lyceum.tree import Tree
from lyceum.types import Credited, Engine, Grader, Learner, TaskSource


class Interrupted(Exception):
    """The user asked to stop; what was trained is in a checkpoint."""

    def __init__(self, step: int) -> None:
        super().__init__(f"stopped at step {step}")
        self.step = step


class StageRun(Protocol):
    """A stage under way: what its settings build.

    Attributes:
        step: how many of its steps are done.
    """

    step: int

    async def run(self) -> None:
        """Take the steps that are left, with :meth:`Session.pause` after each."""
        ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: Mapping[str, Any], /) -> None: ...


@dataclass
class Session:
    """Handed to every stage of a run."""

    policy: Policy
    run: Run
    progress: Progress
    source: TaskSource
    grader: Grader
    exam: Exam | None
    seed: int
    interrupted: Callable[[], bool]
    checkpoint_every: int
    digests: bool = False
    """Whether the run leaves digests of its steps."""
    stage: int = 0
    """Number of the running stage, and"""
    first_step: int = 0
    """the run's step at which it began: steps are numbered through all stages."""
    counts: Counts = field(default_factory=Counts)
    said: set[str] = field(default_factory=set)
    """Reasons for ungraded trajectories that were said."""
    warned: bool = False
    """Whether it was said that nothing is being learnt."""

    def digest(
        self,
        step: int,
        trees: Sequence[Tree],
        figures: Mapping[str, Any],
        *,
        forest: Forest | None = None,
        credited: Credited | None = None,
    ) -> None:
        """Leave the digests of a step of the run, where it is to (see :func:`lyceum.digests.step_digests`)."""
        if self.digests:
            self.run.digests(step, step_digests(trees, forest, credited, figures, self.policy.module))

    async def evaluate(self, engine: Engine, figures: dict[str, Any]) -> None:
        """Add held-out accuracy to a step's figures."""
        if self.exam is None:
            return
        with self.run.timed("evaluate"):
            self.progress.phase("evaluating")
            quick = replace(self.exam, ks=(1,), greedy=False)
            sitting = await quick.sit(self.policy, engine, self.seed)
            now = sitting.figures()
        self.say_ungraded(sitting.trees)
        if now["overall"] is not None:
            figures["heldout/overall"] = now["overall"]["mean"]
            figures["heldout/low"], figures["heldout/high"] = now["overall"]["low"], now["overall"]["high"]
            figures |= {f"heldout/level/{level}": ci["mean"] for level, ci in now["by_level"].items()}

    def count(self, trees: Sequence[Tree]) -> None:
        """Add a step's trees to the run's counts."""
        self.say_ungraded(trees)
        self.counts.add(trees)

    def say_ungraded(self, trees: Sequence[Tree]) -> None:
        """Say the first of each reason why there is no grade at once, and where it came from."""
        details = details_ungraded(trees)
        for reason in reasons_ungraded(trees):
            known = {*self.said, *self.counts.reasons_ungraded}  # the latter also before an interruption
            if reason in known or len(known) >= MAX_REASONS:
                continue
            self.said.add(reason)
            if reason in details:
                self.counts.failures[reason] = details[reason]
            self.progress.say("\n  ".join([f"not graded: {reason}", *details.get(reason, "").splitlines()]))

    def count_signal(self, something: bool) -> None:
        """Told of each step that sampled, after :meth:`count`: whether there is anything in it to learn from."""
        counts = self.counts
        counts.add_signal(something)
        if counts.steps_without_signal == LEARNS_NOTHING and counts.lowest_reward is not None and not self.warned:
            self.warned = True
            so_far = "" if counts.steps_with_signal else f" (so far {counts.rewards})"
            self.progress.say(
                f"nothing is being learnt: for {LEARNS_NOTHING} steps no reward has differed within a group{so_far}; "
                f"{TO_LEARN}"
            )

    @contextmanager
    def training(self, learner: Learner) -> Iterator[None]:
        """What the learner does inside is shown, timed, and its skipped updates counted."""
        self.progress.phase("training")
        before = learner.skipped_steps
        with self.run.timed("train"):
            yield
        self.counts.skipped_steps += learner.skipped_steps - before

    def counter(self, phase: str, total: int) -> Callable[[Tree], None]:
        """Shows a phase's progress: to be called with each finished tree."""
        finished = 0

        def done(_: Tree) -> None:
            nonlocal finished
            finished += 1
            self.progress.phase(phase, finished, total)

        self.progress.phase(phase, 0, total)
        return done

    def due(self, step: int, every: int, last: int) -> bool:
        """Whether something that happens every so many steps is due after ``step``; never after the last one."""
        return every > 0 and step % every == 0 and step < last

    def pause(self, done: int, last: int, state: Callable[[], dict[str, Any]]) -> None:
        """A checkpoint where one is due after so many of the stage's steps; a clean stop where the user asked for one.

        Raises:
            Interrupted: after the checkpoint of a stop.
            NothingGraded: so many steps in a row that more of them would be a waste.
        """
        if self.counts.nothing_graded >= MAX_NOTHING_GRADED:
            cause, *details = self.counts.why_ungraded
            untold = details if self.progress.mode == "silent" else []
            raise NothingGraded([f"nothing graded in {MAX_NOTHING_GRADED} steps in a row: {cause}", *untold])
        stop = self.interrupted()
        if stop or self.due(done, self.checkpoint_every, last):
            self.save(done, state)
        if stop:
            raise Interrupted(self.first_step + done)

    def save(self, done: int, state: Callable[[], dict[str, Any]]) -> None:
        """A checkpoint after so many of the stage's steps."""
        of_run = {"stage": self.stage, "first_step": self.first_step, "counts": self.counts.state_dict()}
        self.run.checkpoint(self.first_step + done, of_run | {"of_stage": state()})
