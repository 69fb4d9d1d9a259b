"""Training of reward models: sample with the policy, grade, fit the model, and measure it on tasks held out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import closing
from typing import Annotated, Any, ClassVar, Literal, Self, cast

from pydantic import Field, model_validator

from lyceum.core.component import Tokens, of_kind, slot
from lyceum.core.forest import build_forest
from lyceum.core.group import Group
from lyceum.core.needs import Need
from lyceum.core.settings import (
    CurriculumSettings,
    EngineSettings,
    GuidanceSettings,
    LearnerSettings,
    Left,
    RewardSettings,
    RolloutSettings,
    RuntimeSettings,
    StageSettings,
    ValueSettings,
)
from lyceum.core.spans import TokenEnds
from lyceum.core.steps import Steps
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Example, Judgement, MarkedPath, State, TrainableValue
from lyceum.reward.extract import WHOLE, Extract
from lyceum.reward.model import answer_path
from lyceum.training.stages._metrics import rollout_metrics
from lyceum.training.stages._sampling import Sampler
from lyceum.training.stages.session import Session, StageLoop
from lyceum.utils.errors import NothingLearnt, RecipeError, nearest
from lyceum.utils.numbers import mean
from lyceum.value.labels import Factor, Labels, examples_for, judged_ends, outcome_of, pairs_of
from lyceum.value.measures import auc, best_threshold, detected
from lyceum.value.training import TrainedValueSettings


class RewardModel(StageSettings):
    """Trains the model in ``value``; the policy stays as it is. Later stages take it over by this stage's name, as a
    reward (``reward: model``), as the guide of a search, or as a filter of samples.

    The step checks of a verifier measure the model, and never measure one that was fitted to them.
    """

    requires: ClassVar = (
        "value-training",
        Need("company", when=lambda own: own.labels == "pairs", line="labels 'pairs' compares the samples of a task"),
    )
    refuses: ClassVar = ("unfinished",)

    kind: Literal["reward-model"] = "reward-model"
    steps: int = Field(default=20, ge=1)
    """Rounds of sampling and fitting."""
    tasks_per_step: int = Field(default=64, ge=2)
    """Tasks per round."""
    held_out: float = Field(default=0.125, ge=0, lt=1)
    """Share of a round's tasks, rounded, that the model is measured on and never fitted to; 0 measures nothing."""
    labels: Labels = "outcome"
    """What it learns. ``outcome``: the verdict of whole trajectories; ``steps``: the grader's judgement of each step
    (a rule of the tasks, or another reward part); ``mean-outcome``: the share of correct trajectories below each node
    of the tree (Monte Carlo estimates); ``process``: ReST-MCTS*'s values of steps; ``progress``: contributions of steps
    that add up to the outcome (loss ``sum``); ``pairs``: which of two trajectories of a task is better (loss
    ``pairwise``)."""
    factors: tuple[Factor, ...] = Field(default=(Factor(),), min_length=1)
    """For ``pairs``: by what two trajectories are compared, the most important first."""
    pairs_per_task: int = Field(default=16, ge=1)
    """Maximum pairs of one task in a round."""
    shown: Extract = WHOLE
    """For ``outcome`` and ``pairs``: the part of a completion that the model is shown below the prompt: ``whole``, or
    the answer alone, without the reasoning before it (as reward ``model`` then shows it)."""
    step: Steps = Steps(by="lines")
    """For ``progress``: where a step ends."""
    max_tokens: Tokens | None = None
    """Sampled tokens after which the stage ends, even before its rounds are done; for comparisons at equal cost."""
    max_tokens_per_task: Tokens | None = None
    """Maximum sampled tokens per task and round, over all its rollouts."""
    curriculum: Annotated[CurriculumSettings, slot("curriculum", "uniform")] = of_kind("uniform")
    """Which tasks are drawn."""
    guidance: tuple[Annotated[GuidanceSettings, slot("guidance")], ...] = ()
    """Guidance of the rollout, innermost first."""
    rollout: Annotated[RolloutSettings, slot("rollout", "flat")] = of_kind("flat")
    """How a task's tree grows."""
    reward: tuple[Annotated[RewardSettings, slot("reward")], ...] | None = None
    """Parts of the outcome reward in this stage; by default the recipe's. Evaluation always uses the recipe's."""
    value: Annotated[ValueSettings, slot("value", "model")] = of_kind("model")
    """The reward model."""
    learner: Annotated[LearnerSettings, slot("learner", "local")] = of_kind("local")
    """Holds the policy's weights, which stay as they are; ``value.lr`` is the model's learning rate."""
    engine: Annotated[EngineSettings, slot("engine", "embedded")] = of_kind("embedded")
    """What samples."""
    runtime: Annotated[RuntimeSettings, slot("runtime", "in-process")] = of_kind("in-process")
    """Where trees grow."""

    @model_validator(mode="after")
    def _loss_fits_labels(self) -> Self:
        loss = self.value.loss if isinstance(self.value, TrainedValueSettings) else None
        needs = {"pairs": "pairwise", "progress": "sum"}
        wanted = needs.get(self.labels)
        if loss is not None and (loss != wanted if wanted is not None else loss in needs.values()):
            raise ValueError(
                f"value.loss: got {loss!r} with labels {self.labels!r}; allowed: {wanted or 'mse or bce'} with them"
            )
        return self

    @model_validator(mode="after")
    def _shows_what_is_labelled(self) -> Self:
        if self.shown.form != "whole" and self.labels not in ("outcome", "pairs"):
            raise ValueError(f"shown: got {self.shown.form!r} with labels {self.labels!r}; allowed: outcome or pairs")
        return self

    @property
    def leaves(self) -> frozenset[Left]:
        return frozenset[Left]({"value"} if "value-training" in self.value.offers else ())

    def in_words(self) -> list[str]:
        return [f"{self.steps} rounds of {self.tasks_per_step} tasks", f"{self.labels} fitted to {self.value.kind}"]

    def with_budget(self, tokens: int, *, keep_steps: bool) -> Self:
        steps = self.steps if keep_steps else max(self.steps, math.ceil(tokens / self.tasks_per_step))
        return self.model_copy(update={"max_tokens": tokens, "steps": steps})

    def build(self, session: Session) -> RewardModelRun:
        return RewardModelRun(self, session)


class RewardModelRun(StageLoop):
    """The loop and its state."""

    stateful = ("learner", "sampler")

    def __init__(self, settings: RewardModel, session: Session) -> None:
        self.settings, self.session = settings, session
        self.steps, self.step = settings.steps, 0
        self.fitted = 0
        """Examples that the model was fitted to so far."""
        self.learner = settings.learner.build(session.policy, total_steps=settings.steps, needs=frozenset())
        self.sampler = Sampler(settings, session, learner=self.learner)
        self.engine = self.sampler.engine
        self.model = cast(TrainableValue, self.sampler.growing.value)

    async def run(self) -> None:
        with closing(self.sampler.runtime):
            while self.step < self.steps and not self.ended_by:
                await self.round()
                self.session.pause(self.step, self.steps, self.state_dict)
        if not self.fitted:
            cause = "no two trajectories of a task differed" if self.settings.labels == "pairs" else "none had a label"
            raise NothingLearnt(
                f"stages.{self.settings.name}: the reward model was fitted to nothing, so that what it pays would mean "
                f"nothing: {cause} by {self.settings.labels!r}; needed: more samples per task or rounds, a smaller "
                "margin, or tasks that are solved sometimes"
            )
        self.model.save(self.session.folder(self.settings.name) / "value")

    @property
    def ended_by(self) -> str:
        return self.sampler.spent_by

    async def round(self) -> None:
        """Sample and grade, fit the model to most of the tasks, measure it on the others."""
        session, of = self.session, self.settings
        key = ("round", self.step)
        trees = await self.sampler.sample(of.tasks_per_step, key=key, step=self.step, phase="sampling")
        kept = max(0, min(round(of.held_out * len(trees)), len(trees) - 1))
        held_out, fitted = trees[:kept], trees[kept:]
        session.progress.phase("training")
        with session.run.timed("train"):
            examples, decided = self.examples(fitted)
            if of.labels == "steps" and not examples and any(tree.graded for tree in fitted):
                raise RecipeError(
                    "labels: got 'steps', but the grader judged none in a round; allowed: tasks whose grader judges "
                    "steps (chain), reward.kind 'steps' where a rule does, a judge whose replies can be read "
                    "('segment-errors'), or labels mean-outcome"
                )
            if not self.fitted:
                self._require_factors(trees)
            metrics = {f"value/{name}": number for name, number in self.model.fit(examples).items()}
            self.fitted += len(examples)
            metrics |= {f"labels/factor/{place + 1}": decided.count(place) for place in sorted(set(decided))}
            metrics |= {f"held_out/{name}": number for name, number in self.measured(held_out).items()}
        for tree in trees:
            tree.mean_abs_advantage = 0.0  # there are none: the policy does not learn
        self.sampler.observe(trees)
        self.step += 1
        # The same weights, but what the engine has cached of this round a resumed run would not have.
        await self.engine.load(self.learner.weights(), version=session.first_step + self.step)
        step, forest = session.first_step + self.step, build_forest(trees, decode=session.policy.decode)
        session.digest(step, trees, metrics)
        metrics |= rollout_metrics(trees, forest) | self.sampler.count(trees)
        session.count_signal(bool(examples))
        await session.finish_step(self, metrics, expected_steps=self.sampler.expected_steps(self.step))
        session.run.rollouts(step, trees, None, session.policy.decode, always=self.step == self.steps)
        session.trees(self.step, [Group(tree) for tree in trees], always=True)

    def _require_factors(self, trees: Sequence[Tree]) -> None:
        """Raise NothingLearnt where trajectories are graded and none has a part that pairs are compared by."""
        leaves = [leaf for tree in trees for leaf in tree.graded]
        for factor in self.settings.factors if self.settings.labels == "pairs" and leaves else ():
            if all(factor.of(leaf) is None for leaf in leaves):
                parts = sorted({part for leaf in leaves if leaf.grade for part in leaf.grade.parts})
                raise NothingLearnt(
                    f"stages.{self.settings.name}.factors: got {factor.by!r}, which no grade of a round has"
                    f"{nearest(factor.by, parts)}; needed: a grader that gives it, or one of "
                    f"{', '.join(['outcome', 'tokens', *parts])}"
                )

    def examples(self, trees: Sequence[Tree]) -> tuple[list[Example], list[int]]:
        """What is learnt from trees, and the place of the factor that decided each pair."""
        of, decode = self.settings, self.session.policy.decode
        if of.labels != "pairs":
            return [one for tree in trees for one in examples_for(tree, of.labels, decode, of.step, self.shown)], []
        found = [pairs_of(tree, of.factors, of.pairs_per_task, self.shown) for tree in trees]
        return [one for examples, _ in found for one in examples], [place for _, places in found for place in places]

    def shown(self, leaf: Node) -> list[int]:
        """The tokens of a trajectory that the model is shown."""
        shown = self.settings.shown
        return leaf.path_tokens() if shown.form == "whole" else answer_path(leaf, shown, self.session.policy.encode)

    def measured(self, trees: Sequence[Tree]) -> dict[str, float]:
        """Loss on the labels of trees, the area under the ROC curve of the outcomes, and, where the grader judges steps
        that the model was not fitted to, how well it finds wrong ones."""
        examples, _ = self.examples(trees)
        if not examples:
            return {}
        metrics = {"loss": mean(self.model.losses(examples))}
        graded = MarkedTrees(trees, self.session.policy.decode)
        alone = [MarkedPath(self.shown(leaf), len(leaf.root.tokens), ()) for leaf in graded.leaves]
        of_answers = self.settings.shown.form != "whole"
        said = self.model.judge(alone if of_answers else graded.paths)
        area = auc([judged.outcome for judged in said], [outcome_of(leaf) > 0.5 for leaf in graded.leaves])
        metrics |= {} if area is None else {"auc": area}
        unseen = self.settings.labels == "steps" or of_answers
        return metrics | ({} if unseen else graded.step_errors(said))

    def own_state(self) -> dict[str, Any]:
        return {"fitted": self.fitted}

    def load_own_state(self, state: State) -> None:
        self.fitted = state["fitted"]


class MarkedTrees:
    """Trees' graded trajectories, marked where the grader judged their steps."""

    def __init__(self, trees: Sequence[Tree], decode: Any) -> None:
        ends = TokenEnds(decode)
        self.leaves = [leaf for tree in trees for leaf in tree.graded if leaf.root is tree.root]
        self.right = [[step.reward > 0.5 for step in leaf.grade.steps] for leaf in self.leaves if leaf.grade]
        self.paths = [
            MarkedPath(leaf.path_tokens(), len(leaf.root.tokens), judged_ends(leaf, leaf.grade.steps, ends))
            for leaf in self.leaves
            if leaf.grade
        ]

    def step_errors(self, said: Sequence[Judgement]) -> dict[str, float]:
        """F1 of the steps called wrong, at the threshold chosen on the first half of the trajectories and used on the
        second; the area under the ROC curve of all steps."""
        half = len(said) // 2
        scores = [list(judged.steps) for judged in said]
        chosen, used = (
            ([x for of in scores[part] for x in of], [x for of in self.right[part] for x in of])
            for part in (slice(half), slice(half, None))
        )
        found = detected(*used, best_threshold(*chosen))
        area = auc([*chosen[0], *used[0]], [*chosen[1], *used[1]])
        metrics = {} if area is None else {"step_auc": area}
        return metrics if found is None else metrics | {"step_f1": found.f1}
