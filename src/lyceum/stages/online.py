"""Online reinforcement learning: sample, grade, credit, learn, and sample again under the new weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from lyceum.component import Component, Tokens, of_kind, require_keys, slot
from lyceum.forest import Forest, build_forest
from lyceum.rooms import (
    Composition,
    CreditSettings,
    CurriculumSettings,
    EngineSettings,
    GuidanceSettings,
    LearnerSettings,
    ObjectiveSettings,
    RewardSettings,
    RolloutSettings,
    StageSettings,
    ValueSettings,
)
from lyceum.runtime.in_process import InProcess
from lyceum.stages.ending import Ending, Until
from lyceum.stages.figures import mean_abs_advantage, mean_solved, rollout_figures, tokens_computed
from lyceum.stages.sampling import SamplingRun
from lyceum.stages.session import Session
from lyceum.tree import Tree
from lyceum.types import Credited, Curriculum, Guidance


class Collect(Component):
    """Which finished groups are trained on."""

    keep: Literal["all", "with-gradient", "partly-solved", "solved-between"] = "all"
    """``with-gradient`` drops groups whose rewards are all equal, ``partly-solved`` those whose answers are all right
    or all wrong (dynamic sampling, DAPO, arXiv:2503.14476, equation 11), ``solved-between`` those of which a smaller
    or larger share is right than asked for (balanced filtering, arXiv:2504.03380). As many others are sampled in the
    place of those dropped, so that a step never has more groups than it trains on."""
    solved_low: float | None = Field(default=None, ge=0, le=1)
    """Smallest share of right answers that ``solved-between`` keeps, itself included; null sets no bound (no unit)."""
    solved_high: float | None = Field(default=None, ge=0, le=1)
    """Largest share of right answers that ``solved-between`` keeps, itself included; null sets no bound (no unit)."""
    max_waves: int = Field(default=4, ge=1)
    """Times that a step samples before it goes on with the groups it has."""

    @model_validator(mode="after")
    def _bounds_fit(self) -> Collect:
        bounded = self.solved_low is not None or self.solved_high is not None
        if bounded != (self.keep == "solved-between"):
            raise ValueError(
                f"solved_low and solved_high: got {self.solved_low} and {self.solved_high} with keep {self.keep!r}; "
                "allowed: null with every other keep, at least one of them with 'solved-between'"
            )
        if self.solved_low is not None and self.solved_high is not None and self.solved_low > self.solved_high:
            raise ValueError(
                f"solved_low: got {self.solved_low}, but solved_high is {self.solved_high}; allowed: at most that"
            )
        return self

    def keeps(self, tree: Tree) -> bool:
        """Whether a finished group is trained on."""
        return KEPT[self.keep](tree, self)


class Online(StageSettings):
    """One loop for every online method: what differs is which components stand in it."""

    kind: Literal["online"] = "online"
    steps: int = Field(default=100, ge=1)
    """Steps of this stage."""
    tasks_per_step: int = Field(default=32, ge=1)
    """Tasks whose trees make up one step."""
    max_tokens: Tokens | None = None
    """The stage ends once it has sampled this many tokens, whatever its steps; for comparisons at equal cost."""
    max_tokens_per_task: Tokens | None = None
    """Tokens that one task may sample in one step, over all its rollouts."""
    until: Until | None = None
    """Ends the stage before its steps are done: when enough is solved, or no more than before."""
    curriculum: Annotated[CurriculumSettings, slot("curriculum", "uniform")] = of_kind("uniform")
    """Which tasks are drawn."""
    guidance: tuple[Annotated[GuidanceSettings, slot("guidance")], ...] = ()
    """Help where a rollout fails, the innermost first."""
    rollout: Annotated[RolloutSettings, slot("rollout", "flat")] = of_kind("flat")
    """How a task's tree grows."""
    reward: tuple[Annotated[RewardSettings, slot("reward")], ...] | None = None
    """Parts of the outcome reward in this stage; by default the recipe's. Evaluation always takes the recipe's."""
    value: Annotated[ValueSettings, slot("value")] | None = None
    """What unfinished paths are worth to rollouts that ask; none by default."""
    collect: Collect = Collect()
    """Which groups are trained on."""
    credit: Annotated[CreditSettings, slot("credit", "group")] = of_kind("group")
    """From outcomes to advantages."""
    objective: Annotated[ObjectiveSettings, slot("objective", "ppo-clip")] = of_kind("ppo-clip")
    """The loss."""
    learner: Annotated[LearnerSettings, slot("learner", "local")] = of_kind("local")
    """How weights are updated."""
    engine: Annotated[EngineSettings, slot("engine", "embedded")] = of_kind("embedded")
    """What samples."""

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
            credit=self.credit,
            objective=self.objective,
        )

    def in_words(self) -> list[str]:
        return [f"{self.steps} steps of {self.tasks_per_step} tasks"]

    def with_budget(self, tokens: int, *, keep_steps: bool) -> Self:
        steps = self.steps
        if not keep_steps and not self.learner.follows_steps:
            trajectories = self.tasks_per_step * (self.composition().samples or 1)  # each of a token or more
            steps = max(steps, math.ceil(tokens / trajectories))
        return self.model_copy(update={"max_tokens": tokens, "steps": steps})

    def build(self, session: Session) -> OnlineRun:
        return OnlineRun(self, session)


class OnlineRun(SamplingRun):
    """The loop and its state."""

    def __init__(self, settings: Online, session: Session) -> None:
        self.settings, self.session = settings, session
        self.steps = settings.steps
        self.step = self.computed = 0
        self.sampled_before = session.counts.tokens_sampled
        self.ending = Ending(settings.until)
        seed = session.seed + 7919 * session.stage  # each stage draws its own
        self.objective, self.credit = settings.objective.build(), settings.credit.build()
        needs = self.objective.needs | self.credit.needs
        self.needs = needs & {"reference_logprob", "old_value"} | (self.credit.needs & {"old_logprob"})
        if "value" in self.objective.needs:
            self.needs |= {"old_value"}
        self.learner = settings.learner.build(session.policy, total_steps=settings.steps, needs=needs)
        self.engine = settings.engine.build(session.policy)
        self.engine.version = session.first_step
        self.curriculum: Curriculum = settings.curriculum.build(session.source, seed=seed, policy=session.policy)
        self.guidance: list[Guidance] = [guide.build(session.source, seed=seed) for guide in settings.guidance]
        self.rollout = reduce(lambda rollout, guide: guide(rollout), self.guidance, settings.rollout.build())
        self.value = None if settings.value is None else settings.value.build(session.policy, seed=seed)
        self.runtime = InProcess(
            session.policy,
            self.engine,
            self._grader(),
            seed=seed,
            max_tokens_per_task=settings.max_tokens_per_task,
            value=self.value,
        )

    async def run(self) -> None:
        session = self.session
        while not self._ends():
            trees, dropped = await self.collect()
            forest = self.flatten(trees)
            credited, figures = self.learn(forest)
            self.step += 1
            await self.engine.load(self.learner.weights(), version=session.first_step + self.step)
            self.observe(trees, dropped, forest, credited)
            await self.record(trees, dropped, forest, credited, figures)
            session.pause(self.step, self.steps, self.state_dict)
        self.learner.require_learnt()

    def _ends(self) -> bool:
        return self.step >= self.steps or self._spent() or self.ending.reached

    async def collect(self) -> tuple[list[Tree], list[Tree]]:
        """The step's trees, and those that were sampled and dropped."""
        settings, session = self.settings, self.session
        kept: list[Tree] = []
        dropped: list[Tree] = []
        before = tokens_computed(self.engine)
        for wave in range(1 if settings.collect.keep == "all" else settings.collect.max_waves):
            tasks = self.curriculum.draw(settings.tasks_per_step - len(kept))
            with session.run.timed("generate"):
                key = (session.first_step + self.step, wave)
                done = session.counter("generating", len(tasks))
                trees = await self.runtime.run(
                    tasks, self.rollout, key=key, step=self.step, progress=self.progress, done=done
                )
            for tree in trees:
                (kept if settings.collect.keeps(tree) else dropped).append(tree)
            if len(kept) >= settings.tasks_per_step:
                break
        self.computed = tokens_computed(self.engine) - before
        return kept, dropped

    def flatten(self, trees: list[Tree]) -> Forest:
        weights = [self.curriculum.weight(tree) for tree in trees]
        return build_forest(trees, weights=weights, temperature=self.settings.sampling.temperature or 1.0)

    def learn(self, forest: Forest) -> tuple[Credited | None, dict[str, Any]]:
        if not forest.n_rows:
            return None, {}
        with self.session.training(self.learner):
            forest = self.learner.annotate(forest, self.needs)
            credited = self.credit(forest)
            return credited, self.learner.step(forest, credited, self.objective)

    def observe(self, trees: list[Tree], dropped: list[Tree], forest: Forest, credited: Credited | None) -> None:
        """Show curriculum and guidance what came of the step."""
        for tree, advantage in zip(trees, mean_abs_advantage(forest, credited, len(trees)), strict=True):
            tree.mean_abs_advantage = advantage
        for tree in dropped:
            tree.mean_abs_advantage = 0.0
        for room in (self.curriculum, *self.guidance):
            room.observe([*trees, *dropped])
        self.ending.observe(mean_solved([*trees, *dropped]))

    async def record(
        self,
        trees: list[Tree],
        dropped: list[Tree],
        forest: Forest,
        credited: Credited | None,
        figures: dict[str, Any],
    ) -> None:
        settings, session = self.settings, self.session
        step = session.first_step + self.step
        session.digest(step, [*trees, *dropped], figures, forest=forest, credited=credited)
        figures |= rollout_figures(trees, dropped, forest) | self.beliefs()
        self.count([*trees, *dropped])
        session.count_signal(self.has_signal(forest, credited, figures))
        session.counts.tokens_trained += int(figures.get("tokens_trained", 0))
        figures |= {name: getattr(session.counts, name) for name in ("tokens_sampled", "tokens_trained")}
        figures["skipped_steps"] = self.learner.skipped_steps
        if self.computed:
            figures["tokens_computed/step"] = self.computed
        if session.exam and session.due(self.step, session.exam.every, self.steps):
            await session.evaluate(self.engine, figures)
        session.run.record(step, {"stage": settings.kind, **figures})
        advantage = None if credited is None else credited.advantage
        session.run.rollouts(step, trees, advantage, session.policy.decode, always=self._ends())
        if settings.max_tokens is not None:
            session.progress.total = session.first_step + self._expected_steps(settings.max_tokens)
        session.progress.step(step, figures)

    def has_signal(self, forest: Forest, credited: Credited | None, figures: Mapping[str, Any]) -> bool:
        """Whether the step had anything to learn from: an advantage that is not 0 on a token that is trained.

        Credit without a baseline gives one by rewards that have always been the same, too: that teaches nothing.
        """
        counts = self.session.counts
        if credited is None or counts.lowest_reward == counts.highest_reward:
            return False
        trained = forest.trainable(forest.rows(), self.objective.origins)
        return bool((credited.advantage[trained] != 0).any())

    def _expected_steps(self, max_tokens: int) -> int:
        """How many steps the budget will last for, at the mean of those so far."""
        return min(self.steps, math.ceil(self.step * max_tokens / max(1, self._sampled)))

    def state_dict(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "sampled_before": self.sampled_before,
            "learner": self.learner.state_dict(),
            "curriculum": self.curriculum.state_dict(),
            "guidance": [guide.state_dict() for guide in self.guidance],
            "value": None if self.value is None else self.value.state_dict(),
            "ending": self.ending.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        require_keys("stage", given=state, needed=self.state_dict())
        self.step, self.sampled_before = state["step"], state["sampled_before"]
        self.learner.load_state_dict(state["learner"])
        self.curriculum.load_state_dict(state["curriculum"])
        for guide, saved in zip(self.guidance, state["guidance"], strict=True):
            guide.load_state_dict(saved)
        if self.value is not None:
            self.value.load_state_dict(state["value"])
        self.ending.load_state_dict(state["ending"])
        self.engine.version = self.session.first_step + self.step


def is_partly_solved(tree: Tree) -> bool:
    """Whether some of a group's answers are right and some are not, whatever shaping adds to their rewards."""
    return tree.solved is not None and 0 < tree.solved < 1


def has_gradient(tree: Tree) -> bool:
    """Whether a group's outcomes differ, so that group-relative credit is not all 0."""
    return len({outcome for _, _, outcome in tree.graded_with_outcome()}) > 1


def is_solved_between(tree: Tree, low: float | None, high: float | None) -> bool:
    """Whether the share of a group's answers that are right lies within the bounds, themselves included."""
    if tree.solved is None:
        return False
    return (low is None or low <= tree.solved) and (high is None or tree.solved <= high)


KEPT: Mapping[str, Callable[[Tree, Collect], bool]] = {
    "all": lambda tree, _: True,
    "with-gradient": lambda tree, _: has_gradient(tree),
    "partly-solved": lambda tree, _: is_partly_solved(tree),
    "solved-between": lambda tree, bounds: is_solved_between(tree, bounds.solved_low, bounds.solved_high),
}
