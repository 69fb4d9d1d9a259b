"""Offline training on trajectories that are there before its first update: just sampled, or recorded by a run."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field

from lyceum.core.component import Tokens, of_kind, require_keys, slot
from lyceum.core.forest import Forest, build_forest
from lyceum.core.needs import FROZEN
from lyceum.core.settings import (
    Composition,
    CreditSettings,
    CurriculumSettings,
    DataSettings,
    EngineSettings,
    GuidanceSettings,
    LearnerSettings,
    Left,
    ObjectiveSettings,
    RewardSettings,
    RolloutSettings,
    StageSettings,
    ValueSettings,
)
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Credited, Sampling, Task, TaskSource
from lyceum.models.frozen import ReferenceSettings, TeacherSettings
from lyceum.models.policy import Policy
from lyceum.objective.base import Terms
from lyceum.stages._epochs import steps_in_words
from lyceum.stages._metrics import mean_solved, rollout_metrics
from lyceum.stages._sampling import Sampler
from lyceum.stages.method import Method
from lyceum.stages.online import Kept
from lyceum.stages.session import Session
from lyceum.stages.stopping import Ending, UntilHeldOut, ends_in_words
from lyceum.utils.atomic_files import atomic_write
from lyceum.utils.errors import Interrupted, RecipeError, RunError
from lyceum.utils.lazy_imports import torch


class Offline(StageSettings):
    """Passes over trajectories that do not change: preference optimisation, or policy gradients on recorded samples.

    The reference, where the objective reads one, is the policy that enters the stage, or what ``reference`` says.
    """

    kind: Literal["offline"] = "offline"
    data: Annotated[DataSettings, slot("data", "sampled")] = of_kind("sampled")
    """Where trajectories come from."""
    steps: int = Field(default=100, ge=1)
    """Maximum number of steps of this stage, which learning-rate schedules follow."""
    epochs: int | None = Field(default=None, ge=1)
    """Passes over the data after which the stage ends, each in another order; null: as many as its steps take. The last
    step of a pass may have fewer groups."""
    until: UntilHeldOut | None = None
    """Early stopping: when held-out accuracy reaches a target, or no longer rises."""
    tasks_per_step: int = Field(default=32, ge=1)
    """Groups per step, each whole."""
    max_tokens: Tokens | None = None
    """Sampled tokens after which no further tasks are sampled; for comparisons at equal cost."""
    max_tokens_per_task: Tokens | None = None
    """Maximum sampled tokens per task, over all its rollouts."""
    collect: Kept = Kept()
    """Which groups are trained on."""
    ratio: Literal["behaviour", "step"] = "behaviour"
    """What an objective's importance ratios are relative to: the log-probabilities under which the trajectories were
    sampled, or those at the start of each step."""
    curriculum: Annotated[CurriculumSettings, slot("curriculum", "uniform")] = of_kind("uniform")
    """Which tasks are sampled."""
    rollout: Annotated[RolloutSettings, slot("rollout", "flat")] = of_kind("flat")
    """How a sampled task's tree grows. Its temperature is also that of recorded trees."""
    reward: tuple[Annotated[RewardSettings, slot("reward")], ...] | None = None
    """Parts of the outcome reward in this stage; by default the recipe's. Evaluation always uses the recipe's."""
    value: Annotated[ValueSettings, slot("value")] | None = None
    """Value model of unfinished paths, for rollouts that need one; none by default."""
    credit: Annotated[CreditSettings, slot("credit", "group")] = of_kind("group")
    """From outcomes to advantages."""
    objective: Annotated[ObjectiveSettings, slot("objective", "dpo")] = of_kind("dpo")
    """The loss."""
    reference: ReferenceSettings | None = None
    """The reference of KL penalties and preference losses: ``{average: [...]}`` of several models' weights, such as
    ``policy`` and ``{from_stage: NAME}``; null: the policy that enters the stage."""
    teacher: TeacherSettings | None = None
    """Frozen model to learn from, for objectives and credits that read one: its path, or path and dtype."""
    learner: Annotated[LearnerSettings, slot("learner", "local")] = of_kind("local")
    """How weights are updated."""
    engine: Annotated[EngineSettings, slot("engine", "embedded")] = of_kind("embedded")
    """What samples."""

    guidance: ClassVar[tuple[GuidanceSettings, ...]] = ()
    """There is none: guides are told of updates, and of what they noted as they noted it."""

    @property
    def leaves(self) -> frozenset[Left]:
        trees = frozenset[Left](() if self.data.given else {"trees"})
        return trees | frozenset[Left]({"value-head"} if "value-head" in self.objective.offers else ())

    def composition(self, reward: tuple[RewardSettings, ...] = ()) -> Composition:
        whole = super().composition(reward)
        if self.data.samples:
            return whole
        without: dict[str, Any] = dict.fromkeys(("curriculum", "rollout", "value", "max_tokens_per_task"))
        return Composition(**{**vars(whole), **without})

    @property
    def sampling(self) -> Sampling:
        return self.rollout.sampling

    def in_words(self) -> list[str]:
        return [
            steps_in_words(self.steps, self.epochs, self.tasks_per_step),
            *ends_in_words(self.until),
            f"data {self.data.kind}",
        ]

    def check(self, stage: Composition) -> list[str]:
        lines = super().check(stage)
        if self.data.given and self.collect.keep != "all":
            lines.append(
                f"collect.keep: got {self.collect.keep!r}, but data.kind '{self.data.kind}' reads its groups one by "
                "one; allowed: all"
            )
        if self.data.given and isinstance(self.objective, Terms) and self.objective.importance.mode != "none":
            lines.append(
                f"objective.importance.mode: got {self.objective.importance.mode!r}, but data.kind "
                f"'{self.data.kind}' does not say how likely completions were as they were written; allowed: none"
            )
        return lines

    def with_budget(self, tokens: int, *, keep_steps: bool) -> Self | None:
        """The stage with as many tasks as the tokens may last at most; its steps are kept."""
        if not self.data.samples:
            return None
        data = self.data if keep_steps else self.data.with_budget(self.composition().trajectories or 1, tokens)
        return self.model_copy(update={"max_tokens": tokens, "data": data})

    def build(self, session: Session) -> OfflineRun:
        return OfflineRun(self, session)


class OfflineRun:
    """The loop and its state. The data are in the stage's folder, ``data/part-*.parquet``, and are read from there:
    whatever was killed when, it is trained on the same."""

    def __init__(self, settings: Offline, session: Session) -> None:
        self.settings, self.session = settings, session
        self.steps, self.step, self.parts = settings.steps, 0, 0
        self.method = method = Method.of(settings, session.reward)
        self.objective, self.credit, self.columns = method.objective, method.credit, method.columns
        needs = method.needs.union(*(part.needed & FROZEN for part in settings.reward or ()))
        self.learner = settings.learner.build(
            session.policy,
            total_steps=settings.steps,
            needs=needs,
            teacher=settings.teacher,
            reference=None if settings.reference is None else settings.reference.of_run(session.run.stages),
        )
        constraint = settings.sampling.constraint
        self.constraint = None if constraint is None else constraint.build(session.policy)
        self.sampler = Sampler(settings, session, score_under=self.learner.score_under)
        self.engine = self.sampler.engine
        self.ending = Ending(settings.until)
        self.home = session.folder(settings.name)
        self.entered = copy.deepcopy(self.sampler.state_dict())
        """State of the sampler before it has sampled."""
        self.tokens = 0
        """Tokens sampled so far."""
        self.groups: Sequence[tuple[Tree, float]] = []
        """What is trained on: trees and the curriculum's weights."""
        self._found: dict[str, Any] = {}  # metrics of the data, until they are recorded

    # What a kind of data is offered (Gathering) ---

    @property
    def policy(self) -> Policy:
        return self.session.policy

    @property
    def source(self) -> TaskSource:
        return self.session.source

    @property
    def folder(self) -> Path:
        return self.session.run.path

    @property
    def spent(self) -> bool:
        limit = self.settings.max_tokens
        return limit is not None and self.tokens >= limit

    async def sample(self, tasks: int) -> Sequence[Tree]:
        session, file = self.session, self.file(self.parts)
        if file.exists():
            drawn = self.sampler.draw(tasks)
            (trees, _) = self.read(self.parts)
            if [tree.task.id for tree in trees] != [task.id for task in drawn]:
                raise RecipeError(f"{file}: its tasks are not those that the stage draws; allowed: as the run wrote it")
        else:
            # What the engine has cached of the part before, a resumed run would not have.
            await self.engine.load(self.learner.weights(), version=session.first_step)
            trees = await self.sampler.sample(tasks, key=("data", self.parts), step=0, phase="sampling")
            weights = [self.sampler.weight(tree) for tree in trees]
            for tree in trees:
                tree.mean_abs_advantage = 0.0  # there are none before the first update
            self.write(trees, weights)
            (trees, _) = self.read(self.parts)  # components observe what a resumed run reads
        self.sampler.observe(trees)
        self.tokens += sum(tree.sampled_tokens for tree in trees)
        if session.interrupted():
            session.save(0, self.state_dict)
            raise Interrupted(session.first_step)
        return trees

    async def grade(self, task: Task, leaves: Sequence[Node]) -> None:
        await self.sampler.runtime.grade(task, leaves, key="data")

    # The data ---

    def file(self, number: int) -> Path:
        from lyceum.run.stage_trees import part_file  # here: imports pyarrow

        return part_file(self.home, number)

    def write(self, trees: Sequence[Tree], weights: Sequence[float]) -> None:
        """Write the next part."""
        from lyceum.run.trees import Heading, StepTrees, write_trees  # here: imports pyarrow

        session, file = self.session, self.file(self.parts)
        heading = Heading(session.first_step, session.stage, session.first_step)
        file.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(file, write_trees(StepTrees(heading, trees, weights)))

    def read(self, number: int) -> tuple[Sequence[Tree], Sequence[float]]:
        from lyceum.run.trees import read_trees  # here: imports pyarrow

        step = read_trees(self.file(number))
        return step.trees, step.weights

    async def gather(self) -> None:
        """Write all parts, and count what was sampled."""
        async for trees in self.settings.data.parts(self):
            if trees:
                if not self.settings.data.samples:  # what was sampled is written
                    self.write(trees, [1.0] * len(trees))
                self.parts += 1

    def take(self) -> list[Tree]:
        """Read all parts, and keep the groups that are trained on; returns the trees of all. What a file gives is read
        group by group, later."""
        if self.settings.data.given:
            self.groups = self.settings.data.groups(self, self.home)
            return []
        both = [pair for number in range(self.parts) for pair in zip(*self.read(number), strict=True)]
        keeps = self.settings.collect.keeps
        self.groups = [(tree, weight) for tree, weight in both if tree.graded and keeps(tree)]
        return [tree for tree, _ in both]

    def count(self, trees: Sequence[Tree]) -> None:
        """Add the data to the run's counts, once; their metrics are of the first step."""
        if self.settings.data.given:
            self._found = {"data/groups": len(self.groups)}
            return
        metrics = self.sampler.count(trees)
        del metrics["tokens_computed/step"]  # a resumed run has not computed all
        leaves = [leaf for tree in trees for leaf in tree.trajectories]
        self._found = metrics | {
            "data/groups": len(trees),
            "data/kept": len(self.groups),
            "data/trajectories": len(leaves),
            "data/correct": mean_solved(trees),
        }

    def require_groups(self, found: int) -> None:
        """Raise RunError where there is no group to train on."""
        if not self.groups:
            line = (
                f"collect.keep: got {self.settings.collect.keep!r}, but none of the {found} groups of stage "
                f"{self.settings.name!r} is trained on; allowed: more data, tasks that are solved sometimes, or 'all'"
            )
            raise RunError([line, *self.session.counts.why_ungraded])

    # The loop ---

    async def run(self) -> None:
        if not self.step:
            await self.gather()
        trees = self.take()
        if not self.step:
            self.count(trees)
        self.require_groups(len(trees))
        while not self.over:
            trees, weights = self.batch()
            forest = self.flatten(trees, weights)
            credited, metrics = self.learn(forest)
            self.step += 1
            await self.engine.load(self.learner.weights(), version=self.session.first_step + self.step)
            await self.record(trees, forest, credited, metrics)
            self.session.pause(self.step, self.last, self.state_dict)
        with self.method.learning():
            self.learner.require_learnt()

    @property
    def steps_per_pass(self) -> int:
        return math.ceil(len(self.groups) / self.settings.tasks_per_step)

    @property
    def last(self) -> int:
        """The step with which the stage ends."""
        epochs = self.settings.epochs
        return self.steps if epochs is None else min(self.steps, epochs * self.steps_per_pass)

    @property
    def over(self) -> bool:
        return self.step >= self.last or self.ending.reached

    @property
    def ended_by(self) -> str:
        return self.ending.why or ("its epochs are over" if self.last < self.steps else "")

    def batch(self) -> tuple[list[Tree], list[float]]:
        """The step's groups: the next ones of its pass, whose order follows from the stage's seed and its number."""
        number, place = divmod(self.step, self.steps_per_pass)
        order = np.random.default_rng([self.session.stage_seed, number]).permutation(len(self.groups))
        size = self.settings.tasks_per_step
        chosen = [self.groups[int(index)] for index in order[place * size : (place + 1) * size]]
        return [tree for tree, _ in chosen], [weight for _, weight in chosen]

    def flatten(self, trees: Sequence[Tree], weights: Sequence[float]) -> Forest:
        return build_forest(
            trees,
            decode=self.session.policy.decode,
            weights=weights,
            temperature=self.settings.sampling.temperature or 1.0,
            steps=self.settings.credit.reads_steps,
            constraint=self.constraint,
        )

    def learn(self, forest: Forest) -> tuple[Credited, dict[str, Any]]:
        with self.session.training(self.learner), self.method.learning():
            forest = self.learner.annotate(forest, self.columns)
            credited = self.method.credited(forest)
            if self.settings.ratio == "behaviour" and not self.settings.data.given:
                forest = forest.with_columns(old_logprob=torch.nan_to_num(forest.behaviour_logprob, nan=0.0))
            metrics = self.learner.step(forest, credited, self.objective)
            self.credit.observe(forest, metrics)
            self.objective.observe(metrics)
        return credited, metrics | {f"credit/{name}": value for name, value in credited.metrics.items()}

    async def record(self, trees: Sequence[Tree], forest: Forest, credited: Credited, metrics: dict[str, Any]) -> None:
        session, step = self.session, self.session.first_step + self.step
        session.digest(step, trees, metrics, forest=forest, credited=credited)
        metrics = self._found | rollout_metrics(trees, (), forest) | metrics
        self._found = {}
        counts, given = session.counts, self.settings.data.given
        if given:
            counts.add_given(len(trees))
        session.count_signal(
            self.settings.teacher is not None
            or (given and metrics.get("tokens_trained", 0) > 0)
            or metrics.get("pairs", 0) > 0
            or (counts.lowest_reward != counts.highest_reward and bool((credited.advantage != 0).any()))
        )
        self.ending.observe(await session.finish_step(self, metrics, expected_steps=self.last))
        session.run.rollouts(step, trees, credited.advantage, session.policy.decode, always=self.over)

    def state_dict(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "parts": self.parts,
            "credit": self.credit.state_dict(),
            "objective": self.objective.state_dict(),
            "learner": self.learner.state_dict(),
            "sampler": self.sampler.state_dict() if self.step else self.entered,
            "ending": self.ending.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        require_keys("stage", given=state, needed=self.state_dict())
        self.step = state["step"]
        self.parts = state["parts"] if self.step else 0
        self.credit.load_state_dict(state["credit"])
        self.objective.load_state_dict(state["objective"])
        self.learner.load_state_dict(state["learner"])
        self.sampler.load_state_dict(state["sampler"])
        self.entered = copy.deepcopy(state["sampler"])
        self.ending.load_state_dict(state["ending"])
        self.engine.version = self.session.first_step + self.step
