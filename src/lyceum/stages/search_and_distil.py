"""Search and distil (expert iteration): search with the policy as it is, fine-tune it on what was found, search again.

What the searches' trees say of unfinished paths trains the value model that guides the next round's searches.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Annotated, Any, Literal, Self, cast

import numpy as np
import torch
from pydantic import Field, model_validator

from lyceum.component import Tokens, of_kind, require_keys, slot
from lyceum.demonstrations import imitate
from lyceum.forest import build_forest
from lyceum.rooms import (
    Composition,
    CurriculumSettings,
    EngineSettings,
    GuidanceSettings,
    LearnerSettings,
    ObjectiveSettings,
    RewardSettings,
    RolloutSettings,
    StageSettings,
    TracesSettings,
    ValueSettings,
)
from lyceum.runtime.in_process import InProcess
from lyceum.stages.figures import rollout_figures, tokens_computed
from lyceum.stages.sampling import SamplingRun
from lyceum.stages.session import Session
from lyceum.traces.base import Trace, Traces, as_tree
from lyceum.tree import Tree, is_right
from lyceum.types import Curriculum, Guidance, Task, TrainableValue, ValueModel
from lyceum.utils.aio import gather
from lyceum.value.targets import Examples, Targets, examples_of


class SearchAndDistil(StageSettings):
    """Rounds of searching, fine-tuning the policy on the traces found, and fitting the value model to the trees.

    Source: ReST-MCTS*, arXiv:2406.03816, algorithm 1; without a value model expert iteration, as BFS-Prover's,
    arXiv:2502.03438.
    """

    kind: Literal["search-and-distil"] = "search-and-distil"
    steps: int = Field(default=60, ge=1)
    """Optimiser steps on traces, dealt out evenly to the rounds; those of a round without traces are passed over."""
    rounds: int = Field(default=3, ge=1)
    """Times that is searched and distilled."""
    tasks_per_round: int = Field(default=128, ge=1)
    """Tasks searched in a round."""
    traces_per_step: int = Field(default=32, ge=1)
    """Traces of one optimiser step, drawn without return until all were seen."""
    max_tokens: Tokens | None = None
    """No round begins once the stage has sampled this many tokens; for comparisons at equal cost."""
    max_tokens_per_task: Tokens | None = None
    """Tokens that one task may sample in one round, over all its rollouts."""
    start: Literal["current", "first"] = "current"
    """What a round's traces fine-tune: the policy that found them, or each time the weights that the stage began
    with, under a new optimiser."""
    buffer: int | None = Field(default=0, ge=0)
    """Traces of earlier rounds that are distilled beside a round's own, the newest; null keeps all (traces)."""
    curriculum: Annotated[CurriculumSettings, slot("curriculum", "uniform")] = of_kind("uniform")
    """Which tasks are drawn."""
    guidance: tuple[Annotated[GuidanceSettings, slot("guidance")], ...] = ()
    """Help where a rollout fails, or a test that leaves easy tasks out, the innermost first."""
    rollout: Annotated[RolloutSettings, slot("rollout", "value-mcts")] = of_kind("flat")
    """The search."""
    reward: tuple[Annotated[RewardSettings, slot("reward")], ...] | None = None
    """Parts of the outcome reward in this stage; by default the recipe's. Evaluation always takes the recipe's."""
    value: Annotated[ValueSettings, slot("value")] | None = None
    """What unfinished paths are worth to searches that ask; none by default."""
    targets: Targets | None = "process"
    """What a value model that can be trained learns of each path: a value inferred from its distance to a right answer,
    or the mean outcome below it; null leaves it as it is."""
    traces: Annotated[TracesSettings, slot("traces")] | None = of_kind("solutions")
    """What of the trees the policy is fine-tuned on; null leaves the policy as it is."""
    verified: bool = True
    """Leave out texts made of trees that the verifier does not find right; trajectories were graded as they stand."""
    objective: Annotated[ObjectiveSettings, slot("objective", "sft")] = of_kind("sft")
    """The loss of the fine-tuning."""
    learner: Annotated[LearnerSettings, slot("learner", "local")] = of_kind("local")
    """How the policy's weights are updated."""
    engine: Annotated[EngineSettings, slot("engine", "embedded")] = of_kind("embedded")
    """What samples."""

    @model_validator(mode="after")
    def _a_step_a_round(self) -> SearchAndDistil:
        if self.steps < self.rounds:
            raise ValueError(f"steps: got {self.steps} with rounds {self.rounds}; allowed: at least one step a round")
        return self

    def composition(self, reward: tuple[RewardSettings, ...] = ()) -> Composition:
        return Composition(
            steps=self.steps,
            max_tokens=self.max_tokens,
            max_tokens_per_task=self.max_tokens_per_task,
            curriculum=self.curriculum,
            guidance=self.guidance,
            rollout=self.rollout,
            reward=self.reward or reward,
            value=self.value,
            objective=self.objective,
        )

    def in_words(self) -> list[str]:
        distilled = f"{self.steps} steps of {self.traces_per_step} traces" if self.traces else "no fine-tuning"
        return [f"{self.rounds} rounds of {self.tasks_per_round} tasks", distilled]

    def check(self, stage: Composition) -> list[str]:
        lines = super().check(stage)
        if self.objective.kind != "sft":
            lines.append(f"objective.kind: got '{self.objective.kind}', but traces have no advantages; allowed: sft")
        trained = self.value is not None and self.targets is not None and self.value.trainable
        if self.traces is None and not trained:
            lines.append(
                "traces: got null, and there is no value model to train either; allowed: a kind of traces, or "
                "value.kind 'model' with targets"
            )
        return lines

    def with_budget(self, tokens: int, *, keep_steps: bool) -> Self:
        """The stage with as many rounds, of as many steps each, as tokens may last for at most; it ends with them."""
        rounds, steps = self.rounds, self.steps
        if not keep_steps and not self.learner.follows_steps:
            rounds = max(rounds, math.ceil(tokens / self.tasks_per_round))
            steps = self.steps * rounds // self.rounds
        return self.model_copy(update={"max_tokens": tokens, "rounds": rounds, "steps": steps})

    def build(self, session: Session) -> SearchAndDistilRun:
        return SearchAndDistilRun(self, session)


class SearchAndDistilRun(SamplingRun):
    """The loop and its state: what a round found is in it as soon as the round's first step is done."""

    def __init__(self, settings: SearchAndDistil, session: Session) -> None:
        self.settings, self.session = settings, session
        self.steps, self.step = settings.steps, 0
        self.sampled_before = session.counts.tokens_sampled
        self.seed = session.seed + 7919 * session.stage  # each stage draws its own
        self.objective = settings.objective.build()
        self.first = None if settings.start == "current" else [p.detach().clone() for p in self._trained()]
        self.learner = self._new_learner()
        self.engine = settings.engine.build(session.policy)
        self.engine.version = session.first_step
        self.curriculum: Curriculum = settings.curriculum.build(session.source, seed=self.seed, policy=session.policy)
        self.guidance: list[Guidance] = [guide.build(session.source, seed=self.seed) for guide in settings.guidance]
        self.rollout = reduce(lambda rollout, guide: guide(rollout), self.guidance, settings.rollout.build())
        self.value: ValueModel | None = None
        if settings.value is not None:
            self.value = settings.value.build(session.policy, seed=self.seed)
        if settings.traces is not None:
            settings.traces.check_policy(session.policy)
        self.trace: Traces | None = None if settings.traces is None else settings.traces.build()
        self.traces: list[Trace] = []
        self.runtime = InProcess(
            session.policy,
            self.engine,
            self._grader(),
            seed=self.seed,
            max_tokens_per_task=settings.max_tokens_per_task,
            value=self.value,
        )
        self._found: tuple[list[Tree], dict[str, Any]] | None = None  # by the round's search, until it is recorded

    def _trained(self) -> list[torch.nn.Parameter]:
        return [p for p in self.session.policy.module.parameters() if p.requires_grad]

    def _new_learner(self) -> Any:
        steps = self.steps if self.first is None else self.end_of(0)
        return self.settings.learner.build(self.session.policy, total_steps=steps, needs=frozenset())

    async def run(self) -> None:
        while self.step < self.steps and not (self.step == self.begin and self._spent()):
            if self.step == self.begin:
                await self.search()
            if self.traces:
                await self.distil()
            else:
                self.step = self.end_of(self.round)
                await self.record({})
            self.session.pause(self.step, self.steps, self.state_dict)
        self.learner.require_learnt()
        if self.value is not None and self.settings.value.trainable:
            cast(TrainableValue, self.value).save(self.session.run.value)

    async def search(self) -> None:
        """A round's trees, what they have to teach, and the value model fitted to them."""
        settings, session = self.settings, self.session
        tasks = self.curriculum.draw(settings.tasks_per_round)
        computed = tokens_computed(self.engine)
        with session.run.timed("generate"):
            trees = await self.runtime.run(
                tasks,
                self.rollout,
                key=("round", self.round),
                step=self.step,
                progress=self.progress,
                done=session.counter("searching", len(tasks)),
            )
        session.progress.phase("training")
        figures = rollout_figures(trees, (), build_forest(trees)) | await self.take(trees)
        with session.run.timed("train"):
            fitted = self.fit([example for tree in trees for example in self.examples(tree)])
        figures |= fitted
        for tree in trees:
            tree.mean_abs_advantage = 0.0  # there are none in fine-tuning
        for room in (self.curriculum, *self.guidance):
            room.observe(trees)
        self.count(trees)
        session.count_signal(bool(self.traces or fitted))
        figures["tokens_computed/step"] = tokens_computed(self.engine) - computed
        self._found = trees, figures | self.beliefs()
        if self.first is not None and self.traces:
            with torch.no_grad():
                for parameter, began in zip(self._trained(), self.first, strict=True):
                    parameter.copy_(began)
            self.learner.require_learnt()
            self.learner = self._new_learner()

    async def take(self, trees: Sequence[Tree]) -> dict[str, Any]:
        """The round's traces, with what the buffer keeps of those before them."""
        if self.trace is None:
            return {}
        made = self.trace(trees, self.session.policy.decode)
        tasks = {tree.task.id: tree.task for tree in trees}
        right = await gather(self.is_right(trace, tasks[trace.task]) for trace in made)
        found = [trace for trace, is_kept in zip(made, right, strict=True) if is_kept]
        kept = self.traces if self.settings.buffer is None else self.traces[: self.settings.buffer]
        self.traces = [*found, *kept]
        return {
            "traces/found": len(found),
            "traces/not_right": len(made) - len(found),
            "traces/tasks": len({trace.task for trace in found}),
            "traces/distilled": len(self.traces),
        }

    async def is_right(self, trace: Trace, task: Task) -> bool:
        """Whether a trace may be distilled: as the verifier says of a text that was made of a tree."""
        if trace.tokens is not None or not self.settings.verified:
            return True
        leaf = as_tree(trace, self.session.policy).trajectories[0]
        (leaf.grade,) = await self.runtime.grader(task, [leaf])
        return is_right(leaf)

    def examples(self, tree: Tree) -> Examples:
        return [] if self.settings.targets is None else examples_of(tree, self.settings.targets)

    def fit(self, examples: Examples) -> dict[str, Any]:
        if self.settings.targets is None or self.value is None or not self.settings.value.trainable:
            return {}
        figures = cast(TrainableValue, self.value).fit(examples)
        return {f"value/{name}": figure for name, figure in figures.items()}

    async def distil(self) -> None:
        """One optimiser step on traces."""
        session = self.session
        started = time.perf_counter()
        with session.training(self.learner):
            trees = [as_tree(trace, session.policy) for trace in self.batch()]
            figures: dict[str, Any] = imitate(self.learner, trees, self.objective)
        self.step += 1
        await self.engine.load(self.learner.weights(), version=session.first_step + self.step)
        session.counts.tokens_trained += int(figures["tokens_trained"])
        figures["tokens_per_second"] = figures["tokens_trained"] / (time.perf_counter() - started)
        await self.record(figures)

    def batch(self) -> list[Trace]:
        """The step's traces: an order of their own for each round and each pass over its traces."""
        size = min(self.settings.traces_per_step, len(self.traces))
        first = (self.step - self.begin) * size
        places = [divmod(number, len(self.traces)) for number in range(first, first + size)]
        orders = {
            number: np.random.default_rng([self.seed, self.round, number]).permutation(len(self.traces))
            for number in {number for number, _ in places}
        }
        return [self.traces[int(orders[number][place])] for number, place in places]

    async def record(self, figures: dict[str, Any]) -> None:
        settings, session = self.settings, self.session
        step = session.first_step + self.step
        trees, of_round = self._found or ([], {})
        self._found = None
        session.digest(step, trees, figures)
        figures = {**of_round, **figures}
        figures |= {name: getattr(session.counts, name) for name in ("tokens_sampled", "tokens_trained")}
        figures["skipped_steps"] = self.learner.skipped_steps
        if session.exam and session.due(self.step, session.exam.every, self.steps):
            await session.evaluate(self.engine, figures)
        session.run.record(step, {"stage": settings.kind, **figures})
        if trees:
            session.run.rollouts(step, trees, None, session.policy.decode, always=True)
        if settings.max_tokens is not None:
            last = math.ceil(self.step * settings.max_tokens / max(1, self._sampled))
            session.progress.total = session.first_step + min(self.steps, max(self.step, last))
        session.progress.step(step, figures)

    # Rounds are told by the step alone: which one is under way, and that its search is done where a step of it is. ---

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

    def state_dict(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "sampled_before": self.sampled_before,
            "learner": self.learner.state_dict(),
            "first": self.first,
            "curriculum": self.curriculum.state_dict(),
            "guidance": [guide.state_dict() for guide in self.guidance],
            "value": None if self.value is None else self.value.state_dict(),
            "traces": [trace.state_dict() for trace in self.traces],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        require_keys("stage", given=state, needed=self.state_dict())
        self.step, self.sampled_before = state["step"], state["sampled_before"]
        self.learner.load_state_dict(state["learner"])
        self.first = state["first"]
        self.curriculum.load_state_dict(state["curriculum"])
        for guide, saved in zip(self.guidance, state["guidance"], strict=True):
            guide.load_state_dict(saved)
        if self.value is not None:
            self.value.load_state_dict(state["value"])
        self.traces = [Trace.from_state(trace) for trace in state["traces"]]
        self.engine.version = self.session.first_step + self.step
