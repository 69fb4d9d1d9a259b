"""What all stages of a run share: the policy, the run folder, evaluation, interruption."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from lyceum.core.component import require_keys
from lyceum.core.forest import Forest, build_forest
from lyceum.core.group import Group
from lyceum.core.settings import EngineSettings, RewardSettings
from lyceum.core.tree import Tree, details_ungraded, reasons_ungraded
from lyceum.core.types import Credited, Engine, Learner, LeftOut, Objective, StageRun, State, StepMetrics, TaskSource
from lyceum.evaluation.held_out import MAX_REASONS, Evaluator
from lyceum.models.load import save_adapters, save_policy
from lyceum.models.picture_tokens import shown_by
from lyceum.models.policy import Policy
from lyceum.run.digests import step_digests
from lyceum.run.folder import Run
from lyceum.training.stages._counts import LEARNS_NOTHING, MAX_NOTHING_GRADED, UNJUDGED, Counts, needed, to_grade
from lyceum.training.stages.models import engine_of
from lyceum.utils.errors import Interrupted, NothingGraded, NothingLearnt
from lyceum.utils.lazy_imports import Tensor, torch
from lyceum.utils.progress import Progress
from lyceum.utils.tracebacks import frames

if TYPE_CHECKING:
    from lyceum.recipe.schema import Recipe

GO_ON = "to go on all the same: the same command with --resume and max_steps_without_signal=0"


@dataclass
class Session:
    """Handed to every stage of a run."""

    policy: Policy
    run: Run
    progress: Progress
    source: TaskSource
    reward: tuple[RewardSettings, ...]
    """The recipe's, for stages without one of their own: each builds its graders anew."""
    evaluator: Evaluator | None
    seed: int
    interrupted: Callable[[], bool]
    checkpoint_every: int
    checkpoint_minutes: float = 0.0
    """Minutes since the last checkpoint after which a finished step is followed by one; 0 does not look at the time."""
    digests: bool = False
    """Whether the run leaves digests of its steps."""
    trees_every: int = 0
    """Steps between steps whose trees are written whole; 0 writes none."""
    names: Sequence[str] = ("",)
    """Names of the run's stages."""
    stage: int = 0
    """Index of the running stage."""
    first_step: int = 0
    """The run's step at which it began: steps are numbered through all stages."""
    counts: Counts = field(default_factory=Counts)
    said: set[str] = field(default_factory=set)
    """Reasons for ungraded trajectories that the user was told."""
    left_out: LeftOut = field(default_factory=LeftOut)
    """Tasks that are left out: metrics of the run's first step."""
    save_best: bool = False
    """Whether the run keeps its model of the highest held-out accuracy."""
    beside: Mapping[str, Policy] = field(default_factory=dict)
    """The running stage's further models by name; ``policy`` is its first."""
    warned: bool = False
    """Whether the user was told that nothing is being learnt."""
    max_steps_without_signal: int = 0
    """Steps without any learning signal, from the first, after which the run stops; 0: it never does for that."""

    handed_on: dict[str, Any] | None = None
    """The trained weights of the stage before, a value head's the last, where the running one begins with that."""
    start_weights: Sequence[Tensor] | None = None
    """The trained weights with which the run began, where a stage starts from them."""

    recipe: Recipe | None = None
    """The run's, for workers in other processes."""
    engine_elsewhere: bool = False
    """Whether the running stage can lose its engine."""

    def __post_init__(self) -> None:
        self._whole: tuple[int, Any] | None = None
        self._saved_at = time.monotonic()

    @property
    def stage_seed(self) -> int:
        """Random seed of the running stage."""
        return self.seed + 7919 * self.stage

    def folder(self, stage: str) -> Path:
        """Where a stage leaves its models, ``model/`` and ``value/``: the last one in the run's own folder."""
        return self.run.path if stage == self.names[-1] else self.run.stages / stage

    @property
    def judgements(self) -> Path:
        """Where graders keep what they paid for."""
        return self.run.path / "judgements"

    def for_workers(self) -> dict[str, Any]:
        """What a worker in another process is told of the running stage."""
        assert self.recipe is not None
        return {
            "recipe": self.recipe.resolved(),
            "stage": self.stage,
            "seed": self.stage_seed,
            "judgements": str(self.judgements),
            "stages": str(self.run.stages),
            "left": {name: str(self.folder(name)) for name in self.names},
            "threads": torch.get_num_threads(),
        }

    def show(self, groups: Sequence[Group]) -> None:
        """Have the policy know the pictures of these, rendered in another process perhaps, or before a checkpoint."""
        if (sight := self.policy.sight) is not None:
            for messages in (each for group in groups for each in shown_by(group.tree)):
                sight.pictures.remember(messages)

    def build_engine(self, settings: EngineSettings, policies: Sequence[Policy] | None = None) -> Engine:
        """An engine that serves the weights with which the running stage began.

        Args:
            policies: the stage's models; None: the run's own alone.
        """

        def build(policy: Policy) -> Engine:
            engine = settings.build(policy)
            engine.version = self.first_step
            return engine

        return engine_of(policies or [self.policy], build)

    def digest(
        self,
        step: int,
        trees: Sequence[Tree],
        metrics: Mapping[str, Any],
        *,
        forest: Forest | None = None,
        credited: Credited | None = None,
    ) -> None:
        """Write the digests of a step, if the run does so (see :func:`lyceum.run.digests.step_digests`)."""
        if self.digests:
            beside = {name: policy.module for name, policy in self.beside.items()}
            self.run.digests(step, step_digests(trees, forest, credited, metrics, self.policy.module, beside))

    def trees(
        self,
        done: int,
        groups: Sequence[Group],
        *,
        always: bool = False,
    ) -> None:
        """Write the trees of a step's finished groups whole, if the run does so and they are due.

        Args:
            done: steps of the stage that are done, this one included.
            always: write them on steps that ``trees_every`` skips too.
        """
        finished = [group for group in groups if group.finished]
        if not self.trees_every or not finished or ((done - 1) % self.trees_every and not always):
            return
        from lyceum.run.trees import Heading, StepTrees  # here: imports pyarrow

        heading = Heading(self.first_step + done, self.stage, self.first_step)
        self.run.trees(StepTrees(heading, sorted(finished, key=lambda group: group.dropped)))

    def rollouts(
        self, step: int, groups: Sequence[Group], forest: Forest, credited: Credited | None, *, always: bool = False
    ) -> None:
        """Write the trajectories of the finished groups that a step trained, if they are due.

        Args:
            step: of the run.
            groups: the step's; those that were not dropped are the trees of the forest, in order.
            always: write them on steps that ``rollouts_every`` skips too.
        """
        trained = [group for group in groups if not group.dropped]
        finished = torch.tensor([group.finished for group in trained], dtype=torch.bool)
        advantage = None if credited is None else credited.advantage[finished[forest.tree[forest.leaf]]]
        trees = [group.tree for group in trained if group.finished]
        self.run.rollouts(step, trees, advantage, self.policy.decode, always=always)

    async def evaluate(self, engine: Engine, metrics: dict[str, Any], step: int) -> None:
        """Add held-out accuracy to a step's metrics."""
        if self.evaluator is None:
            return
        quick = replace(self.evaluator, ks=(1,), greedy=False)
        with self.run.timed("evaluate"), self.progress.apart("evaluation", quick.completions):
            done = self.counter("evaluating", len(self.evaluator.tasks))
            result = await quick.evaluate(self.policy, engine, self.seed, done)
            now = result.metrics()
        self.say_ungraded(result.trees)
        if now["overall"] is not None:
            metrics["heldout/overall"] = now["overall"]["mean"]
            metrics["heldout/low"], metrics["heldout/high"] = now["overall"]["low"], now["overall"]["high"]
            metrics |= {f"heldout/level/{level}": ci["mean"] for level, ci in now["by_level"].items()}
            self.keep_if_best(now["overall"], step)

    def keep_if_best(self, accuracy: Mapping[str, float], step: int) -> None:
        """Save the policy in ``best`` where no evaluation before was as good: ties go to the earlier one.

        The summary says which it is. A resumed run repeats the evaluations since its checkpoint, with equal results.
        """
        best = self.run.summary().get("best")
        if not self.save_best or (best is not None and accuracy["mean"] <= best["overall"]["mean"]):
            return
        with self.run.timed("save"):
            save_policy(self.policy, self.run.best)
        self.run.summary({"best": {"step": step, "overall": accuracy}})

    def count(self, trees: Sequence[Tree]) -> None:
        """Add a step's trees to the run's counts."""
        self.say_ungraded(trees)
        self.counts.add(trees)

    def say_ungraded(self, trees: Sequence[Tree]) -> None:
        """Tell the user each new reason for ungraded trajectories at once, and where it came from."""
        details = details_ungraded(trees)
        for reason in reasons_ungraded(trees):
            known = {*self.said, *self.counts.reasons_ungraded}  # the latter include those from before an interruption
            if reason in known or len(known) >= MAX_REASONS:
                continue
            self.said.add(reason)
            lines = details.get(reason, "").splitlines()
            if reason in details:
                # One line of a function may fail in other words on every row: its traceback is shown once.
                if frames(details[reason]) in map(frames, self.counts.failures.values()):
                    lines = lines[:1]
                self.counts.failures[reason] = details[reason]
            self.progress.say("\n  ".join([f"not graded: {reason}", *lines]))

    def count_unjudged(self, groups: int, *, of: int) -> None:
        """Count groups that were dropped for want of a verdict, after :meth:`count`; tell the user once.

        Args:
            of: groups of the step. Where others are kept, what is trained is biased towards those that have verdicts.
        """
        self.counts.add_unjudged(groups)
        if UNJUDGED not in self.said and groups < of:
            self.said.add(UNJUDGED)
            dropped = f"{groups} of the step's {of} groups are dropped though their rewards differ"
            self.progress.say(f"{dropped}: {UNJUDGED}; needed: {needed({'unjudged': groups})}")

    def count_signal(self, something: bool) -> None:
        """Count whether a sampling step had a learning signal; called after :meth:`count`."""
        counts = self.counts
        counts.add_signal(something)
        unjudged = counts.since_signal.get("unjudged")  # never by chance
        after = 1 if unjudged else LEARNS_NOTHING
        if counts.steps_without_signal >= after and counts.lowest_reward is not None and not self.warned:
            self.warned = True
            so_far = "" if counts.steps_with_signal else f" (so far {counts.rewards})"
            what = UNJUDGED if unjudged else f"for {after} steps no reward has differed within a group{so_far}"
            self.progress.say(f"nothing is being learnt: {what}; needed: {needed(counts.since_signal)}")

    @contextmanager
    def training(self, learner: Learner) -> Iterator[None]:
        """Show and time the learner's work inside, and count its skipped updates."""
        self.progress.phase("training")
        before = learner.skipped_steps
        with self.run.timed("train"):
            yield
        self.counts.skipped_steps += learner.skipped_steps - before

    def imitate(self, learner: Learner, trees: Sequence[Tree], objective: Objective) -> dict[str, Any]:
        """One fine-tuning step on ungraded trajectories with advantage 0; returns its metrics."""
        started = time.perf_counter()
        with self.training(learner):
            forest = build_forest(trees, graded=False)
            metrics = learner.step(forest, Credited(torch.zeros(forest.rows().index.shape)), objective)
            objective.observe(metrics)
        return metrics | {"tokens_per_second": metrics["tokens_trained"] / (time.perf_counter() - started)}

    async def finish_step(
        self, of: StageRun, metrics: dict[str, Any], *, expected_steps: int | None = None
    ) -> StepMetrics:
        """Evaluate if due, then record and show the step that a stage has just done; returns all its metrics.

        Args:
            metrics: of the step; the run's cost so far is added to them.
            expected_steps: of the stage, if it may end before its steps are done.
        """
        step = self.first_step + of.step
        self.counts.tokens_trained += int(metrics.get("tokens_trained", 0))
        metrics |= {"tokens_sampled": self.counts.tokens_sampled, "tokens_trained": self.counts.tokens_trained}
        metrics["skipped_steps"] = of.learner.skipped_steps
        if step == 1 and self.left_out != LeftOut():
            left = self.left_out
            metrics |= {"tasks/dropped": left.dropped, "tasks/cut": left.cut, "tasks/evaluated": left.shared}
            metrics |= {f"tasks/{reason}": count for reason, count in left.chosen.items()}
        if self.evaluator and self.due(of.step, self.evaluator.every, of.steps):
            await self.evaluate(of.engine, metrics, step)
        self.run.record(step, {"stage": of.settings.name, **metrics})
        if expected_steps is not None:
            self.expect(self.first_step + expected_steps)
        self.progress.step(step, metrics)
        return metrics

    def expect(self, last: int) -> None:
        """The running stage ends with this step of the run."""
        progress = self.progress
        if progress.stage_ends is None or progress.total is None:
            progress.total = last
            return
        progress.total += last - progress.stage_ends
        progress.stage_ends = last

    def counter(self, phase: str, total: int) -> Callable[..., None]:
        """Show a phase's progress: returns a function to call as each tree is finished."""
        finished = 0

        def done(_: Tree | None = None) -> None:
            nonlocal finished
            finished += 1
            self.progress.phase(phase, finished, total)

        self.progress.phase(phase, 0, total)
        return done

    def due(self, step: int, every: int, last: int) -> bool:
        """Whether something that happens every ``every`` steps is due after ``step``; never after the last one."""
        return every > 0 and step % every == 0 and step < last

    def pause(self, done: int, last: int, state: Callable[[], dict[str, Any]]) -> None:
        """Write a checkpoint if due after ``done`` of the stage's steps; stop cleanly if the user asked for it.

        Raises:
            Interrupted: the user asked to stop; a checkpoint was written.
            NothingGraded: in too many consecutive steps.
            NothingLearnt: no step has had a learning signal, and there were too many; a checkpoint was written.
        """
        counts, limit = self.counts, self.max_steps_without_signal
        if limit and counts.nothing_graded >= MAX_NOTHING_GRADED:
            cause, *details = counts.why_ungraded
            untold = [] if self.progress.is_read else details
            head = f"nothing graded in {MAX_NOTHING_GRADED} steps in a row: {cause}"
            raise NothingGraded([head, *untold, to_grade(counts.reasons_ungraded, counts.failures)])
        hopeless = counts.learnt is False and done < last and 0 < limit <= counts.steps_without_signal
        self.keep_model(done, last)  # before a checkpoint, which a resumed run goes on from
        stop = self.interrupted()
        if stop or hopeless or self.due(done, self.checkpoint_every, last) or self.overdue(done, last):
            self.save(done, state)
        if stop:
            raise Interrupted(self.first_step + done)
        if hopeless:
            head = f"stopped after {counts.steps_without_signal} steps: {counts.why_nothing_learnt[0]}"
            raise NothingLearnt([head, GO_ON])
        self.remember(done, state)

    def remember(self, done: int, state: Callable[[], dict[str, Any]]) -> None:
        """Keep the state after ``done`` of the stage's steps, where the next one can lose its engine.

        Sampling changes all of it but the learner's, which is read when it is saved.
        """
        if self.engine_elsewhere:
            sampling = {name: value for name, value in state().items() if name != "learner"}
            self._whole = done, copy.deepcopy((self.counts.state_dict(), sampling))

    def save_whole_step(self, stage: StageRun) -> bool:
        """Write a checkpoint of the step before one that was lost while it sampled; returns whether there is one."""
        if self._whole is None or self._whole[0] != stage.step:  # the learner is a step further
            return False
        done, (counts, sampling) = self._whole
        self.counts.load_state_dict(counts)
        self.save(done, lambda: stage.state_dict() | sampling)
        return True

    def keep_model(self, done: int, last: int) -> None:
        """Save the policy after ``done`` of the stage's steps, where the run keeps such models and one is due."""
        kept = None if self.recipe is None else self.recipe.keep
        if kept is None or not self.due(done, kept.every, last):
            return
        folder = self.run.kept_models / f"step-{self.first_step + done}"
        with self.run.timed("save"), self.progress.apart("saving"):
            if kept.models == "adapter":
                save_adapters(self.policy, folder)
            else:
                save_policy(self.policy, folder, dtype=None if kept.dtype == "model" else kept.dtype)

    def overdue(self, done: int, last: int) -> bool:
        """Whether a checkpoint is due by the time since the last; never after the last step."""
        limit = 60 * self.checkpoint_minutes
        return 0 < limit <= time.monotonic() - self._saved_at and done < last

    def save(self, done: int, state: Callable[[], dict[str, Any]]) -> None:
        """Write a checkpoint after ``done`` of the stage's steps."""
        of_run = {"stage": self.names[self.stage], "first_step": self.first_step, "counts": self.counts.state_dict()}
        with self.progress.apart("saving"):
            self.run.checkpoint(self.first_step + done, of_run | {"of_stage": state()})
        self._saved_at = time.monotonic()
        self.progress.saved(self.first_step + done)


class StageLoop:
    """The state of a stage's loop: its step, that of its parts, and what is its own.

    Attributes:
        stateful: names of the attributes that have state, by which a checkpoint has it.
    """

    stateful: ClassVar[tuple[str, ...]]
    session: Session
    step: int
    engine: Engine

    def own_state(self) -> dict[str, Any]:
        """What else a resumed stage needs."""
        return {}

    def load_own_state(self, state: State) -> None:
        """Called with the whole state, when the parts have theirs."""

    def state_dict(self) -> dict[str, Any]:
        parts = {name: getattr(self, name).state_dict() for name in self.stateful}
        return {"step": self.step} | parts | self.own_state()

    def load_state_dict(self, state: State) -> None:
        require_keys("stage", given=state, needed=self.state_dict())
        self.step = state["step"]
        for name in self.stateful:
            getattr(self, name).load_state_dict(state[name])
        self.engine.version = self.session.first_step + self.step
        self.load_own_state(state)
