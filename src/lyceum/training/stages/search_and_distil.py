"""Search and distil (expert iteration): search with the current policy, fine-tune it on the results, search again.

The searches' trees also train the value model that guides the next round's searches.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import closing
from typing import Annotated, Any, ClassVar, Literal, Self, cast

import numpy as np
from pydantic import Field, model_validator

from lyceum.core.component import Tokens, of_kind, slot
from lyceum.core.forest import build_forest
from lyceum.core.group import Group
from lyceum.core.settings import (
    Composition,
    CurriculumSettings,
    EngineSettings,
    EnvironmentSettings,
    GuidanceSettings,
    LearnerSettings,
    Left,
    ObjectiveSettings,
    RewardSettings,
    RolloutSettings,
    RuntimeSettings,
    StageSettings,
    TracesSettings,
    ValueSettings,
)
from lyceum.core.tree import Tree, is_correct
from lyceum.core.types import Example, Learner, State, Task, Trace, Traces, TrainableValue
from lyceum.models.demonstrations import demonstrated
from lyceum.training.stages._metrics import rollout_metrics
from lyceum.training.stages._sampling import Sampler
from lyceum.training.stages.session import Session, StageLoop
from lyceum.training.stages.stopping import Ending, UntilHeldOut, ends_in_words
from lyceum.utils.aio import gather
from lyceum.utils.lazy_imports import torch
from lyceum.value.targets import Targets, examples_of
from lyceum.value.training import TrainedValueSettings


class SearchAndDistil(StageSettings):
    """Rounds of searching, fine-tuning the policy on the traces found, and fitting the value model to the trees.

    Source: ReST-MCTS*, arXiv:2406.03816, algorithm 1; without a value model expert iteration, as BFS-Prover's,
    arXiv:2502.03438.
    """

    requires: ClassVar = ("imitation",)

    kind: Literal["search-and-distil"] = "search-and-distil"
    steps: int = Field(default=60, ge=1)
    """Optimiser steps on traces, divided evenly among the rounds; those of a round without traces are skipped."""
    rounds: int = Field(default=3, ge=1)
    """Number of rounds of search and distillation."""
    until: UntilHeldOut | None = None
    """Early stopping: when held-out accuracy reaches a target, or no longer rises."""
    tasks_per_round: int = Field(default=128, ge=1)
    """Tasks searched per round."""
    traces_per_step: int = Field(default=32, ge=1)
    """Traces per optimiser step, drawn without replacement until all were seen."""
    max_tokens: Tokens | None = None
    """Sampled tokens after which no further round begins; for comparisons at equal cost."""
    max_tokens_per_task: Tokens | None = None
    """Maximum sampled tokens per task and round, over all its rollouts."""
    start: Literal["current", "first"] = "current"
    """Weights that a round fine-tunes: the current policy's, or each time those that the stage began with, under a new
    optimiser."""
    buffer: int | None = Field(default=0, ge=0)
    """Number of traces from earlier rounds, newest first, that are distilled beside a round's own; null keeps all."""
    curriculum: Annotated[CurriculumSettings, slot("curriculum", "uniform")] = of_kind("uniform")
    """Which tasks are drawn."""
    guidance: tuple[Annotated[GuidanceSettings, slot("guidance")], ...] = ()
    """Guidance where a rollout fails, or a test that leaves easy tasks out, innermost first."""
    rollout: Annotated[RolloutSettings, slot("rollout", "value-mcts")] = of_kind("flat")
    """The search."""
    reward: tuple[Annotated[RewardSettings, slot("reward")], ...] | None = None
    """Parts of the outcome reward in this stage; by default the recipe's. Evaluation always uses the recipe's."""
    value: Annotated[ValueSettings, slot("value")] | None = None
    """Value model of unfinished paths, for searches that need one; none by default."""
    targets: Targets | None = "process"
    """Targets of a trainable value model: values inferred from the distance to a correct answer, or the mean outcome
    below each path; null does not train it."""
    traces: Annotated[TracesSettings, slot("traces")] | None = of_kind("solutions")
    """Traces of the trees that the policy is fine-tuned on; null does not train the policy."""
    verified: bool = True
    """Leave out texts made of trees that the verifier does not grade correct; trajectories were graded already."""
    objective: Annotated[ObjectiveSettings, slot("objective", "sft")] = of_kind("sft")
    """The loss of the fine-tuning."""
    learner: Annotated[LearnerSettings, slot("learner", "local")] = of_kind("local")
    """How the policy's weights are updated."""
    engine: Annotated[EngineSettings, slot("engine", "embedded")] = of_kind("embedded")
    """What samples."""
    runtime: Annotated[RuntimeSettings, slot("runtime", "in-process")] = of_kind("in-process")
    """Where trees grow."""

    @model_validator(mode="after")
    def _a_step_a_round(self) -> SearchAndDistil:
        if self.steps < self.rounds:
            raise ValueError(f"steps: got {self.steps} with rounds {self.rounds}; allowed: at least one step a round")
        return self

    @property
    def leaves(self) -> frozenset[Left]:
        trained = self.value is not None and self.targets is not None and "value-training" in self.value.offers
        return frozenset[Left]({"value"} if trained else ())

    def in_words(self) -> list[str]:
        distilled = f"{self.steps} steps of {self.traces_per_step} traces" if self.traces else "no fine-tuning"
        return [f"{self.rounds} rounds of {self.tasks_per_round} tasks", distilled, *ends_in_words(self.until)]

    def check(self, stage: Composition) -> list[str]:
        lines = super().check(stage)
        if any(isinstance(part, EnvironmentSettings) for part in self.rollout.components()):
            lines.append(
                f"rollout.kind: got '{self.rollout.kind}', whose turns an environment answers, but traces are of one "
                "turn; allowed: a search"
            )
        loss = self.value.loss if self.leaves and isinstance(self.value, TrainedValueSettings) else "mse"
        if loss in ("sum", "pairwise"):
            lines.append(
                f"value.loss: got '{loss}', but targets are values of paths; allowed: mse, bce, or stage kind "
                "'reward-model'"
            )
        if self.traces is None and not self.leaves:
            lines.append(
                "traces: got null, and there is no value model to train either; allowed: a kind of traces, or "
                "value.kind 'model' with targets"
            )
        return lines

    def with_budget(self, tokens: int, *, keep_steps: bool) -> Self:
        """The stage with as many rounds as the tokens may last at most, the steps per round kept; it ends with the
        budget."""
        rounds, steps = self.rounds, self.steps
        if not keep_steps and not self.learner.follows_steps:
            rounds = max(rounds, math.ceil(tokens / self.tasks_per_round))
            steps = self.steps * rounds // self.rounds
        return self.model_copy(update={"max_tokens": tokens, "rounds": rounds, "steps": steps})

    def build(self, session: Session) -> SearchAndDistilRun:
        return SearchAndDistilRun(self, session)


class SearchAndDistilRun(StageLoop):
    """The loop and its state, which holds a round's traces once the round's first step is done."""

    stateful = ("learner", "sampler", "ending")

    def __init__(self, settings: SearchAndDistil, session: Session) -> None:
        self.settings, self.session = settings, session
        self.steps, self.step = settings.steps, 0
        self.objective = settings.objective.build()
        self.first = None if settings.start == "current" else [p.detach().clone() for p in self._trained()]
        self.learner = self._new_learner()
        self.sampler = Sampler(settings, session, learner=self.learner)
        self.engine = self.sampler.engine
        self.ending = Ending(settings.until)
        if settings.traces is not None:
            settings.traces.check_policy(session.policy)
        self.trace: Traces | None = None if settings.traces is None else settings.traces.build()
        self.traces: list[Trace] = []
        self._found: tuple[list[Tree], dict[str, Any]] | None = None  # by the round's search, until it is recorded

    def _trained(self) -> list[torch.nn.Parameter]:
        return [p for p in self.session.policy.module.parameters() if p.requires_grad]

    def _new_learner(self) -> Learner:
        steps = self.steps if self.first is None else self.end_of(0)
        return self.settings.learner.build(self.session.policy, total_steps=steps, needs=frozenset())

    async def run(self) -> None:
        with closing(self.sampler.runtime):
            while self.step < self.steps and not self.ended_by:
                if self.step == self.begin:
                    await self.search()
                if self.traces:
                    await self.distil()
                else:
                    self.step = self.end_of(self.round)
                    # The same weights, but what the engine has cached of this round a resumed run would not have.
                    await self.engine.load(self.learner.weights(), version=self.session.first_step + self.step)
                    await self.record({})
                self.session.pause(self.step, self.steps, self.state_dict)
        self.learner.require_learnt()
        if self.settings.value is not None and "value-training" in self.settings.value.offers:
            folder = self.session.folder(self.settings.name)
            cast(TrainableValue, self.sampler.growing.value).save(folder / "value")

    @property
    def ended_by(self) -> str:
        return self.ending.why or (self.sampler.spent_by if self.step == self.begin else "")

    async def search(self) -> None:
        """Grow a round's trees, make traces of them, and fit the value model to them."""
        session = self.session
        key = ("round", self.round)
        trees = await self.sampler.sample(self.settings.tasks_per_round, key=key, step=self.step, phase="searching")
        session.progress.phase("training")
        forest = build_forest(trees, decode=session.policy.decode)
        metrics = rollout_metrics(trees, forest) | await self.take(trees)
        with session.run.timed("train"):
            fitted = self.fit([example for tree in trees for example in self.examples(tree)])
        for tree in trees:
            tree.mean_abs_advantage = 0.0  # there are none in fine-tuning
        self.sampler.observe(trees)
        self._found = trees, metrics | fitted | self.sampler.count(trees)
        session.count_signal(bool(self.traces or fitted))
        if self.first is not None and self.traces:
            with torch.no_grad():
                for parameter, began in zip(self._trained(), self.first, strict=True):
                    parameter.copy_(began)
            self.learner.require_learnt()
            self.learner = self._new_learner()

    async def take(self, trees: Sequence[Tree]) -> dict[str, Any]:
        """Make the round's traces, and add the buffered ones of earlier rounds."""
        if self.trace is None:
            return {}
        made = self.trace(trees, self.session.policy.decode)
        tasks = {tree.task.id: tree.task for tree in trees}
        right = await gather(self.is_correct(trace, tasks[trace.task]) for trace in made)
        found = [trace for trace, is_kept in zip(made, right, strict=True) if is_kept]
        kept = self.traces if self.settings.buffer is None else self.traces[: self.settings.buffer]
        self.traces = [*found, *kept]
        return {
            "traces/found": len(found),
            "traces/not_right": len(made) - len(found),
            "traces/tasks": len({trace.task for trace in found}),
            "traces/steps_left_out": sum(len(trace.given) for trace in found),
            "traces/distilled": len(self.traces),
        }

    async def is_correct(self, trace: Trace, task: Task) -> bool:
        """Whether a trace may be distilled: a text made of a tree must be graded correct by the verifier."""
        if trace.tokens is not None or not self.settings.verified:
            return True
        (leaf,) = demonstrated(self.session.policy, trace).trajectories
        await self.sampler.growing.here.grade(task, [leaf], key="trace")
        return is_correct(leaf)

    def examples(self, tree: Tree) -> list[Example]:
        return [] if self.settings.targets is None else examples_of(tree, self.settings.targets)

    def fit(self, examples: list[Example]) -> dict[str, Any]:
        if not self.settings.leaves:
            return {}
        metrics = cast(TrainableValue, self.sampler.growing.value).fit(examples)
        return {f"value/{name}": value for name, value in metrics.items()}

    async def distil(self) -> None:
        """One optimiser step on traces."""
        session = self.session
        trees = [demonstrated(session.policy, trace) for trace in self.batch()]
        metrics = session.imitate(self.learner, trees, self.objective)
        self.step += 1
        await self.engine.load(self.learner.weights(), version=session.first_step + self.step)
        await self.record(metrics)

    def batch(self) -> list[Trace]:
        """The step's traces, in a new order for each round and each pass over its traces."""
        size = min(self.settings.traces_per_step, len(self.traces))
        first = (self.step - self.begin) * size
        places = [divmod(number, len(self.traces)) for number in range(first, first + size)]
        orders = {
            number: np.random.default_rng([self.session.stage_seed, self.round, number]).permutation(len(self.traces))
            for number in {number for number, _ in places}
        }
        return [self.traces[int(orders[number][place])] for number, place in places]

    async def record(self, metrics: dict[str, Any]) -> None:
        session, step = self.session, self.session.first_step + self.step
        trees, of_round = self._found or ([], {})
        self._found = None
        session.digest(step, trees, metrics)
        expected = self.sampler.expected_steps(self.step)
        self.ending.observe(await session.finish_step(self, {**of_round, **metrics}, expected_steps=expected))
        if trees:
            session.run.rollouts(step, trees, None, session.policy.decode, always=True)
            session.trees(self.step, [Group(tree) for tree in trees], always=True)

    # The round follows from the step alone; its search is done once one of its steps is. ---

    def end_of(self, number: int) -> int:
        """The step after which a round (from 0) is over."""
        return self.steps * (number + 1) // self.settings.rounds

    @property
    def round(self) -> int:
        """Number of the round that the next step belongs to."""
        return next((n for n in range(self.settings.rounds) if self.step < self.end_of(n)), self.settings.rounds)

    @property
    def begin(self) -> int:
        """The step with which that round begins."""
        return self.end_of(self.round - 1)

    def own_state(self) -> dict[str, Any]:
        return {
            "version": self.engine.version,  # not the step's where no weight has changed
            "first": self.first,
            "traces": [trace.state_dict() for trace in self.traces],
        }

    def load_own_state(self, state: State) -> None:
        self.first = state["first"]
        self.traces = [Trace.from_state(trace) for trace in state["traces"]]
        self.engine.version = state["version"]
