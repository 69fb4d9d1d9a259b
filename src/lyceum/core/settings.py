"""The interface of each slot's settings: the base classes of the slots' components.

A method is a subclass with a ``kind`` and settings of its own: ``class GroupRelative(CreditSettings)``. What has a
default here may be left as it is; every component must define ``build``.
"""

from __future__ import annotations

import math
import re
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, Self

from pydantic import Field, field_validator, model_validator

from lyceum.core.component import Component, Settings
from lyceum.core.needs import FROZEN, OFFERS, Gift, Gives, Need
from lyceum.core.roles import Roles
from lyceum.core.schedule import Schedule
from lyceum.core.types import Sampling, can_be_compared
from lyceum.utils.errors import RecipeError, nearest
from lyceum.utils.terminal import printable, quoted

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from transformers import PreTrainedTokenizerBase

    from lyceum.core.forest import Forest
    from lyceum.core.group import Group
    from lyceum.core.tree import Tree
    from lyceum.core.types import (
        Credit,
        Curriculum,
        Engine,
        Environment,
        Gathering,
        Grader,
        GroupSource,
        Guidance,
        Learner,
        Objective,
        Rollout,
        Scorer,
        ShapingGrader,
        Split,
        StageRun,
        Task,
        TaskSource,
        Traces,
        ValueModel,
        World,
    )
    from lyceum.core.waves import Grows, Runtime
    from lyceum.models.frozen import AverageSettings, FrozenSettings, ReferenceSettings, TeacherSettings
    from lyceum.models.load import ModelSettings
    from lyceum.models.policy import Policy
    from lyceum.training.stages.session import Session


Precision = Literal["float32", "bfloat16", "float16"]


Sizing = Literal["samples", "trajectories", "iterations"]


class Size(NamedTuple):
    """How many trajectories per task a rollout samples, or how many searches it makes; None: no fixed number."""

    setting: Sizing
    number: int | None


class EnvironmentSettings(Component, slot="environment"):
    """What answers the policy's turns."""

    repeatable: ClassVar[bool] = True
    """Whether several turns may be tried from one state: states are values, or a world that is begun again and told the
    same comes to the same. Rollouts that branch need it."""

    max_turns: Annotated[int, Field(ge=1)] | Schedule = 16
    """Maximum turns of the policy per trajectory; one that would go on after them counts as truncated. Over the stage:
    a list of values, or ``{values, form, begin, end}``, rounded down; an evaluation takes the first."""
    step_timeout_seconds: float | None = Field(default=60.0, gt=0)
    """Time limit of the answer to a turn, in seconds, what the run's own model takes included; a trajectory without an
    answer by then is ungraded. Null sets none."""

    @property
    def counted(self) -> tuple[str, ...]:
        """Names of what it counts of each turn, beside calls (``Observation.counts``)."""
        return ()

    @property
    def stops(self) -> tuple[str, ...]:
        """Strings that end a turn, beside the end of sequence."""
        return ()

    @property
    def tools(self) -> tuple[Mapping[str, Any], ...]:
        """What the chat template tells the policy of its tools, as JSON schemas."""
        return ()

    def turns_at(self, progress: float) -> int:
        """``max_turns`` after a share of the stage, at least 1."""
        most = self.max_turns
        return max(1, int(most.at(progress))) if isinstance(most, Schedule) else most

    @abstractmethod
    def build(self) -> Environment[Any] | World[Any]: ...


class RolloutSettings(Component, slot="rollout"):
    """How a task's tree grows."""

    test_time: ClassVar[Mapping[str, Any]] = {}
    """Settings that replace its defaults in test-time search, where no verifier is available."""
    continues: ClassVar[bool] = True
    """Whether it goes on from nodes of the tree, which the engine may keep in its cache until then."""
    sized_by: ClassVar[Sizing | None] = None
    """The setting for the number of trajectories per task, where the curriculum sets none; None without one."""

    sampling: Sampling = Sampling()
    """How tokens are drawn."""

    @abstractmethod
    def build(self) -> Rollout: ...

    @property
    def size(self) -> Size | None:
        """What ``sized_by`` names, and its value."""
        return None if self.sized_by is None else Size(self.sized_by, getattr(self, self.sized_by))

    @property
    def by_clock(self) -> bool:
        """Whether which requests share a batch depends on the clock: a killed run then loses nothing, but its last bits
        are others when it is resumed."""
        return False

    @property
    def offers(self) -> frozenset[Gift]:
        fixed = self.size is not None and self.size.setting != "iterations" and self.size.number is not None
        settable = self.size is not None and self.size.setting == "samples"
        sized = frozenset[Gift]({"trajectories"} if fixed else ()) | frozenset[Gift]({"samples"} if settable else ())
        constrained = frozenset[Gift](() if self.sampling.constraint is None else {"constrained-tokens"})
        return super().offers | sized | constrained

    def sized(self, n: int) -> Self:
        """The same rollout for about ``n`` finished trajectories.

        Raises:
            RecipeError: it has no such size.
        """
        if self.sized_by is None:
            raise RecipeError(
                f"kind: got {self.kind!r}, which has no number of trajectories to set; allowed: another one"
            )
        return self.model_copy(update={self.sized_by: n})

    def independent(self) -> RolloutSettings | None:
        """What evaluations sample by: a rollout with ``samples`` trajectories, independent of each other, that does as
        this one does. None: completions as they are."""
        return None

    @property
    def tools(self) -> tuple[Mapping[str, Any], ...]:
        """The tools that prompts tell of, as JSON schemas."""
        return tuple(tool for part in self.components() if isinstance(part, EnvironmentSettings) for tool in part.tools)

    def note(self, trees: Sequence[Tree]) -> str | None:
        """What a user should know about the first step's trees, such as separators that never occurred."""
        return None

    def metrics(self, trees: Sequence[Tree]) -> dict[str, float]:
        """What it did in a step's trees, by name: logged as ``rollout/KIND/NAME``."""
        return {}


class CreditSettings(Component, slot="credit"):
    """From outcomes to advantages."""

    reads_steps: ClassVar[bool] = True
    """Whether it may read judged steps; where it does not, they are not looked up in the tokens."""
    reads_parts: ClassVar[bool] = False
    """Whether it compares the reward's parts, so that there is something to learn where all outcomes are equal."""
    reads_unfinished: ClassVar[bool] = False
    """Whether it also credits trajectories that go on in the next step, so that they are trained as far as they are."""

    def sources(self, outcome: tuple[str, ...]) -> tuple[str, ...]:
        """What its advantages are added up from, by name: where there are several, each one's share of their variance
        is logged as ``credit/NAME/share``.

        Args:
            outcome: the reward's parts that have a weight, where there are several, or else ``("outcome",)``.
        """
        return outcome

    @abstractmethod
    def build(self) -> Credit: ...


class ObjectiveSettings(Component, slot="objective"):
    """A loss."""

    def imitates(self, forest: Forest) -> bool:
        """Whether it learns from some of a step's rows whatever the rewards are."""
        return False

    @abstractmethod
    def build(self) -> Objective: ...


class CurriculumSettings(Component, slot="curriculum"):
    """Which tasks are drawn. A curriculum that modifies another one holds it in a slot."""

    @property
    def offers(self) -> frozenset[Gift]:
        """What it gives, or a curriculum that it holds."""
        return super().offers.union(
            *(part.offers for part in self.components() if isinstance(part, CurriculumSettings))
        )

    def handed_on(self, run: Path) -> Self:
        """The same settings with this run's folder where they name an earlier stage of it."""
        nested = {name: part.handed_on(run) for name, part in self if isinstance(part, CurriculumSettings)}
        return self.model_copy(update=nested) if nested else self

    @abstractmethod
    def build(self, source: TaskSource, *, seed: int, policy: Policy | None = None) -> Curriculum: ...


class GuidanceSettings(Component, slot="guidance"):
    """How a failed rollout is helped, or how several roles go through a task together."""

    plays: ClassVar[tuple[str, ...]] = ()
    """The roles that it has the policy play; a stage may bind them to different models."""

    gives: ClassVar = (Gives("played-roles", when=lambda own: bool(own.plays)),)
    requires: ClassVar = (Need("roles", when=lambda own: bool(own.plays)),)

    @abstractmethod
    def build(self, source: TaskSource, *, seed: int) -> Guidance: ...


class RewardSettings(Component, slot="reward"):
    """One part of a reward.

        outcome = (sum of weight * part over parts that add) * product over parts that multiply

    unless a part that gates fails: the outcome is then that part's own.
    """

    besides: ClassVar[tuple[str, ...]] = ("FILE.py:FUNCTION",)
    gives: ClassVar = ("verifier", Gives("frozen-scores", when=lambda own: bool(own.needed & FROZEN)))
    requires: ClassVar = (
        Need(
            "company",
            when=lambda own: own.standardise,
            line="reward.{part.kind}.standardise compares trajectories",
        ),
    )

    after_verdict: ClassVar[bool] = False
    """Whether it is told which answers are correct: it then runs after the other parts, and its ``build`` returns a
    ``ShapingGrader``."""
    may_judge: ClassVar[bool] = False
    """Whether beside other parts its plain numbers may say which answers are correct (``verdict_reader``)."""
    asks_model: ClassVar[bool] = False
    """Whether it asks the run's model for continuations or log-probabilities: the engine then waits for all grades."""
    compares_answers: ClassVar[bool] = False
    """Whether it compares completions with the task's answer, which is then a text, a number or a list of these."""

    weight: float = 1.0
    """Weight of the part in the outcome (outcome per unit of the part); 0 only logs it."""
    schedule: Schedule | None = None
    """Factor on ``weight`` over the stage: a list of values, or ``{values, form, begin, end}``; null: 1. An evaluation
    takes the first value."""
    combine: Literal["add", "multiply", "gate"] = "add"
    """``add``: a term of the sum. ``multiply``: the sum is multiplied by 1 + weight (part - passes_at). ``gate``: where
    the part is below ``passes_at`` the outcome is weight times this part alone, whatever the others say; elsewhere it
    adds nothing. The first listed gate that fails decides."""
    passes_at: float = 1.0
    """Lowest value with which a gate passes, or the value that leaves the sum as it is, in the part's unit: 1 for what
    is 1 where all is well, 0 for penalties."""
    standardise: bool = False
    """Whether a term is standardised over the task's trajectories that are graded together (minus their mean, over
    their standard deviation) before it is weighted. Its own value is logged as ``NAME/raw``."""

    @model_validator(mode="after")
    def _combines_as_it_says(self) -> Self:
        if self.passes_at != 1.0 and self.combine == "add":
            raise ValueError(
                f"passes_at: got {self.passes_at:g} with combine 'add'; allowed: with 'multiply' and 'gate'"
            )
        if self.standardise and self.combine != "add":
            raise ValueError(f"standardise: got true with combine '{self.combine}'; allowed: with 'add'")
        return self

    @property
    def label(self) -> str:
        """Its name in metrics, grades and ``credit.parts``; the second part of a name is ``name#2``."""
        return self.kind

    @property
    def is_plain(self) -> bool:
        """Whether it is a term as it is, with weight 1: what a part inside of another one has to be."""
        return (self.weight, self.schedule, self.combine, self.standardise) == (1.0, None, "add", False)

    @property
    def waits_for_model(self) -> bool:
        """As ``asks_model``, where that depends on the settings."""
        return self.asks_model

    def check_tasks(self, source: TaskSource) -> None:
        super().check_tasks(source)
        if self.compares_answers:
            self.check_answers(source)

    def check_answers(self, source: TaskSource) -> None:
        """Raise RecipeError where the tasks' answers cannot be compared with."""
        task = source[0]
        if task.answer is not None and not can_be_compared(task.answer):
            cells = " or ".join(map(printable, task.answer)) if isinstance(task.answer, Mapping) else ""
            within = f" (tasks.columns.answer=COLUMN.CELL, where CELL is {cells})" if cells else ""
            raise RecipeError(
                f"reward.kind: got {self.kind!r}, which compares texts and numbers, and the answer of task {task.id!r} "
                f"is {quoted(task.answer)}; allowed: one that is{within}, or a reward function of your own"
            )

    @abstractmethod
    def build(self, source: TaskSource) -> Grader | ShapingGrader: ...


class ScorerSettings(Component, slot="scorer"):
    """How good a reasoning is by one dimension: confidence, relevance or coherence. It never reads the task's answer,
    nor what the tasks' rule says of the steps."""

    @abstractmethod
    def build(self, source: TaskSource) -> Scorer:
        """Models are loaded, or fitted, at the first question, and shared by all scorers that name the same one.

        Raises:
            RecipeError: a model's files, or the tasks, cannot be used.
        """


class ValueSettings(Component, slot="value"):
    """How the value of unfinished paths is estimated."""

    reads: ClassVar[bool] = True
    """Whether it reads a path's tokens, whose forward passes then count as cost."""
    own_model: ClassVar[bool] = True
    """Whether it has a model beside the policy."""

    @property
    def untrained(self) -> bool:
        """Whether it is untrained so far, so that only a stage that trains it can use it."""
        return False

    def handed_on(self, left_by: Callable[[str], Path]) -> Self:
        """The same settings with what an earlier stage left in the place of its name.

        Args:
            left_by: the value model's folder of a stage, by its name.
        """
        return self

    @abstractmethod
    def build(self, policy: Policy, *, seed: int) -> ValueModel: ...


class LearnerSettings(Component, slot="learner"):
    """How weights are updated."""

    lr: float = Field(default=1e-6, gt=0)
    """Peak learning rate."""

    @property
    def follows_steps(self) -> bool:
        """Whether its updates depend on how many steps the stage has, as with learning-rate decay."""
        return False

    @property
    def precision(self) -> Precision | None:
        """Precision that it computes in, where that is not the weights' own."""
        return None

    def check_installed(self) -> None:
        """Raise RecipeError where a library that it needs is not installed."""

    def layouts(self) -> Mapping[str, Self]:
        """The same learner in each layout of its forward pass, by name: all of them give the same log-probabilities."""
        return {self.kind: self}

    @abstractmethod
    def build(
        self,
        policy: Policy,
        *,
        total_steps: int,
        needs: frozenset[str],
        frozen: FrozenSettings | None = None,
    ) -> Learner: ...


class EngineSettings(Component, slot="engine"):
    """What generates completions."""

    highest_temperature: ClassVar[float] = math.inf
    """At which it samples (no unit)."""
    elsewhere: ClassVar[bool] = False
    """Whether it runs outside of this process, and can be lost while the run goes on (``ServersLost``)."""
    shares_weights: ClassVar[bool] = True
    """Whether it reads the policy's weights where they are, and holds none of its own."""

    def reach(self, model: ModelSettings) -> None:
        """Raise RecipeError where something elsewhere that it needs does not answer as it should.

        Asked before a model is loaded, or anything written over.
        """

    @property
    def precision(self) -> Precision | None:
        """Precision that it computes in, where that is not the weights' own."""
        return None

    @property
    def offers(self) -> frozenset[Gift]:
        """What it gives, of which each of ``OFFERS`` is something beyond tokens."""
        return super().offers | OFFERS

    @abstractmethod
    def build(self, policy: Policy) -> Engine:
        """An engine that serves the policy's weights as they are now. It may share memory with engines built before,
        which then serve nothing until they are loaded again."""


class RuntimeSettings(Component, slot="runtime"):
    """Where a stage's trees grow, and how far they may be ahead of its training."""

    @property
    def lag(self) -> int:
        """Updates by which a step's weights may be newer than those its groups were sampled under; 0: by none."""
        return 0

    @property
    def off_policy(self) -> bool:
        """Whether ratios are relative to the log-probabilities under which tokens were sampled."""
        return False

    @property
    def as_finished(self) -> bool:
        """Whether a step trains groups that have finished, whichever these are, and not those of its number."""
        return False

    def in_turn(self) -> Self:
        """The same for a stage whose trees do not grow while it learns."""
        return self

    def threads_beside(self, threads: int) -> int:
        """CPU threads of this machine with which trees grow beside the run, which computes with so many itself."""
        return 0

    def reach(self, threads: int) -> None:
        """Raise RecipeError where the machines that it needs cannot be reached, or are too few.

        Args:
            threads: of the run.
        """

    @abstractmethod
    def build(self, here: Grows, start: Callable[[], Mapping[str, Any]]) -> Runtime:
        """For one stage of a run.

        Args:
            here: grows trees in this process, which has the state of guides and graders.
            start: what a worker in another process is told: the resolved recipe, and which stage of it.
        """


class TracesSettings(Component, slot="traces"):
    """Which parts of finished trees the policy is fine-tuned on."""

    @abstractmethod
    def build(self) -> Traces: ...

    def check_policy(self, policy: Policy) -> None:
        """Raise RecipeError where the policy's tokenizer cannot encode the traces."""


WHERE_ROWS_ARE = (
    "a file (.jsonl, .json, .parquet, .csv, .tsv)",
    "a folder",
    "owner/name of a dataset on the hub",
)
"""What may be given where a kind is, for slots of rows."""


class TasksSettings(Component, slot="tasks"):
    """Where tasks come from."""

    besides: ClassVar[tuple[str, ...]] = WHERE_ROWS_ARE

    def check_paths(self) -> None:
        """Raise RecipeError for a file that does not exist, before anything is imported that reads one."""

    def paths(self) -> frozenset[str]:
        """Files and hub names that training tasks are read from."""
        return frozenset()

    def whole(self, trained: Collection[str] = ()) -> TasksSettings:
        """The same tasks for evaluation: all rows of a file, unless the settings say which are held out.

        Args:
            trained: files and hub names that are trained on too, of which only the held-out rows remain.
        """
        return self

    @abstractmethod
    def build(self, split: Split, seed: int) -> TaskSource: ...


class DataSettings(Component, slot="data"):
    """Where an offline stage's trajectories come from."""

    besides: ClassVar[tuple[str, ...]] = WHERE_ROWS_ARE

    samples: ClassVar[bool] = False
    """Whether the stage's policy samples them, by the stage's own curriculum, rollout and reward."""

    given: ClassVar[bool] = False
    """Whether a file gives them: ``groups`` reads them one by one. How likely they were as they were written is
    unknown, so that importance ratios can only be to the start of a step."""

    def check_first_rows(self) -> None:
        """Raise RecipeError where a file's first rows show that it is of another kind: known without a tokenizer, whose
        import takes seconds."""

    def check_files(self, tokenizer: PreTrainedTokenizerBase, limit: int, objective: ObjectiveSettings | None) -> None:
        """Raise RecipeError where a file cannot be used, before any model is loaded.

        Args:
            tokenizer: the policy's.
            limit: the model's context, in tokens.
            objective: the stage's, which learns from the file.
        """

    def first_task(self) -> Task:
        """Of data that are ``given``, the prompt of the first row that is used."""
        raise NotImplementedError

    def groups(self, stage: Gathering, home: Path) -> Sequence[Group]:
        """Of data that are ``given``, the finished and graded groups.

        Args:
            home: the stage's folder, from which a resumed run reads the same.
        """
        raise NotImplementedError

    @abstractmethod
    def parts(self, stage: Gathering) -> AsyncIterator[Sequence[Tree]]:
        """Finished and graded trees, one part after another, the same whenever they are asked for. The stage writes
        each part to the run's folder, from which it trains and resumes."""

    def with_budget(self, trajectories: int, tokens: int) -> Self:
        """The data with as many tasks as a budget of sampled tokens may last at most, where it is sampled.

        Args:
            trajectories: per task.
        """
        return self


class ReplaySettings(Component, slot="buffer"):
    """Which recorded groups are trained beside those that a step samples."""

    share: float = Field(default=0.5, gt=0, le=16)
    """Recorded groups per step, relative to ``tasks_per_step`` (no unit); fewer where fewer are there."""
    instead: bool = False
    """Whether they take the place of sampled groups: a step then has ``tasks_per_step`` in all, one of them sampled at
    least."""
    ratio: Literal["behaviour", "step"] = "behaviour"
    """What importance ratios of recorded tokens are relative to: the log-probabilities under which they were sampled,
    or those at the start of the step."""

    def warms_up(self, done: int) -> bool:
        """Whether the step after ``done`` steps of the stage trains nothing: what it samples is only stored."""
        return False

    def number(self, tasks_per_step: int) -> int:
        """Recorded groups per step."""
        wanted = max(1, round(self.share * tasks_per_step))
        return min(wanted, tasks_per_step - 1) if self.instead else wanted

    @abstractmethod
    def build(self, sampled: GroupSource, run: Path, *, seed: int, stage: int, first_step: int) -> GroupSource:
        """For a stage of the run in this folder.

        Args:
            sampled: gives the groups that each step samples.
            seed: of the stage.
            stage: its index.
            first_step: the run's step at which it began.
        """

    def check_files(self, tokenizer: PreTrainedTokenizerBase) -> None:
        """Raise RecipeError where a file cannot be used, before any model is loaded.

        Args:
            tokenizer: the policy's.
        """


Left = Literal["value", "trees", "model", "value-head"]
"""What a stage may leave for later ones: a value model; the trees that it was trained on; its model; for the next one
alone, its value head."""


@dataclass(frozen=True)
class Composition:
    """The components beside a component, in a stage or in a test-time search: what a ``check`` may read.

    Attributes:
        steps: number of steps of the stage.
        max_tokens: maximum tokens that the stage may sample; None for no limit.
        max_tokens_per_task: maximum tokens sampled per task and step; None for no limit.
        evaluated_every: steps between evaluations during training; 0 for none.
        before: the run's stages before this one, by name: what each leaves, and the kind of a value model.
        roles: the stage's models and roles; None in a stage that has none.
        runtime: where the stage's trees grow; None in this process alone.
    """

    steps: int | None = None
    max_tokens: int | None = None
    max_tokens_per_task: int | None = None
    evaluated_every: int = 0
    before: Mapping[str, Mapping[Left, str]] = field(default_factory=dict)
    data: DataSettings | None = None
    curriculum: CurriculumSettings | None = None
    guidance: tuple[GuidanceSettings, ...] = ()
    rollout: RolloutSettings | None = None
    reward: tuple[RewardSettings, ...] = ()
    value: ValueSettings | None = None
    credit: CreditSettings | None = None
    objective: ObjectiveSettings | None = None
    teacher: TeacherSettings | None = None
    average: AverageSettings | None = None
    reference: ReferenceSettings | None = None
    replay: ReplaySettings | None = None
    learner: LearnerSettings | None = None
    engine: EngineSettings | None = None
    runtime: RuntimeSettings | None = None
    roles: Roles | None = None

    def components(self) -> list[Component]:
        """All of them, in the order of the fields."""
        return [part for field in fields(self) for part in self.held(field.name) if isinstance(part, Component)]

    def conflicts(self) -> list[str]:
        """Why its components do not go together, one line each."""
        return [line for part in self.components() for line in part.conflicts(self)]

    def held(self, name: str) -> tuple[Settings, ...]:
        """What is in one of its fields."""
        value = getattr(self, name)
        return tuple(each for each in (value if isinstance(value, tuple) else (value,)) if isinstance(each, Settings))

    @property
    def trajectories(self) -> int | None:
        """The rollout's trajectories per task, where the curriculum sets no number; None: no fixed one."""
        size = None if self.rollout is None else self.rollout.size
        return size.number if size is not None and size.setting != "iterations" else None

    @property
    def trajectories_key(self) -> str:
        """The key of that number, for error lines."""
        size = None if self.rollout is None else self.rollout.size
        return "rollout" if size is None else f"rollout.{size.setting}"

    def without_trees(self, key: str, name: str) -> list[str]:
        """An error line where no earlier stage of that name leaves trees."""
        able = [other for other, left in self.before.items() if "trees" in left]
        if name in able:
            return []
        why = "which leaves no trees (trees_every=0)" if name in self.before else "which is no stage before this one"
        known = ", ".join(able) or "none, as no stage before this one leaves trees (an offline one does)"
        return [f"{key}: got {quoted(name)}{nearest(name, able)}, {why}; allowed: {known}"]

    def without_company(self, why: str, *, other: str = "") -> list[str]:
        """An error line where a task's group has one row, or several that are the same, for what compares rows.

        Args:
            why: who compares them, as a clause.
            other: what is allowed beside more rows.
        """
        if self.trajectories == 1:
            return [f"{self.trajectories_key}: got 1, but {why}; allowed: 2 or more{other}"]
        if self.rollout is not None and not self.guidance and "equal-rows" in self.rollout.offers:
            return [f"rollout.sampling.temperature: got 0, but {why}, which are then equal; allowed: above 0"]
        return []


READ = {
    "teacher": "learns from one; allowed: a folder such as runs/NAME/model",
    "average": "reads the slow average of the policy; allowed: a decay, such as {decay: 0.995}, in a stage that has "
    "one ('online', 'interleaved')",
}
"""What a stage says where it lacks a model that something reads."""


class StageSettings(Component, slot="stages"):
    """A loop that trains the policy."""

    name: str = Field(default="", max_length=60)
    """Name of the stage, by which later stages, overrides (``stages.NAME.steps=5``), metrics and folders call it; by
    default its kind, with ``-2`` for the second one of a kind."""

    grades: ClassVar[bool] = True
    """Whether it may ask the tasks' grader."""
    samples_ahead: ClassVar[bool] = False
    """Whether its trees may grow while it learns."""

    if TYPE_CHECKING:  # each stage has its own defaults and docstrings for these
        steps: int = 1
        learner: LearnerSettings
        engine: EngineSettings

    @field_validator("name")
    @classmethod
    def _can_be_a_key_and_a_folder(cls, value: str) -> str:
        if value and not re.fullmatch(r"[^\W\d][\w+-]*", value):
            raise ValueError(f"got {quoted(value)}; allowed: letters, digits, '_', '+' and '-', a letter first")
        return value

    @property
    def leaves(self) -> frozenset[Left]:
        """What it leaves for later stages beside the policy, whatever ``trees_every`` is."""
        return frozenset()

    def composition(self, reward: tuple[RewardSettings, ...] = ()) -> Composition:
        """The stage's components and limits: those of its fields that ``Composition`` has too.

        Args:
            reward: the recipe's reward, where the stage has none of its own.
        """
        names = {field.name for field in fields(Composition)} & type(self).model_fields.keys()
        held: dict[str, Any] = {name: getattr(self, name) for name in names}
        if "reward" in held:
            held["reward"] = held["reward"] or reward
        if "runtime" in held and not self.samples_ahead:
            held["runtime"] = held["runtime"].in_turn()
        return Composition(**held)

    @abstractmethod
    def in_words(self) -> list[str]:
        """Short phrases that say what it does, first ``100 steps of 32 tasks``."""

    @abstractmethod
    def build(self, session: Session) -> StageRun: ...

    def checked(self, stage: Composition) -> Iterator[tuple[str, Settings]]:
        """Without the reward's parts, which are checked where the recipe's is known, and what this stage leaves out."""
        known = {field.name for field in fields(Composition)}
        return (
            (name, part)
            for name, part in self.nested()
            if not isinstance(part, RewardSettings) and (name not in known or stage.held(name))
        )

    def check(self, stage: Composition) -> list[str]:
        lines: list[str] = []
        held: Any
        for name, held in (("teacher", stage.teacher), ("average", stage.average)):
            readers = [f"{part.slot}.kind '{part.kind}'" for part in stage.components() if name in part.needed]
            if readers and held is None:
                lines.append(f"{name}: got none, but {readers[0]} {READ[name]}")
            if held is not None and not readers:
                got = quoted(held.path) if name == "teacher" else f"decay {held.decay:g}"
                lines.append(f"{name}: got {got}, but nothing here reads it; allowed: none")
        kept = [name for name, left in stage.before.items() if "model" in left]
        for place, one in enumerate(stage.reference.average if stage.reference is not None else ()):
            if one.from_stage is not None and one.from_stage not in kept:
                known = ", ".join(kept) or "none, as no stage before this one leaves its model (keep_stages)"
                got = f"{quoted(one.from_stage)}{nearest(one.from_stage, kept)}"
                lines.append(f"reference.average.{place}.from_stage: got {got}; allowed: {known}")
        return lines

    @property
    def sampling(self) -> Sampling:
        """How evaluations sample where the recipe does not say."""
        rollout = self.composition().rollout
        return Sampling() if rollout is None else rollout.sampling

    def with_budget(self, tokens: int, *, keep_steps: bool) -> Self | None:
        """The stage with this token budget, and the most steps that the budget may last for; None where it samples
        nothing.

        Args:
            keep_steps: keep its number of steps.
        """
        return None
