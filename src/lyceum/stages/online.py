"""Online reinforcement learning: sample, grade, credit, learn, and sample again under the new weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, Protocol, Self, cast

from pydantic import Field, model_validator

from lyceum.buffer.base import ratio_metrics, relative_to_behaviour, with_ages
from lyceum.core.component import Component, Tokens, of_kind, require_keys, slot
from lyceum.core.forest import AGE, Forest, build_forest
from lyceum.core.needs import FROZEN
from lyceum.core.roles import Roles
from lyceum.core.settings import (
    Composition,
    CreditSettings,
    CurriculumSettings,
    EngineSettings,
    GuidanceSettings,
    LearnerSettings,
    Left,
    ObjectiveSettings,
    ReplaySettings,
    RewardSettings,
    RolloutSettings,
    StageSettings,
    ValueSettings,
)
from lyceum.core.tree import Tree
from lyceum.core.types import Credited, EndingCurriculum, Learner, ReplayedGroup, ReplaySource, Stateful, StepMetrics
from lyceum.models.frozen import AverageSettings, ReferenceSettings, TeacherSettings
from lyceum.stages._epochs import last_step, note, steps_in_words
from lyceum.stages._metrics import has_gradient, mean_abs_advantage, role_metrics, rollout_metrics
from lyceum.stages._oversampling import Oversample, Oversampling
from lyceum.stages._sampling import Sampler
from lyceum.stages.method import Method
from lyceum.stages.models import learner_of, models_of
from lyceum.stages.session import Session
from lyceum.stages.stopping import Ending, UntilOnline, ends_in_words


class Kept(Component):
    """Which finished groups are trained on."""

    keep: Literal["all", "with-gradient", "partly-solved", "solved-between"] = "all"
    """``with-gradient`` drops groups whose rewards are all equal, ``partly-solved`` those whose answers are all
    correct or all incorrect (dynamic sampling, DAPO, arXiv:2503.14476, equation 11), ``solved-between`` those whose
    accuracy is outside the bounds (balanced filtering, arXiv:2504.03380). An online stage replaces dropped groups by
    newly sampled ones, one for one unless `oversample` says more; an offline one does not."""
    solved_low: float | None = Field(default=None, ge=0, le=1)
    """Lowest accuracy of a group that ``solved-between`` keeps, inclusive; null sets no bound (0 to 1)."""
    solved_high: float | None = Field(default=None, ge=0, le=1)
    """Highest accuracy of a group that ``solved-between`` keeps, inclusive; null sets no bound (0 to 1)."""

    @model_validator(mode="after")
    def _bounds_fit(self) -> Kept:
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

    def unjudged(self, dropped: Sequence[Tree]) -> int:
        """Number of groups dropped only because no grader says which of their answers are correct."""
        by_verdict = self.keep in ("partly-solved", "solved-between")
        return sum(by_verdict and tree.solved is None and has_gradient(tree) for tree in dropped)


class Collect(Kept):
    """Which finished groups are trained on, and how long others are sampled in the place of those dropped."""

    max_waves: int = Field(default=4, ge=1)
    """Maximum sampling waves per step, after which it trains on the groups it has."""
    oversample: Oversample | None = None
    """How many more tasks than missing groups a wave samples; none by default."""

    @model_validator(mode="after")
    def _something_is_dropped(self) -> Collect:
        if self.oversample is not None and self.keep == "all":
            raise ValueError("oversample: got it with keep 'all', which drops nothing; allowed: another keep, or null")
        return self


class Online(StageSettings):
    """One loop for every online method: methods differ only in its components."""

    kind: Literal["online"] = "online"
    steps: int = Field(default=100, ge=1)
    """Number of steps of this stage."""
    epochs: int | None = Field(default=None, ge=1, le=10**6)
    """Passes over the tasks after which the stage ends, even before its steps are done: it has then drawn as often as
    there are tasks, times this. The last step may have fewer tasks. Null: as many passes as its steps take."""
    tasks_per_step: int = Field(default=32, ge=1)
    """Tasks (groups) per step."""
    max_tokens: Tokens | None = None
    """Sampled tokens after which the stage ends, even before its steps are done; for comparisons at equal cost."""
    max_tokens_per_task: Tokens | None = None
    """Maximum sampled tokens per task and step, over all its rollouts."""
    until: UntilOnline | None = None
    """Early stopping: when training or held-out accuracy reaches a target, or no longer rises, or when the curriculum
    is through."""
    roles: Roles = Roles()
    """The models that are trained and the roles that they play; by default one model plays all."""
    curriculum: Annotated[CurriculumSettings, slot("curriculum", "uniform")] = of_kind("uniform")
    """Which tasks are drawn."""
    guidance: tuple[Annotated[GuidanceSettings, slot("guidance")], ...] = ()
    """Guidance where a rollout fails, innermost first."""
    rollout: Annotated[RolloutSettings, slot("rollout", "flat")] = of_kind("flat")
    """How a task's tree grows."""
    reward: tuple[Annotated[RewardSettings, slot("reward")], ...] | None = None
    """Parts of the outcome reward in this stage; by default the recipe's. Evaluation always uses the recipe's."""
    value: Annotated[ValueSettings, slot("value")] | None = None
    """Value model of unfinished paths, for rollouts that need one; none by default."""
    collect: Collect = Collect()
    """Which groups are trained on."""
    replay: Annotated[ReplaySettings, slot("buffer")] | None = None
    """Recorded groups that are trained beside the sampled ones; none by default."""
    value_head: Literal["new", "current"] = "new"
    """The value head that it begins with, where the loss trains one: a new one, or that which the stage before left."""
    credit: Annotated[CreditSettings, slot("credit", "group")] = of_kind("group")
    """From outcomes to advantages."""
    objective: Annotated[ObjectiveSettings, slot("objective", "ppo-clip")] = of_kind("ppo-clip")
    """The loss."""
    reference: ReferenceSettings | None = None
    """The reference of KL penalties and preference losses: ``{average: [...]}`` of several models' weights, such as
    ``policy`` and ``{from_stage: NAME}``; null: the policy that enters the stage."""
    teacher: TeacherSettings | None = None
    """Frozen model to learn from, for objectives and credits that read one: its path, or path and dtype."""
    average: AverageSettings | None = None
    """Slow average of the policy's weights, for rewards and losses that read one: its decay and interval."""
    learner: Annotated[LearnerSettings, slot("learner", "local")] = of_kind("local")
    """How weights are updated."""
    engine: Annotated[EngineSettings, slot("engine", "embedded")] = of_kind("embedded")
    """What samples."""

    @property
    def leaves(self) -> frozenset[Left]:
        trees = self.replay is not None and "stored-groups" in self.replay.offers
        head = "value-head" in self.objective.offers and len(self.roles.models) == 1
        return frozenset[Left]({"trees"} if trees else ()) | frozenset[Left]({"value-head"} if head else ())

    def in_words(self) -> list[str]:
        return [
            steps_in_words(self.steps, self.epochs, self.tasks_per_step),
            *ends_in_words(self.until),
        ]

    def check(self, stage: Composition) -> list[str]:
        lines = super().check(stage)
        if self.replay is not None and self.replay.instead and self.tasks_per_step == 1:
            lines.append("replay.instead: got true, but a step has one group (tasks_per_step); allowed: 2 or more")
        if self.value_head == "current":
            lines += self._check_value_head(stage)
        return lines + self._check_roles(stage)

    def _check_value_head(self, stage: Composition) -> list[str]:
        """A line where no value head is there to begin with, or none is trained."""
        if "value-head" not in self.objective.offers or len(self.roles.models) > 1:
            return [
                f"value_head: got 'current', but objective.kind '{self.objective.kind}' trains no value head of one "
                "model; allowed: new, or credit 'gae' or 'egae' with objective.value_coefficient"
            ]
        before = list(stage.before.items())[-1:]
        if any("value-head" in left for _, left in before):
            return []
        why = f"stage {before[0][0]!r} before this one leaves none" if before else "there is no stage before this one"
        return [f"value_head: got 'current', but {why}; allowed: new, or a stage before it that trains a value head"]

    def _check_roles(self, stage: Composition) -> list[str]:
        """Lines that say why roles do not go with the rest of the stage."""
        played = [role for guide in self.guidance for role in guide.plays]
        lines = self.roles.check(played)
        if not played:
            return lines
        kind = next(guide.kind for guide in self.guidance if guide.plays)
        alone = f"with guidance {kind!r}, whose roles go through a task together"
        if len(self.guidance) > 1:
            given = ", ".join(guide.kind for guide in self.guidance)
            lines.append(f"guidance: got {given}, {alone}; allowed: it alone")
        size = self.rollout.size
        if "unfinished" in self.rollout.offers or size is None or size.setting != "samples":
            lines.append(f"rollout: got {self.rollout.kind!r} {alone}; allowed: one with samples, whole in one step")
        if self.collect.keep != "all":
            lines.append(f"collect.keep: got {self.collect.keep!r} {alone}; allowed: all")
        if self.replay is not None:
            lines.append(f"replay: got {self.replay.kind!r} {alone}; allowed: none")
        if len(self.roles.models) > 1 and self.value is not None:
            lines.append(f"value: got {self.value.kind!r} with several models; allowed: none")
        if len(self.roles.models) > 1 and "one-model" in self.engine.offers:
            lines.append(
                f"engine.kind: got {self.engine.kind!r}, of which a process serves one model, with roles.models "
                f"{', '.join(self.roles.models)}; allowed: 'embedded', or one model"
            )
        return lines

    def with_budget(self, tokens: int, *, keep_steps: bool) -> Self:
        steps = self.steps
        if not keep_steps and not self.learner.follows_steps:
            trajectories = self.tasks_per_step * (self.composition().trajectories or 1)  # each of a token or more
            steps = max(steps, math.ceil(tokens / trajectories))
        return self.model_copy(update={"max_tokens": tokens, "steps": steps})

    def build(self, session: Session) -> OnlineRun:
        return OnlineRun(self, session)


class Between(Stateful, Protocol):
    """Further training within an online step, beside its own trees: called after the update of each step.

    Attributes:
        learner: what updates the weights.
        updated: whether it did at the last call.
    """

    learner: Learner
    updated: bool

    async def __call__(self, trees: Sequence[Tree], metrics: StepMetrics) -> StepMetrics:
        """Given all trees of the step and the metrics of its update; returns these with its own added."""
        ...


class OnlineRun:
    """The loop and its state."""

    def __init__(self, settings: Online, session: Session) -> None:
        self.settings, self.session = settings, session
        self.step, tasks = 0, len(session.source)
        self.steps = last_step(settings.steps, settings.epochs, tasks, settings.tasks_per_step)
        self.note = note(settings.steps, settings.epochs, tasks, settings.tasks_per_step)
        self.method = method = Method.of(settings, session.reward)
        self.objective, self.credit, self.columns = method.objective, method.credit, method.columns
        policies, names = models_of(settings.roles, session.policy), settings.roles.models
        session.beside = dict(zip(names[1:], policies[1:], strict=True))
        needs = method.needs.union(*(part.needed & FROZEN for part in settings.reward or ()))
        self.learner = learner_of(settings, policies, needs, self.steps, session.run.stages)
        if session.handed_on is not None:  # else a checkpoint has the value head
            self.learner.load_weights(session.handed_on)
        constraint = settings.sampling.constraint
        self.constraint = None if constraint is None else constraint.build(session.policy)
        self.sampler = Sampler(
            settings,
            session,
            policies,
            settings.roles,
            score_under=self.learner.score_under,
            steps=self.steps,
            draws=None if settings.epochs is None else settings.epochs * tasks,
        )
        self.engine = self.sampler.engine
        self.oversampling = Oversampling(settings.collect.oversample)
        self.replay: ReplaySource | None = None
        if settings.replay is not None:
            self.replay = settings.replay.build(
                session.run.path, seed=session.stage_seed, stage=session.stage, first_step=session.first_step
            )
        self.ending = Ending(settings.until)
        self.between: list[Between] = []

    async def run(self) -> None:
        session = self.session
        if self.note and not self.step:
            session.progress.say(self.note)
        while not self.over:
            recorded = self.recorded()
            trees, dropped = await self.collect(recorded)
            forest = self.flatten(trees, recorded)
            credited, metrics = self.learn(forest)
            for also in () if self.warms_up(self.step) else self.between:
                metrics = await also([*trees, *dropped], metrics)
            self.step += 1
            await self.engine.load(self.learner.weights(), version=session.first_step + self.step)
            self.observe(trees, dropped, recorded, forest, credited)
            await self.record(trees, dropped, recorded, forest, credited, metrics)
            session.pause(self.step, self.steps, self.state_dict)
        with self.method.learning():
            for each in (self, *self.between):
                each.learner.require_learnt()

    @property
    def over(self) -> bool:
        return self.step >= self.steps or bool(self.ended_by)

    @property
    def ended_by(self) -> str:
        return self.ending.why or self.curriculum_done or self.sampler.spent_by

    @property
    def curriculum_done(self) -> str:
        """Why its curriculum is through, as a clause, where that ends the stage; else empty."""
        if self.settings.until is None or not self.settings.until.curriculum:
            return ""
        return cast(EndingCurriculum, self.sampler.curriculum).done

    def recorded(self) -> list[ReplayedGroup]:
        """The recorded groups that the step trains again."""
        if self.replay is None or self.settings.replay is None:
            return []
        return self.replay.draw(self.step, self.settings.replay.number(self.settings.tasks_per_step))

    def warms_up(self, done: int) -> bool:
        """Whether the step after so many steps trains nothing, and only stores what it samples."""
        return self.settings.replay is not None and self.settings.replay.warms_up(done)

    async def collect(self, recorded: Sequence[ReplayedGroup] = ()) -> tuple[list[Tree], list[Tree]]:
        """The trees sampled for the step, and those that were sampled and dropped."""
        collect, size = self.settings.collect, self.settings.tasks_per_step
        if self.settings.replay is not None and self.settings.replay.instead:
            size -= len(recorded)
        kept: list[Tree] = []
        dropped: list[Tree] = []
        for wave in range(1 if collect.keep == "all" else collect.max_waves):
            key = (self.session.first_step + self.step, wave)
            wanted = self.oversampling.tasks(size - len(kept))
            trees = await self.sampler.sample(wanted, key=key, step=self.step)
            good = [tree for tree in trees if collect.keeps(tree)]
            kept += good
            dropped += [tree for tree in trees if not collect.keeps(tree)]
            self.oversampling.count(kept=len(good), sampled=len(trees))
            if len(kept) >= size or self.sampler.all_drawn:
                break
        kept, surplus = self.oversampling.finish(kept, size)
        return kept, [*dropped, *surplus]

    def flatten(self, trees: Sequence[Tree], recorded: Sequence[ReplayedGroup] = ()) -> Forest:
        weight, under_way = self.sampler.weight, self.trained_under_way
        weights = [*map(weight, trees), *(group.weight for group in recorded), *map(weight, under_way)]
        # Trees under way are the last: their rows are in no file of the step, which they are not finished in.
        together = [*trees, *(group.tree for group in recorded), *under_way]
        forest = build_forest(
            together,
            decode=self.session.policy.decode,
            weights=weights,
            temperature=self.settings.sampling.temperature or 1.0,
            constraint=self.constraint,
            unfinished=bool(under_way),
            steps=self.settings.credit.reads_steps,
        )
        return with_ages(forest, together)

    @property
    def trained_under_way(self) -> list[Tree]:
        """The step's unfinished trees, where they are trained as far as they are."""
        return self.sampler.unfinished if self.settings.credit.reads_unfinished else []

    def learn(self, forest: Forest) -> tuple[Credited | None, dict[str, Any]]:
        if not forest.n_rows or self.warms_up(self.step):
            return None, {}
        replays = AGE in forest.columns
        with self.session.training(self.learner), self.method.learning():
            forest = self.learner.annotate(forest, self.columns | ({"old_logprob"} if replays else frozenset()))
            credited = self.method.credited(forest)
            found = ratio_metrics(forest) if replays else {}
            if replays and self.settings.replay is not None and self.settings.replay.ratio == "behaviour":
                forest = relative_to_behaviour(forest)
            metrics = self.learner.step(forest, credited, self.objective) | found
            self.credit.observe(forest, metrics)
            self.objective.observe(metrics)
            return credited, metrics | {f"credit/{name}": value for name, value in credited.metrics.items()}

    def observe(
        self,
        trees: list[Tree],
        dropped: list[Tree],
        recorded: Sequence[ReplayedGroup],
        forest: Forest,
        credited: Credited | None,
    ) -> None:
        """Give the step's results to curriculum and guidance, and to the replay what was sampled."""
        of_tree = mean_abs_advantage(forest, credited, len(trees) + len(recorded) + len(self.trained_under_way))
        for tree, advantage in zip(trees, of_tree, strict=False):  # those not sampled and finished in this step follow
            # That of a group that is only stored is unknown.
            tree.mean_abs_advantage = None if self.warms_up(self.step - 1) else advantage
        for tree in dropped:
            # That of a surplus group is unknown, not 0.
            tree.mean_abs_advantage = None if self.settings.collect.keeps(tree) else 0.0
        if self.replay is not None:
            self.replay.observe(self.step, trees, [self.sampler.weight(tree) for tree in trees])
        self.sampler.observe([*trees, *dropped])

    async def record(
        self,
        trees: list[Tree],
        dropped: list[Tree],
        recorded: Sequence[ReplayedGroup],
        forest: Forest,
        credited: Credited | None,
        metrics: dict[str, Any],
    ) -> None:
        session, step = self.session, self.session.first_step + self.step
        session.digest(step, [*trees, *dropped], metrics, forest=forest, credited=credited)
        metrics |= (
            rollout_metrics(trees, dropped, forest) | self.sampler.count([*trees, *dropped]) | self.oversampling.metrics
        )
        if unjudged := self.settings.collect.unjudged(dropped):
            metrics["groups_unjudged"] = unjudged
            session.count_unjudged(unjudged, of=len(trees) + len(dropped))
        metrics |= role_metrics([*trees, *dropped], self.settings.roles.swaps(self.step - 1))
        if self.replay is not None:
            metrics |= {f"replay/{name}": value for name, value in self.replay.metrics().items()}
        if not self.warms_up(self.step - 1):
            session.count_signal(self.has_signal(forest, credited) or any(also.updated for also in self.between))
        expected = self.sampler.expected_steps(self.step)
        self.ending.observe(await session.finish_step(self, metrics, expected_steps=expected))
        trained = [*trees, *(group.tree for group in recorded)]
        advantage = None if credited is None else credited.advantage[: sum(len(tree.graded) for tree in trained)]
        session.run.rollouts(step, trained, advantage, session.policy.decode, always=self.over)
        session.trees(self.step, trained, dropped, forest=forest)

    def has_signal(self, forest: Forest, credited: Credited | None) -> bool:
        """Whether the step had a learning signal: a teacher, rows to imitate, or a non-zero advantage on a trained
        token.

        Credit without a baseline has non-zero advantages even if all rewards have been equal: that is no signal.
        """
        counts = self.session.counts
        if credited is not None and self.settings.teacher is not None:
            return True
        if credited is None:
            return False
        if self.settings.objective.imitates(forest):
            return True
        if counts.lowest_reward == counts.highest_reward and not self.settings.credit.reads_parts:
            return False
        trained = forest.trainable(forest.rows(), self.objective.origins)
        return bool((credited.advantage[trained] != 0).any())

    def state_dict(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "credit": self.credit.state_dict(),
            "objective": self.objective.state_dict(),
            "learner": self.learner.state_dict(),
            "sampler": self.sampler.state_dict(),
            "oversampling": self.oversampling.state_dict(),
            "ending": self.ending.state_dict(),
            "replay": None if self.replay is None else self.replay.state_dict(),
            "between": [also.state_dict() for also in self.between],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        require_keys("stage", given=state, needed=self.state_dict())
        self.step = state["step"]
        self.credit.load_state_dict(state["credit"])
        self.objective.load_state_dict(state["objective"])
        self.learner.load_state_dict(state["learner"])
        self.sampler.load_state_dict(state["sampler"])
        self.oversampling.load_state_dict(state["oversampling"])
        self.ending.load_state_dict(state["ending"])
        if self.replay is not None:
            self.replay.load_state_dict(state["replay"])
        for also, saved in zip(self.between, state["between"], strict=True):
            also.load_state_dict(saved)
        self.engine.version = self.session.first_step + self.step


def is_partly_solved(tree: Tree) -> bool:
    """Whether some of a group's answers are correct and some are not, regardless of reward shaping."""
    return tree.solved is not None and 0 < tree.solved < 1


def is_solved_between(tree: Tree, low: float | None, high: float | None) -> bool:
    """Whether a group's accuracy lies within the bounds, inclusive."""
    if tree.solved is None:
        return False
    return (low is None or low <= tree.solved) and (high is None or tree.solved <= high)


KEPT: Mapping[str, Callable[[Tree, Kept], bool]] = {
    "all": lambda tree, _: True,
    "with-gradient": lambda tree, _: has_gradient(tree),
    "partly-solved": lambda tree, _: is_partly_solved(tree),
    "solved-between": lambda tree, bounds: is_solved_between(tree, bounds.solved_low, bounds.solved_high),
}
