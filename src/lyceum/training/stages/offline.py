"""Offline training on trajectories that are there before its first update: just sampled, or recorded by a run."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from contextlib import closing
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field

from lyceum.core.component import Tokens, of_kind, slot
from lyceum.core.forest import Forest
from lyceum.core.group import Group, flatten
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
    RuntimeSettings,
    StageSettings,
    ValueSettings,
)
from lyceum.core.types import Credited, Sampling, State, StepMetrics
from lyceum.models.frozen import ReferenceSettings, TeacherSettings
from lyceum.objective.base import Terms
from lyceum.training.stages._gathered import GatheredGroups
from lyceum.training.stages._groups import GroupFilter
from lyceum.training.stages._metrics import rollout_metrics
from lyceum.training.stages._sampling import Sampler
from lyceum.training.stages.method import Method
from lyceum.training.stages.models import learner_of, scored_under
from lyceum.training.stages.session import Session, StageLoop
from lyceum.training.stages.stopping import Ending, UntilHeldOut, ends_in_words, steps_in_words
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
    collect: GroupFilter = GroupFilter()
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
    mask_truncated: bool = False
    """Leave completions that a token limit ended out of the loss. They are graded, and the others of their group are
    compared with them, all the same."""
    reference: ReferenceSettings | None = None
    """The reference of KL penalties and preference losses: ``{average: [...]}`` of several models' weights, such as
    ``policy`` and ``{from_stage: NAME}``; null: the policy that enters the stage."""
    teacher: TeacherSettings | None = None
    """Frozen model to learn from, for objectives and credits that read one: its path, or path and dtype."""
    learner: Annotated[LearnerSettings, slot("learner", "local")] = of_kind("local")
    """How weights are updated."""
    engine: Annotated[EngineSettings, slot("engine", "embedded")] = of_kind("embedded")
    """What samples."""
    runtime: Annotated[RuntimeSettings, slot("runtime", "in-process")] = of_kind("in-process")
    """Where trees grow."""

    guidance: ClassVar[tuple[GuidanceSettings, ...]] = ()
    """Always empty: guides observe trees with their notes in memory, and an offline stage reads its trees from disk."""

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

    off_policy: ClassVar[bool] = False

    def with_ratios(self, forest: Forest) -> Forest:
        """The forest with ``old_logprob`` replaced where ratios are not relative to the start of the step."""
        if self.ratio == "step" or self.data.given:
            return forest
        return forest.with_columns(old_logprob=torch.nan_to_num(forest.behaviour_logprob, nan=0.0))

    def with_budget(self, tokens: int, *, keep_steps: bool) -> Self | None:
        """The stage with as many tasks as the tokens may last at most; its steps are kept."""
        if not self.data.samples:
            return None
        data = self.data if keep_steps else self.data.with_budget(self.composition().trajectories or 1, tokens)
        return self.model_copy(update={"max_tokens": tokens, "data": data})

    def build(self, session: Session) -> OfflineRun:
        return OfflineRun(self, session)


class OfflineRun(StageLoop):
    """The loop and its state."""

    stateful = ("credit", "objective", "learner", "ending")

    def __init__(self, settings: Offline, session: Session) -> None:
        self.settings, self.session = settings, session
        self.steps, self.step = settings.steps, 0
        self.method = method = Method.of(settings, session.reward)
        self.objective, self.credit = method.objective, method.credit
        needs = method.needs | scored_under(settings)
        self.learner = learner_of(settings, [session.policy], needs, settings.steps, session.run.stages)
        constraint = settings.sampling.constraint
        self.constraint = None if constraint is None else constraint.build(session.policy)
        self.sampler = Sampler(settings, session, learner=self.learner)
        self.engine = self.sampler.engine
        self.ending = Ending(settings.until)
        self.data = GatheredGroups(self)
        self.entered = copy.deepcopy(self.sampler.state_dict())
        """State of the sampler before it has sampled."""
        self.metrics: StepMetrics = {}
        """Of the data, until they are recorded with the first step."""

    async def run(self) -> None:
        if not self.step:
            with closing(self.sampler.runtime):
                await self.data.gather()
        trees = self.data.read_all()
        if not self.step:
            self.metrics = self.data.count(trees)
        self.data.require_groups(len(trees))
        while not self.over:
            groups = self.batch()
            forest = self.flatten(groups)
            with self.session.training(self.learner):
                credited, metrics = self.method.update(self.learner, forest)
            self.step += 1
            await self.engine.load(self.learner.weights(), version=self.session.first_step + self.step)
            await self.record(groups, forest, credited, metrics)
            self.session.pause(self.step, self.last, self.state_dict)
        with self.method.learning():
            self.learner.require_learnt()

    @property
    def steps_per_pass(self) -> int:
        return math.ceil(len(self.data.groups) / self.settings.tasks_per_step)

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

    def batch(self) -> list[Group]:
        """The step's groups: the next ones of its pass, whose order follows from the stage's seed and its number."""
        number, place = divmod(self.step, self.steps_per_pass)
        order = np.random.default_rng([self.session.stage_seed, number]).permutation(len(self.data.groups))
        size = self.settings.tasks_per_step
        return [self.data.groups[int(index)] for index in order[place * size : (place + 1) * size]]

    def flatten(self, groups: Sequence[Group]) -> Forest:
        self.session.show(groups)
        return flatten(
            groups,
            decode=self.session.policy.decode,
            temperature=self.settings.sampling.usual_temperature or 1.0,
            steps=self.settings.credit.reads_steps,
            constraint=self.constraint,
        )

    async def record(self, groups: Sequence[Group], forest: Forest, credited: Credited, metrics: StepMetrics) -> None:
        session, step = self.session, self.session.first_step + self.step
        trees = [group.tree for group in groups]
        session.digest(step, trees, metrics, forest=forest, credited=credited)
        metrics = self.metrics | rollout_metrics(trees, forest) | metrics
        self.metrics = {}
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
        session.rollouts(step, groups, forest, credited, always=self.over)

    def own_state(self) -> dict[str, Any]:
        return {"parts": self.data.parts, "sampler": self.sampler.state_dict() if self.step else self.entered}

    def load_own_state(self, state: State) -> None:
        self.data.parts = state["parts"] if self.step else 0
        self.sampler.load_state_dict(state["sampler"])
        self.entered = copy.deepcopy(state["sampler"])
