"""Online reinforcement learning: sample, grade, credit, learn, and sample again under the new weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import closing
from typing import Annotated, Any, ClassVar, Literal, Self, cast

from pydantic import Field

from lyceum.core.component import Tokens, of_kind, slot
from lyceum.core.forest import Forest
from lyceum.core.group import Group, flatten
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
    RuntimeSettings,
    StageSettings,
    ValueSettings,
)
from lyceum.core.types import Credited, EndingCurriculum, Origin, State, StepMetrics
from lyceum.data.buffer.base import relative_to_behaviour
from lyceum.models.frozen import AverageSettings, ReferenceSettings, TeacherSettings
from lyceum.training.stages._auxiliary import Auxiliary
from lyceum.training.stages._groups import Collect, end, source_of, untrained
from lyceum.training.stages._metrics import mean_abs_advantage, role_metrics, rollout_metrics, staleness
from lyceum.training.stages._sampling import Sampler
from lyceum.training.stages.method import Method
from lyceum.training.stages.models import learner_of, models_of, scored_under
from lyceum.training.stages.session import Session, StageLoop
from lyceum.training.stages.stopping import Ending, UntilOnline, ends_in_words, last_step, note, steps_in_words


class Online(StageSettings):
    """One loop for every online method: methods differ only in its components."""

    samples_ahead: ClassVar = True

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
    mask_truncated: bool = False
    """Leave completions that a token limit ended out of the loss. They are graded, and the others of their group are
    compared with them, all the same."""
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
    runtime: Annotated[RuntimeSettings, slot("runtime", "in-process")] = of_kind("in-process")
    """Where trees grow: in this process, or in others, ahead of the training where it says so."""

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
        if self.runtime.as_finished and self.collect.oversample is not None:
            lines.append(
                "collect.oversample: got it with runtime.order 'ready', where another group begins as soon as one is "
                "dropped; allowed: null"
            )
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

    @property
    def off_policy(self) -> bool:
        """Whether ratios of what the stage samples are relative to the log-probabilities under which it was drawn."""
        return self.runtime.off_policy

    def with_ratios(self, forest: Forest) -> Forest:
        """The forest with ``old_logprob`` replaced where ratios are not relative to the start of the step."""
        if self.off_policy:
            return relative_to_behaviour(forest, forest.origin == int(Origin.POLICY))
        return forest if self.replay is None or self.replay.ratio == "step" else relative_to_behaviour(forest)

    def with_budget(self, tokens: int, *, keep_steps: bool) -> Self:
        steps = self.steps
        if not keep_steps and not self.learner.follows_steps:
            trajectories = self.tasks_per_step * (self.composition().trajectories or 1)  # each of a token or more
            steps = max(steps, math.ceil(tokens / trajectories))
        return self.model_copy(update={"max_tokens": tokens, "steps": steps})

    def also(self, run: OnlineRun) -> list[Auxiliary]:
        """What else happens in each step."""
        return []

    def build(self, session: Session) -> OnlineRun:
        return OnlineRun(self, session)


class OnlineRun(StageLoop):
    """The loop and its state."""

    stateful = ("credit", "objective", "learner", "sampler", "source", "ending")

    def __init__(self, settings: Online, session: Session) -> None:
        self.settings, self.session = settings, session
        self.step, tasks = 0, len(session.source)
        self.steps = last_step(settings.steps, settings.epochs, tasks, settings.tasks_per_step)
        self.note = note(settings.steps, settings.epochs, tasks, settings.tasks_per_step)
        self.method = method = Method.of(settings, session.reward)
        self.objective, self.credit = method.objective, method.credit
        policies, names = models_of(settings.roles, session.policy), settings.roles.models
        session.beside = dict(zip(names[1:], policies[1:], strict=True))
        needs = method.needs | scored_under(settings)
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
            learner=self.learner,
            steps=self.steps,
            draws=None if settings.epochs is None else settings.epochs * tasks,
        )
        self.engine = self.sampler.engine
        self.source = source_of(settings, session, self.sampler)
        self.ending = Ending(settings.until)
        self.also = settings.also(self)

    async def run(self) -> None:
        session = self.session
        if self.note and not self.step:
            session.progress.say(self.note)
        with closing(self.sampler.runtime):
            await self.sampler.start()
            while not self.over:
                groups = await self.source.take(self.step, self.settings.tasks_per_step)
                forest = self.flatten(groups)
                credited, metrics = await self.learn(groups, forest)
                self.step += 1
                await self.engine.load(self.learner.weights(), version=session.first_step + self.step)
                self.observe(groups, forest, credited)
                self.sampler.publish()
                await self.record(groups, forest, credited, metrics)
                session.pause(self.step, self.steps, self.state_dict)
        end(self.source, session, self.ended_by)
        with self.method.learning():
            for each in (self, *self.also):
                each.learner.require_learnt()

    @property
    def over(self) -> bool:
        return self.step >= self.steps or bool(self.ended_by)

    @property
    def ended_by(self) -> str:
        if self.sampler.all_drawn and not self.sampler.over_budget and untrained(self.source):
            return self.ending.why or self.curriculum_done  # what was drawn ahead is trained too
        return self.ending.why or self.curriculum_done or self.sampler.spent_by

    @property
    def curriculum_done(self) -> str:
        """Why its curriculum is through, as a clause, where that ends the stage; else empty."""
        if self.settings.until is None or not self.settings.until.curriculum:
            return ""
        return cast(EndingCurriculum, self.sampler.curriculum).done

    def flatten(self, groups: Sequence[Group]) -> Forest:
        self.session.show(groups)
        return flatten(
            [group for group in groups if not group.dropped],
            decode=self.session.policy.decode,
            temperature=self.settings.sampling.usual_temperature or 1.0,
            constraint=self.constraint,
            steps=self.settings.credit.reads_steps,
        )

    async def learn(self, groups: Sequence[Group], forest: Forest) -> tuple[Credited | None, StepMetrics]:
        """Update the weights, unless the groups are only stored; without rows there are no advantages."""
        credited: Credited | None = None
        metrics: StepMetrics = {}
        if any(group.stored for group in groups):
            return credited, metrics
        if forest.n_rows:
            before = {name: value for each in self.also for name, value in each.before(forest).items()}
            with self.session.training(self.learner):
                credited, metrics = self.method.update(self.learner, forest)
            metrics |= before
        for each in self.also:
            metrics = await each.after(groups, metrics)
        return credited, metrics

    def observe(self, groups: Sequence[Group], forest: Forest, credited: Credited | None) -> None:
        """Give the step's results to what learns from them."""
        trained = [group for group in groups if not group.dropped]
        for group, advantage in zip(trained, mean_abs_advantage(forest, credited, len(trained)), strict=True):
            if group.sampled and not group.stored:  # that of a group that is only stored is unknown
                group.tree.mean_abs_advantage = advantage
        self.source.observe(self.step, groups)

    async def record(
        self, groups: Sequence[Group], forest: Forest, credited: Credited | None, metrics: StepMetrics
    ) -> None:
        session, step = self.session, self.session.first_step + self.step
        sampled = [group.tree for group in groups if group.sampled]
        dropped = [group.tree for group in groups if group.sampled and group.dropped]
        session.digest(step, sampled, metrics, forest=forest, credited=credited)
        metrics |= rollout_metrics(sampled, forest, dropped=len(dropped)) | self.sampler.count(sampled)
        metrics |= staleness([group for group in groups if not group.dropped], forest, step - 1)
        metrics |= self.source.metrics()
        if session.policy.sight is not None:
            metrics |= session.policy.sight.metrics(forest)
        if unjudged := self.settings.collect.unjudged(dropped):
            metrics["groups_unjudged"] = unjudged
            session.count_unjudged(unjudged, of=len(sampled))
        metrics |= role_metrics(sampled, self.settings.roles, self.step - 1)
        if not any(group.stored for group in groups):
            session.count_signal(self.has_signal(forest, credited) or any(each.updated for each in self.also))
        expected = self.sampler.expected_steps(self.step)
        self.ending.observe(await session.finish_step(self, metrics, expected_steps=expected))
        session.rollouts(step, groups, forest, credited, always=self.over)
        session.trees(self.step, groups)

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

    def own_state(self) -> dict[str, Any]:
        return {"also": [each.state_dict() for each in self.also]}

    def load_own_state(self, state: State) -> None:
        for each, saved in zip(self.also, state["also"], strict=True):
            each.load_state_dict(saved)
