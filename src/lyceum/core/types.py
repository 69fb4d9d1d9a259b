"""What flows between the slots, and the interface of each slot.

The slots themselves (``tasks``, ``rollout``, ``credit``, ...) hold implementations; this file holds their types.
Axis names in tensor annotations, here and everywhere: ``T`` unique tokens of a forest, ``R`` rows (trajectories),
``L`` tokens of the longest row, ``S`` segments (a row's pass through a node), ``G`` groups.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from enum import IntEnum
from types import MappingProxyType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Generic,
    Literal,
    NamedTuple,
    Protocol,
    Self,
    TypeVar,
    runtime_checkable,
)

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped
from numpy.typing import NDArray
from pydantic import Field, field_validator

from lyceum.core.component import Component, Settings, require_keys, slot
from lyceum.core.notes import AnyNote, Note, typed
from lyceum.utils.lazy_imports import Tensor
from lyceum.utils.seeds import SeedKey

if TYPE_CHECKING:
    from pathlib import Path

    from torch import nn

    from lyceum.core.forest import Forest
    from lyceum.core.group import Group
    from lyceum.core.settings import StageSettings
    from lyceum.core.solution import Solution
    from lyceum.core.tree import Node, Tree
    from lyceum.models.policy import Policy

Message = Mapping[str, Any]
"""A chat message: ``role`` and ``content``, a text or a list of parts: ``{"type": "text", "text": TEXT}``, or
``{"type": "image", "image": PATH_OR_URI}`` for models that see."""

Row = Mapping[str, Any]
"""A dataset's row: plain values by column."""

T = TypeVar("T")

State = dict[str, Any]
"""One object's state in a checkpoint: plain values and tensors by name."""

StepMetrics = dict[str, Any]
"""What is logged of a step, by name: numbers, and human-readable text."""


class Stateful(Protocol):
    """Saves and restores all the state that a resumed run needs."""

    def state_dict(self) -> State: ...

    def load_state_dict(self, state: State, /) -> None: ...


class Origin(IntEnum):
    """Author of a node's tokens: who wrote them.

    The policy alone is trained as policy, and its tokens alone count against limits. Verifiers read the assistant's
    side (``ASSISTANT``): what a user, an environment or a tool wrote can earn nothing.
    """

    PROMPT = 0
    """The task's prompt, and below it the messages of a user or an environment."""
    POLICY = 1
    """A model of the run."""
    HINT = 2
    """Help that stands below a prompt."""
    TEACHER = 3
    """A demonstration."""
    TOOL = 4
    """What a tool returned."""
    PREFIX = 5
    """The beginning of a completion, given to the policy to continue."""


ASSISTANT = (Origin.POLICY, Origin.PREFIX, Origin.TEACHER)
"""Authors of a completion: what verifiers read."""


@dataclass(frozen=True)
class Hint:
    """Help with a task, to be put in its prompt.

    Attributes:
        tier: how concrete it is: ``knowledge``, ``planning``, ``solution``, or a dataset's own word.
        text: what the prompt says.
    """

    tier: str
    text: str


@dataclass(frozen=True)
class Task:
    """One problem: the fields of its source, and what one component of the loop tells another about it.

    Attributes:
        id: unique in its source, stable between runs (it keys random draws and outcomes).
        messages: the prompt as chat messages, rendered by the model's own chat template.
        answer: reference answer for the verifier; None where it is unknown.
        columns: the dataset's further columns (``level``, ``steps``, ``hints``, ...), passed to user functions as
            keywords. Nothing in the loop writes there.
        provenance: where the task came from (a dataset's name, ``"policy"`` for one that a model wrote).
        samples: trajectories to sample in this step; None leaves the number to the rollout. Written by curricula and
            guides, read by rollouts.
        hint: the hint in its prompt; None without. Written by ``TaskSource.hinted``, read by guides, which note it on
            the hinted prompt.
        notes: what components tell each other about it (``core/notes.py``), by their kinds; read with :meth:`note`,
            written with :meth:`with_note`.
    """

    id: str
    messages: tuple[Message, ...]
    answer: Any = None
    columns: Mapping[str, Any] = field(default_factory=dict)
    provenance: str = "dataset"
    samples: int | None = None
    hint: Hint | None = None
    notes: Mapping[str, Note | Mapping[str, Any]] = field(default_factory=dict)

    def with_messages(self, messages: Sequence[Message], *, hint: Hint | None = None) -> Task:
        """The same problem under another prompt (a rewrite, or one with a hint); the id stays, so the group stays."""
        return replace(self, messages=tuple(messages), hint=hint or self.hint)

    def note(self, kind: type[AnyNote]) -> AnyNote | None:
        """The note of a class; None without one."""
        value = self.notes.get(kind.kind)
        return None if value is None else typed(kind, value)

    def with_note(self, note: Note) -> Task:
        """The same task with a note, in the place of an earlier one of its class."""
        return replace(self, notes={**self.notes, note.kind: note})

    def public(self) -> Task:
        """The task as user functions get it: id, messages, answer, columns and provenance alone."""
        return Task(self.id, self.messages, self.answer, self.columns, self.provenance)


def is_scalar(value: Any) -> bool:
    """Whether it is a text, a truth value or a finite number."""
    return isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value))


def is_answer(value: Any) -> bool:
    """Whether it can be a reference answer: a text, a number, or a list or an object that holds something."""
    return is_scalar(value) or (isinstance(value, list | Mapping) and bool(value))


def can_be_compared(answer: Any) -> bool:
    """Whether verifiers can compare a completion with it: a text, a number, or a list of these."""
    return is_scalar(answer) or (isinstance(answer, list | tuple) and bool(answer) and all(map(is_scalar, answer)))


@dataclass(frozen=True)
class LeftOut:
    """Tasks that are not trained, or not as they are: rows that cannot be used, and what a source leaves out by choice.

    Attributes:
        dropped: how many rows are left out.
        cut: how many prompts are shortened.
        named: the first of them, each with its file, its line and what is wrong.
        shared: how many could be used, but are evaluated on and therefore not trained.
        chosen: how many a source leaves out, by its reasons.
        not_taken: the first of those, each with the reason.
    """

    NAMED: ClassVar[int] = 5

    dropped: int = 0
    cut: int = 0
    named: tuple[str, ...] = ()
    shared: int = 0
    chosen: Mapping[str, int] = field(default_factory=dict)
    not_taken: tuple[str, ...] = ()

    def __add__(self, other: LeftOut) -> LeftOut:
        return LeftOut(
            self.dropped + other.dropped,
            self.cut + other.cut,
            (*self.named, *other.named)[: self.NAMED],
            self.shared + other.shared,
            {of: self.chosen.get(of, 0) + other.chosen.get(of, 0) for of in {**self.chosen, **other.chosen}},
            (*self.not_taken, *other.not_taken)[: self.NAMED],
        )

    def __str__(self) -> str:
        counts = [f"{self.dropped} left out" if self.dropped else "", f"{self.cut} cut" if self.cut else ""]
        more = self.dropped + self.cut - len(self.named)
        listed = "; ".join([*self.named, *([f"and {more} more"] if more else [])])
        return f"{' and '.join(filter(None, counts))}: {listed}"


class PromptReader(Protocol):
    """The model that tasks are for, as far as its tokenizer says what it can read.

    Attributes:
        limit: tokens that it has room for, of which a prompt leaves one at least.
    """

    limit: int

    def tokens(self, task: Task) -> int:
        """The prompt's tokens as the chat template renders it; of one that cannot fit by far, its characters.

        Raises:
            RecipeError: it cannot be rendered.
        """
        ...

    def check(self, task: Task) -> None:
        """Raise RecipeError for a prompt that the model cannot read: too long, or with characters that it lacks."""
        ...


class TaskSource(Protocol):
    """A sequence of tasks, made on demand: ``source[i]`` is the same task in every process.

    A sequence, not a stream, so that a curriculum can draw by index and a resumed run can continue where it stopped.
    ``lyceum.tasks.base.Source`` is a base class with all methods but the first three. What only some sources can do is
    in ``core/sources.py``.
    """

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Task: ...

    def grader(self) -> Grader:
        """The verifier that fits these tasks: what ``reward: task`` uses."""
        ...

    def row(self, index: int) -> Row | None:
        """The dataset's own row that a task was made from; None where tasks are generated."""
        ...

    def imitated(self, task: Task) -> str | None:
        """The completion that fine-tuning imitates; None where the task has none."""
        ...

    def hinted(self, task: Task, hint: Hint) -> Task:
        """The same problem with a hint in its prompt, and as its ``hint``; the id stays.

        The one way to put text into a task's prompt: each source writes it in its own form. Datasets append a line
        ``Hint: TEXT``; sources that build the prompt anew, as ``chain`` does, replace an earlier hint.
        """
        ...

    def solution(self, task: Task) -> Solution | None:
        """The task's solution, to be given in part; None where it has none of at least two steps."""
        ...


@runtime_checkable
class ProposedSource(Protocol):
    """A task source for which a model can write tasks, whose answers a rule computes."""

    def to_propose(self, task: Task) -> Sequence[Message]:
        """The prompt that asks for a task unlike this one."""
        ...

    def proposed(self, text: str, like: Task) -> Task | str:
        """The task that a proposal's text states, in the training split; or why it is none, in a word.

        The text is a model's: anything.

        Args:
            like: the task that the proposal was to be unlike.
        """
        ...


class JudgedStep(NamedTuple):
    """A step of a completion, ``completion[start:stop]`` in characters, and its reward in the verifier's unit."""

    start: int
    stop: int
    reward: float


@dataclass(frozen=True)
class Grade:
    """A grader's verdict on one trajectory.

    Attributes:
        outcome: the scalar reward that credit starts from, in the verifier's unit; None where it could not be graded.
        correct: whether the answer is correct, apart from any shaping; None where correctness is not defined.
        steps: the judged steps, as spans of the completion's text; ``core/spans.py`` says which tokens they are.
        parts: the named summands of ``outcome``, before weighting, for logging.
        reason: why there is no outcome, or why a part of weight 0, which is only logged, gave none. A task that
            cannot be graded is counted, never scored 0.
        details: where a user's function failed: the row that it was given and its traceback; where a program did, how.
        answered: whether an answer was found in the expected place, correct or not; None where the grader does not say.
        plain: where no part says whether the answer is correct: numbers by part. If a part's are all 0 or 1, they are
            taken as verdicts (``verdict_reader``). None: the outcome is the only one.
    """

    outcome: float | None
    correct: bool | None = None
    steps: tuple[JudgedStep, ...] = ()
    parts: Mapping[str, float] = field(default_factory=dict)
    reason: str | None = None
    details: str | None = None
    answered: bool | None = None
    plain: Mapping[str, float] | None = None

    @property
    def numbers(self) -> Mapping[str, float]:
        """The numbers, by part, that say whether the answer is correct if they are all 0 or 1."""
        if self.correct is not None or self.outcome is None:
            return {}
        return {"": self.outcome} if self.plain is None else self.plain

    @property
    def verdict(self) -> bool | None:
        """Correct or incorrect: what the grader says, or else what a single number of exactly 1 or 0 means. Of several
        numbers one grade does not tell which judge (``verdict_reader`` asks them all)."""
        numbers = list(self.numbers.values())
        return numbers[0] == 1.0 if len(numbers) == 1 and numbers[0] in (0.0, 1.0) else self.correct

    @classmethod
    def ungraded(cls, reason: str, details: str | None = None) -> Grade:
        return cls(outcome=None, reason=reason, details=details)


def verdict_reader(grades: Iterable[Grade | None]) -> Callable[[Grade | None], bool | None]:
    """How grades are read as verdicts, decided by all grades of an evaluation, a step or a group.

    A grade's own ``correct`` counts. Without it the numbers of a part are verdicts (1 is correct) where all of them are
    0 or 1; a part with any other number shapes the reward and judges nothing: an accuracy of the samples that happen to
    have exactly 0 or 1 would be biased. Correct is what every part that judges says.
    """
    binary: dict[str, bool] = {}
    for grade in grades:
        for name, number in ({} if grade is None else grade.numbers).items():
            binary[name] = binary.get(name, True) and number in (0.0, 1.0)

    def read(grade: Grade | None) -> bool | None:
        if grade is None or grade.correct is not None:
            return None if grade is None else grade.correct
        said = [number == 1.0 for name, number in grade.numbers.items() if binary.get(name)]
        return all(said) if said else None

    return read


class ConstraintState(Protocol):
    """Where a completion stands in a constraint: a function of the tokens that the assistant has written so far."""

    def allowed(self) -> NDArray[np.int32]:
        """(ceil(V / 32),) packed bits, lowest first: the tokens that may follow; at least one.

        Raises:
            RecipeError: no token of the vocabulary may follow, or the constraint exceeds its limits.
        """
        ...

    def advance(self, tokens: Sequence[int]) -> bool:
        """Append tokens; False where one of them is not allowed: the state can then no longer be used.

        Raises:
            RecipeError: the constraint exceeds its limits.
        """
        ...

    def copy(self) -> ConstraintState: ...


class Constraint(Protocol):
    """Which tokens may follow those that the assistant has written: a transform of the logits, applied by the engine
    after the temperature and before truncation, and repeated by the learner from a path's tokens. It begins anew after
    the text of anyone else."""

    def begin(self) -> ConstraintState:
        """The state before the first token."""
        ...


class ConstraintSettings(Component, slot="constraint"):
    """What completions may be. A constraint never depends on the weights."""

    requires: ClassVar = ("constraint",)

    def __hash__(self) -> int:
        return hash(self.model_dump_json())

    @abstractmethod
    def build(self, policy: Policy) -> Constraint:
        """For a policy's vocabulary.

        Raises:
            RecipeError: its tokens cannot be read as text, or cannot write what the constraint asks for.
        """


class TemperatureRule(Protocol):
    """A temperature for each token, by the distribution that it is drawn from.

    It can be hashed: tokens under equal rules are drawn together.
    """

    @property
    def usual(self) -> float:
        """The temperature that the learner takes log-probabilities at, above 0."""
        ...

    def __hash__(self) -> int: ...

    def __call__(self, logits: Float[Tensor, "A V"]) -> Float[Tensor, " A"]:
        """The temperature of each row, above 0: a function of its logits alone.

        Args:
            logits: float32, of the model; -inf where a constraint forbids the token.
        """
        ...


if TYPE_CHECKING:
    Temperature = float | TemperatureRule
else:
    Temperature = float  # A recipe gives a number; code sets a rule in a copy (``model_copy``), which is not validated.


class Sampling(Settings):
    """How the next token is drawn. The order is temperature, constraint, top-k, top-p, min-p, then one draw from what
    is left."""

    temperature: Temperature = Field(default=1.0, ge=0, le=100)
    """Sampling temperature (no unit), divides the logits; 0 is greedy, otherwise 0.001 or more."""
    top_k: int = Field(default=0, ge=0)
    """Number of most likely tokens kept (top-k); 0 keeps all."""
    top_p: float = Field(default=1.0, ge=1e-6, le=1)
    """Nucleus probability (top-p): the smallest set of tokens with at least this total probability is kept."""
    min_p: float = Field(default=0.0, ge=0, le=1)
    """Minimum probability of a kept token, as a fraction of the most likely one's."""
    max_completion_tokens: int = Field(default=64, ge=1)
    """Maximum tokens per completion."""
    stop: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    """Strings that end a continuation; the text keeps the string, as vLLM's include_stop_str_in_output does."""
    stop_token_ids: tuple[Annotated[int, Field(ge=0)], ...] = ()
    """Token ids that end a continuation, besides the model's own end-of-sequence tokens."""
    constraint: Annotated[ConstraintSettings, slot("constraint")] | None = None
    """What completions may be, such as JSON of a schema; null allows any text."""

    @field_validator("temperature")
    @classmethod
    def _logits_stay_finite(cls, temperature: float) -> float:
        if 0 < temperature < 0.001:  # divided by 1e-300 a logit is infinite
            raise ValueError(f"got {temperature:g}; allowed: 0 (greedy), or 0.001 to 100")
        return temperature

    @property
    def usual_temperature(self) -> float:
        """The temperature; where a rule gives each token's (a recipe gives a number), the learner's."""
        return self.temperature if isinstance(self.temperature, int | float) else self.temperature.usual

    def at_most(self, tokens: int) -> Self:
        """The same distribution, limited to ``tokens`` tokens."""
        return self.model_copy(update={"max_completion_tokens": tokens})

    def affordable(self, written: int, budget: int) -> Self:
        """The same distribution, limited to what a trajectory with ``written`` tokens may still write, and to a budget
        (tokens); at least one token."""
        return self.at_most(max(1, min(self.max_completion_tokens - written, budget)))


@dataclass(frozen=True)
class Request:
    """``n`` continuations of one prefix.

    Attributes:
        prefix: the tokens so far: a prompt, or the path to any inner node.
        seeds: one per continuation; with the same weights, sample i is a function of prefix, sampling, seeds[i].
        keep: keep the KV cache, because the caller will continue from it.
        order: requests waiting together are admitted in this order, whatever order they arrived in.
        written: how many of the prefix's last tokens belong to the completion: a stop string may begin in them, and
            ends in a token that is drawn; a constraint has begun before them.
        top: number of most likely tokens to report with each drawn one (``Continuation.top``).
        entropy: report the entropy of each drawn token's distribution (``Continuation.entropy``).
        model: number of the model that is asked, where an engine serves several; others ignore it.
    """

    prefix: Sequence[int]
    seeds: Sequence[int]
    sampling: Sampling
    keep: bool = False
    order: tuple[int | str, ...] = ()
    written: int = 0
    top: int = 0
    entropy: bool = False
    model: int = 0


TopTokens = tuple[tuple[int, float], ...]
"""(token, log-probability in nats) of the most likely tokens, the likeliest first."""


Choices = NDArray[np.int16]
"""(n, choices) of n tokens: the experts that routers sent one to."""


def no_choices() -> Choices:
    return np.zeros((0, 0), np.int16)


@dataclass
class Continuation:
    """Tokens that an engine drew.

    Attributes:
        tokens: the drawn tokens, the one that ended it included.
        behaviour_logprob: nats, of the distribution really drawn from (after temperature and truncation).
        model_logprob: nats, of the model's own distribution (temperature 1, no truncation); nan where the engine does
            not offer it.
        version: of the weights each token was drawn under.
        finish: ``"stop"`` (end of sequence, stop token or stop string) or ``"length"`` (the limit came first).
        top, entropy: of each drawn token's distribution: its most likely tokens, and its entropy (nats); empty where
            not requested. Of the model's own distribution over the tokens that the constraint allows.
        experts: (tokens, choices) of each drawn token: the experts that the token before it went to, one router's after
            another's; none where the engine does not record them.
        prefix_experts: the same of the prefix's tokens, but for its first, before which there is none; -1 where it is
            not known.
    """

    tokens: list[int]
    behaviour_logprob: list[float]
    model_logprob: list[float]
    version: list[int]
    finish: str
    top: list[TopTokens] = field(default_factory=list)
    entropy: list[float] = field(default_factory=list)
    experts: Choices = field(default_factory=no_choices, compare=False)
    prefix_experts: Choices = field(default_factory=no_choices, compare=False)


UnderWay = Literal["refuse", "recompute", "keep"]
"""What becomes of samples under way as an engine loads new weights: they are an error; or they go on under the new
weights, with caches computed again under these, or kept as the old weights computed them."""


@runtime_checkable
class Engine(Protocol):
    """Tokens in, tokens and log-probabilities out, for many callers at once.

    Attributes:
        version: version of the weights that it serves.
        may_step: awaited before each step, until all callers that will come have sent their next requests: until the
            event loop is idle, or what a runtime sets.
    """

    version: int
    may_step: Callable[[], Awaitable[None]]

    @property
    def tokens_computed(self) -> int:
        """Tokens that went through the model since the engine was built; shared tokens count once."""
        ...

    async def extend(self, request: Request) -> list[Continuation]: ...

    async def score(self, tokens: Sequence[int]) -> list[float]:
        """Model log-probability (nats, temperature 1) of each token given those before it; 0.0 for the first."""
        ...

    async def load(self, weights: nn.Module | Mapping[str, Tensor], version: int) -> None:
        """Serve these weights from now on. In process ``weights`` is the module itself.

        An engine may read the module in place or hold a copy: it is loaded after every change, and before the first
        request where the weights may have changed since it was built.
        """
        ...


class GoesOn(Engine, Protocol):
    """An engine that takes new weights while samples are under way (it offers "interrupt")."""

    async def load(
        self, weights: nn.Module | Mapping[str, Tensor], version: int, *, under_way: UnderWay = "refuse"
    ) -> None: ...


class RecordsRouting(Engine, Protocol):
    """An engine that can say which experts tokens went to (it offers "routing")."""

    def record_routing(self) -> None:
        """From now on record it (``Continuation.experts``).

        Raises:
            RecipeError: the model has no routers that this works for.
        """
        ...


class Scored(NamedTuple):
    """A path whose tokens ``start`` to ``stop`` are scored: nats of each, at temperature 1, given those before it.

    ``start`` is 1 or more: nothing predicts the first token.
    """

    tokens: Sequence[int]
    start: int
    stop: int


class MarkedPath(NamedTuple):
    """A path, and where a value model reads it.

    Attributes:
        tokens: from the prompt's first on.
        prompt: how many of them are the prompt's.
        ends: ends of its steps, increasing, in tokens of the path; none: its end alone.
        starts: where each begins, where steps are turns with something between them; else where the one before ends.
    """

    tokens: Sequence[int]
    prompt: int = 0
    ends: Sequence[int] = ()
    starts: Sequence[int] = ()


class Judgement(NamedTuple):
    """What a value model says of a path, as rewards: its outcome, one for each end, and what is only logged."""

    outcome: float
    steps: Sequence[float]
    parts: Mapping[str, float] = MappingProxyType({})


class Example(NamedTuple):
    """A path that a value model learns from, and its value."""

    tokens: Sequence[int]
    value: float
    prompt: int = 0
    ends: Sequence[int] = ()


History = Literal["append", "template"]
"""How a conversation goes on where the template writes earlier turns otherwise than they were sampled: what was sampled
stands and the new messages are appended, or the path is left where the template's history differs."""


class ToolCall(NamedTuple):
    """A call that can be read; whether there is such a tool, and it takes these arguments, is not checked yet."""

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True)
class Spoken:
    """What a turn says in the model's own form.

    Attributes:
        content: what is neither thought nor call.
        thoughts: what the model marks as such.
        calls: of tools; None where they are in the content, as ``<tool_call>{"name": ...}</tool_call>``.
        fault: why calls cannot be read; empty where they can.
    """

    content: str
    thoughts: str = ""
    calls: tuple[ToolCall, ...] | None = ()
    fault: str = ""


class GradingContext(Protocol):
    """One task in one step, as graders see it: what they may ask of the run's own model."""

    @property
    def step(self) -> int:
        """Steps of this stage that are done. For a share of the stage compare ``progress``."""
        ...

    @property
    def progress(self) -> float:
        """Fraction of the stage that is done, 0 to 1: of its steps or of its token budget, whichever is further."""
        ...

    def render(self, messages: Sequence[Message]) -> list[int]: ...

    def decode(self, tokens: Sequence[int]) -> str: ...

    def encode(self, completion: str) -> list[int]:
        """Tokens of a completion that the policy did not write, its end of sequence included."""
        ...

    def encode_after(self, path: Sequence[int], text: str) -> list[int]:
        """Tokens of a text that goes on right after these tokens, which stay as they are."""
        ...

    def spoken(self, turn: Node) -> Spoken | None:
        """What the turn that ends in a node says, read as the model's chat template writes; None where that has no form
        of calls."""
        ...

    @property
    def folder(self) -> Path | None:
        """Where a grader may keep what it paid for (a judge's replies), in the run's folder; None where nothing is
        kept, as in evaluations."""
        ...

    async def ask(
        self, prefix: Sequence[int], n: int, sampling: Sampling, *, key: tuple[SeedKey, ...]
    ) -> list[Continuation]:
        """``n`` continuations of a prefix, beside the task's tree: they are not trained, and count as sampled.

        Args:
            key: separates the draws from those of the task's other questions.
        """
        ...

    async def score(self, path: Sequence[int]) -> list[float]:
        """The model's log-probability (nats, temperature 1) of each token given those before it; 0.0 for the first."""
        ...

    async def score_under(self, model: FrozenName, paths: Sequence[Scored]) -> list[list[float]]:
        """Log-probabilities under one of the stage's frozen models, which the paths go through together.

        Raises:
            RuntimeError: the stage has no such model. A reward that asks it says so (``requires``).
        """
        ...

    async def judge(self, paths: Sequence[MarkedPath]) -> list[Judgement]:
        """What the stage's value model says of paths, as rewards.

        Raises:
            RuntimeError: the stage has none that judges. A reward that asks it says so (``requires``).
        """
        ...

    def seed(self, *key: SeedKey) -> int:
        """A 63-bit seed from (run seed, step, task, key): the same whenever and wherever it is computed.

        A grader that draws keys it by its kind and ``Node.address``.
        """
        ...


class Context(GradingContext, Protocol):
    """One task in one step: its tree, which it owns, and what a rollout may ask for. Counts what is sampled."""

    @property
    def task(self) -> Task: ...

    @property
    def tree(self) -> Tree:
        """The task's tree, whose root is the task's own rendered prompt."""
        ...

    @property
    def version(self) -> int: ...

    async def extend(
        self,
        node: Node,
        n: int,
        sampling: Sampling | None = None,
        *,
        keep: bool = False,
        top: int = 0,
        entropy: bool = False,
        draws: Sequence[int] | None = None,
    ) -> list[Node]:
        """``n`` new children of ``node``, written by the policy.

        Args:
            keep: the children will probably be extended, so that their cache is worth keeping; changes no result.
            top, entropy: report them of each token, as ``Node.top`` and ``Node.entropy``.
            draws: number of each draw among all from this node, where the order in which they are asked for may differ
                from run to run; None goes on from ``Node.draws``.
        """
        ...

    def choose(self, node: Node, token: int, logprob: float, sampling: Sampling) -> Node:
        """A new child of one token that the rollout chose among ``Node.top``: it counts as sampled, with a behaviour
        log-probability of 0.

        Args:
            logprob: nats, in the model's own distribution.
            sampling: whose stops may end the completion with this token.
        """
        ...

    async def grade(self, leaves: Sequence[Node]) -> list[Grade]:
        """The grades of finished trajectories; those without one are graded, together, and keep it.

        For rollouts that go on by them: the engine waits meanwhile. What a rollout returns ungraded is graded after it.
        """
        ...

    async def value(self, paths: Sequence[Node]) -> list[float]:
        """Values of paths, finished or not, by the stage's value model; calls of many tasks are batched.

        Raises:
            RuntimeError: the stage has no value model. A rollout that needs one says so in its ``check``.
        """
        ...

    def follow(self, node: Node, messages: Sequence[Message], history: History = "append") -> tuple[int, list[int]]:
        """How the conversation goes on after the answer that ends in ``node``: by the chat template, up to where the
        next answer begins.

        Returns:
            How many tokens of the path stand, and those that come after them. Where history is appended to all stand;
            with ``template`` fewer where the template rewrites it: the path is left there.
        Raises:
            ValueError: the prompt above ``node`` was not rendered by this context.
        """
        ...

    def tokens_left(self, node: Node) -> int:
        """Tokens left below a node in the model's context; at 0 it cannot be extended."""
        ...

    @property
    def budget_left(self) -> int:
        """Tokens this task may still sample in this step."""
        ...

    def share(self, tokens: int) -> Context:
        """The same task with a budget of at most this many tokens, for one of several rollouts at once."""
        ...

    async def outside(self, answer: Awaitable[T]) -> T:
        """What a tool or another process answers, after a time that varies: the engine waits with it, so that batches
        form in the same order, and goes on where it asks the run's model."""
        ...

    def served(self, episode: int, sampling: Sampling, limits: ServedLimits) -> AbstractAsyncContextManager[Served]:
        """Access to the run's model for one episode of someone who asks by OpenAI's interface. What is sampled stands
        in this task's tree; the engine waits as in :meth:`outside`.

        Args:
            episode: its number in the tree, which keys its draws.
            sampling: of each request; ``max_completion_tokens`` is for all of them together.
        Raises:
            TimeoutError: inside, at the time limit (``Served.late``).
        """
        ...

    def acting(self, role: str, task: Task | None = None) -> Context:
        """The same tree, extended by the model that plays a role in this step.

        Args:
            task: what is answered and graded there, where that is not the tree's own task: one that a model wrote.
        """
        ...

    def with_sampling(self, change: Callable[[Sampling], Sampling], *, entropy: bool = False) -> Context:
        """The same tree, extended with what ``change`` makes of each ``sampling``.

        Args:
            entropy: keep every token's on its node.
        """
        ...


SERVED_MODEL = "policy"
"""What agents are told that the run's model is called; they may call it anything."""


class ServedLimits(NamedTuple):
    """What one episode may ask for.

    Attributes:
        requests: maximum number of requests that are answered.
        seconds: maximum time that it may take between requests, all together; what the engine takes does not count.
        waits: whether the engine waits for it between requests.
    """

    requests: int
    seconds: float
    waits: bool = True


class Served(Protocol):
    """One episode's access to the run's model, by OpenAI's chat completions.

    Attributes:
        key: of this episode alone, until it ends.
        leaves: where what it sampled ends, in the order in which it was asked for.
        counts: what it did, by name: requests, refused ones, ...
        cut: the limit that refused it something; empty where none did.
        late: whether it ran into its time limit.
        error: of the run itself, which ended it.
    """

    key: str
    counts: Counter[str]
    cut: str
    late: bool
    error: Exception | None

    @property
    def leaves(self) -> list[Node]: ...

    async def address(self) -> str:
        """The base URL, on this machine alone: ``http://127.0.0.1:PORT/v1``."""
        ...

    def client(self) -> Any:
        """An ``openai.AsyncOpenAI`` that needs no socket. Whoever asks by it asks in an order that time does not
        change."""
        ...


S = TypeVar("S")
S_contra = TypeVar("S_contra", contravariant=True)


@dataclass(frozen=True)
class Observation(Generic[S]):
    """What an environment answers to a turn of the policy: messages, or tokens, or neither where it ends.

    Attributes:
        state: after the turn.
        messages: a tool's results or a user's next message, which the chat template writes after the policy's turn.
        tokens: what stands within the policy's turn, which goes on right after it.
        reward: of the turn (``Node.reward``), in the environment's unit.
        end: whether the trajectory ends with the turn.
        key: name of the state (``Node.key``); None where nothing names one.
        calls, failed: how often the turn called a tool, and how many of these calls got an error.
        counts: what else is counted of the turn: the names are the settings' ``counted``.
    """

    state: S
    messages: tuple[Message, ...] = ()
    tokens: tuple[int, ...] = ()
    reward: float = 0.0
    end: bool = False
    key: str | None = None
    calls: int = 0
    failed: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)


class Exchange(NamedTuple):
    """A turn of the policy and what the environment answered, as texts."""

    said: str
    observed: str


class Environment(Protocol[S]):
    """What answers the policy's turns: a tool, a game, a search engine.

    ``S`` is its state, a value that it never changes in place: several turns may be tried from the same one.
    """

    def reset(self, task: Task) -> S:
        """The state in which a task begins."""
        ...

    async def step(self, state: S, turn: Node, said: str, context: GradingContext) -> Observation[S]:
        """What happens when the policy ends a turn.

        Args:
            turn: the node in which it ends; not in a maximum length.
            said: the assistant's text since the environment's last answer, or since the prompt.
            context: for asking the run's model, keyed by ``turn.address``.
        """
        ...

    def replay(self, task: Task, exchanges: Sequence[Exchange]) -> S:
        """The state after turns that stand already, without asking anyone: rollouts start anywhere."""
        ...


@runtime_checkable
class NamesStates(Protocol[S_contra]):
    """An environment that names a state without a turn, so that those in which trajectories begin have a key too."""

    def key_of(self, state: S_contra) -> str:
        """The name that ``Observation.key`` gives the same state."""
        ...


class World(Protocol[S]):
    """What answers the policy's turns and cannot be copied: a process, a browser, a connection, a game's own object.

    Each trajectory has one of its own, from ``begin`` to ``end``; ``S`` may change in place. All three may be async.
    """

    def begin(self, task: Task) -> tuple[S, Sequence[Message]] | Awaitable[tuple[S, Sequence[Message]]]:
        """A world for a trajectory of this task, and messages that come after the task's own."""
        ...

    def step(self, state: S, said: str) -> Observation[S] | Awaitable[Observation[S]]:
        """What happens when the policy ends a turn with this text."""
        ...

    def end(self, state: S) -> Awaitable[None] | None:
        """The trajectory is over, however it ended: once for each ``begin``."""
        ...


Rollout = Callable[[Context, "Node", int | None], Awaitable[list["Node"]]]
"""``async (context, start, n) -> leaves``: straight-line async code about one task. Draws trajectories through
``start``, a prompt or any node below one, and returns those that are trained.

``n`` is how many are wanted; None leaves it to the rollout. Limits count ``Node.policy_tokens``. A leaf without a
``finish`` goes on in the next step, where the rollout is called with it as start; its tree is trained when all of its
leaves are finished."""


class Guidance(Stateful, Protocol):
    """Wraps a rollout into one that helps where needed. ``lyceum.guidance.base.Guide`` is a base class."""

    def __call__(self, rollout: Rollout) -> Rollout: ...

    def observe(self, trees: Sequence[Tree]) -> None:
        """A step's finished trees, in the order in which their tasks were drawn, after the weights were updated."""
        ...

    def metrics(self) -> dict[str, float]:
        """Its estimates and what it did in the step just observed, as ``what/of`` -> number.

        They are logged as ``guidance/KIND/what/of``; each ``what`` is a chart of the report, and ``groups/guided``, the
        groups that were helped, is shown while the run goes on.
        """
        ...


class ValueModel(Stateful, Protocol):
    """Estimates whether a path, finished or not, ends in a correct answer. ``lyceum.value`` holds them."""

    def __call__(self, paths: Sequence[Node]) -> list[float]:
        """The estimated probability (0 to 1) that a trajectory through each node ends correct, prompts included."""
        ...


class JudgingValue(ValueModel, Protocol):
    """A value model that gives rewards."""

    def judge(self, paths: Sequence[MarkedPath]) -> list[Judgement]: ...


class ObservingValue(JudgingValue, Protocol):
    """A value model that learns from each step of an online stage by itself."""

    def observe(self, trees: Sequence[Tree]) -> None:
        """A step's finished trees, those that were dropped too, after the policy was updated."""
        ...

    def metrics(self) -> dict[str, float]:
        """What it learnt from the step just observed; logged as ``value/NAME``."""
        ...


class TrainableValue(JudgingValue, Protocol):
    """A value model that learns from the outcomes of paths."""

    def fit(self, examples: Sequence[Example]) -> dict[str, float]:
        """Learn the values of paths; returns metrics by name.

        Args:
            examples: paths with target values in 0 .. 1; for a loss of pairs the better and the worse path of each, in
                turn, their values unread.
        """
        ...

    def losses(self, examples: Sequence[Example]) -> list[float]:
        """The loss of each example, or of each pair, without learning from it."""
        ...

    def save(self, folder: Path) -> None:
        """Save it to a folder that its settings can load."""
        ...


Grader = Callable[[Task, Sequence["Node"], GradingContext], Awaitable[list[Grade]]]
"""Trajectories of one task in, one grade per trajectory out, in order. A reward may depend on all of the set: on the
whole group where a rollout grades at its end, on the new trajectories alone where a tree search or a guide grades on
its way. One that asks the run's model declares it (``RewardSettings.asks_model``). A function, or an object
(:class:`lyceum.reward.base.BaseGrader`) where it learns from the steps of the stage."""


class Reasoned(NamedTuple):
    """A trajectory as scorers read it.

    Attributes:
        leaf: where it ends.
        question: the task's messages, as a text.
        reasoning: the completion up to where its answer begins, without the mark between them.
        answer: the answer, as the completion has it.
    """

    leaf: Node
    question: str
    reasoning: str
    answer: str


class Scorer(Stateful, Protocol):
    """How good a reasoning is by one dimension, without the reference answer; ``lyceum.reward.scorer.base.BaseScorer``
    is a base class."""

    async def __call__(self, task: Task, reasonings: Sequence[Reasoned], context: GradingContext) -> list[Grade]:
        """One grade per trajectory of a task, in order: the score as its outcome, or why there is none."""
        ...

    def metrics(self) -> dict[str, float]:
        """What it did since it was built (calls, failures), by name."""
        ...


class Curriculum(Stateful, Protocol):
    """Which tasks are drawn next, and the weight of each finished tree."""

    def draw(self, n: int) -> list[Task]: ...

    def observe(self, trees: Sequence[Tree]) -> None:
        """A step's finished trees, those that dynamic sampling dropped too, after the weights were updated."""
        ...

    def weight(self, tree: Tree) -> float:
        """Factor on the tree's advantages; 1.0 where the curriculum does not weight."""
        ...

    def metrics(self) -> dict[str, float]:
        """Curriculum metrics of the step just observed (estimates, tasks drawn), as ``what/of`` -> number."""
        ...


class EndingCurriculum(Curriculum, Protocol):
    """A curriculum that can tell that it is finished. It draws tasks even then: the stage decides when to end."""

    @property
    def done(self) -> str:
        """Why it is through, by what it has observed, as a clause; empty until then. Follows from its state."""
        ...


class GroupSource(Stateful, Protocol):
    """What gives an online stage the groups of its steps."""

    async def take(self, done: int, size: int) -> list[Group]:
        """The groups of the step after ``done`` steps of the stage, those that it drops among them.

        Args:
            size: how many the step is to have.
        """
        ...

    def observe(self, done: int, groups: Sequence[Group]) -> None:
        """Give the groups of the step just done, after its update, to what learns from them."""
        ...

    def metrics(self) -> dict[str, float]:
        """Of the step just done."""
        ...


@dataclass(frozen=True)
class Credited:
    """What credit gives to the learner, laid out as ``forest.rows()``: 0 where nothing is trained.

    Attributes:
        advantage: of each row's tokens, without unit.
        value_target: target of the value head before each token, in the reward's unit; nan on tokens that it does not
            learn from; None without one.
        metrics: what it compared and how often, logged as ``credit/NAME``.
        columns: what else the objective is to know of each token, by name, computed over the whole step:
            ``Batch.columns``.
    """

    advantage: Float[Tensor, "R L"]
    value_target: Float[Tensor, "R L"] | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    columns: Mapping[str, Float[Tensor, "R L"]] = field(default_factory=dict)


class Credit(Stateful, Protocol):
    """From outcomes to advantages. ``lyceum.credit.base.BaseCredit`` is a base class."""

    needs: frozenset[str]
    """Token columns the learner must add to the forest first: ``old_value``, ``reference_logprob``, ``old_logprob``."""
    measures: frozenset[str]
    """Metrics that it observes and that the learner only measures on request: ``drift``, the mean |change| of a trained
    token's log-probability over the step's updates (nats)."""

    def __call__(self, forest: Forest) -> Credited:
        """A step's advantages, without changing state."""
        ...

    def observe(self, forest: Forest, metrics: Mapping[str, float]) -> None:
        """The same forest and the metrics of its updates, once: the only place where state changes."""
        ...


@dataclass(frozen=True)
class StepPlan:
    """What an objective decides of a step before its first update.

    Attributes:
        weight: each token's weight in the loss of its update, laid out as ``forest.rows()``.
        trained: the rows that are computed; the others add neither loss nor gradient.
        couple: rows of one number are in one batch, however many tokens they have; a couple lies within one tree. None:
            any rows may be in any batch.
        label: each row's label, which the loss reads (chosen or rejected, correct or not).
        thresholds: numbers that its loss reads, from its state.
        counts: what it decided how often, for the step's metrics.
    """

    weight: Float[Tensor, "R L"]
    trained: Bool[Tensor, " R"]
    couple: Int[Tensor, " R"] | None = None
    label: Float[Tensor, " R"] | None = None
    thresholds: Mapping[str, float] = field(default_factory=dict)
    counts: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Batch:
    """What an objective sees: some rows of a forest, in the layout of ``forest.rows()``; ``V`` is the vocabulary.

    Log-probabilities are of the learner at the sampling temperature unless named otherwise; entries outside ``mask``
    are 0 and mean nothing. Fields that no one needs are None.

    Attributes:
        mask: True on tokens to train on (written by the policy, or a demonstration in fine-tuning).
        weight: each token's weight in the loss, from the aggregation over the *whole* update, so that losses of
            micro-batches add up to the full batch's, whatever the split.
        logprob: nats, of the current weights, with gradient.
        old_logprob: nats, of the weights at the start of the step. ``logprob`` detached in the first update.
        behaviour_logprob: nats, of the distribution the engine drew from; nan where the policy did not write.
        reference_logprob: nats, of the frozen reference.
        entropy: nats, of the current distribution, with gradient where the objective asks for ``entropy``.
        value, old_value, value_target: in the reward's unit; value with gradient.
        group: the group (by default the task) of each row.
        origin: :class:`Origin` of each token, for objectives that treat a teacher's tokens apart from the policy's.
        grafted: True where the policy wrote off-prompt, under another prompt than the row's (a hint that training
            leaves out), whose distribution ``behaviour_logprob`` is of; None where no token was.
        couple, label, thresholds: of the :class:`StepPlan`; whole couples.
        columns: all others by name: results of the objective's reductions under the current weights, with gradient;
            ``MODEL_NAME`` for those of another model, without: ``old_`` (weights at the start of the step; where it has
            one update, the detached current result), ``reference_``, ``teacher_``, ``average_``; and the credit's.
    """

    mask: Bool[Tensor, "R L"]
    weight: Float[Tensor, "R L"]
    advantage: Float[Tensor, "R L"]
    logprob: Float[Tensor, "R L"]
    old_logprob: Float[Tensor, "R L"]
    behaviour_logprob: Float[Tensor, "R L"]
    group: Int[Tensor, " R"]
    origin: Int[Tensor, "R L"]
    reference_logprob: Float[Tensor, "R L"] | None = None
    entropy: Float[Tensor, "R L"] | None = None
    value: Float[Tensor, "R L"] | None = None
    old_value: Float[Tensor, "R L"] | None = None
    value_target: Float[Tensor, "R L"] | None = None
    grafted: Bool[Tensor, "R L"] | None = None
    couple: Int[Tensor, " R"] | None = None
    label: Float[Tensor, " R"] | None = None
    thresholds: Mapping[str, float] = field(default_factory=dict)
    columns: Mapping[str, Shaped[Tensor, "R L ..."]] = field(default_factory=dict)


Metrics = dict[str, tuple["Tensor", "Tensor"]]
"""name -> (sum, weight), both detached scalars: micro-batches add up, the step's metric is sum / weight."""


@dataclass(frozen=True)
class Gradients:
    """What one batch of a whole forest says that the weights should become, before any optimiser.

    Attributes:
        loss: in the objective's unit.
        coefficient: d loss / d log-probability of each row's tokens, laid out as ``forest.rows()``, in loss units per
            nat: negative where the loss asks for a likelier token; 0 where nothing is trained. What a loss draws from
            entropies, values or whole distributions is not in it.
        weights: d loss / d weight of each trained tensor of the policy, in its own order; a value head's is left out.
        metrics: the objective's, by name.
    """

    loss: float
    coefficient: Float[Tensor, "R L"]
    weights: list[Tensor]
    metrics: dict[str, float]


class Learner(Stateful, Protocol):
    """Updates the policy's weights."""

    @property
    def skipped_steps(self) -> int:
        """Updates that changed nothing, as their loss or gradient was not finite."""
        ...

    def annotate(self, forest: Forest, needs: frozenset[str]) -> Forest:
        """Add the token columns that credit or objective need, each named after the model that it is computed with:
        ``old_`` (this step's initial weights) or a frozen one."""
        ...

    def step(self, forest: Forest, credited: Credited, objective: Objective) -> dict[str, float]:
        """The updates of a step; returns its metrics."""
        ...

    def gradients(self, forest: Forest, credited: Credited, objective: Objective) -> Gradients:
        """Those of the whole forest in one batch, at the current weights, which stay as they are."""
        ...

    def score_under(self, model: FrozenName, paths: Sequence[Scored]) -> list[list[float]]:
        """As ``GradingContext.score_under``, under one of the models that it was built for."""
        ...

    def weights(self) -> nn.Module:
        """What the engine serves from now on."""
        ...

    def models(self, names: Collection[Kept]) -> State:
        """The weights of some of its models, as ``load_weights`` takes them."""
        ...

    def load_weights(self, state: State) -> None:
        """The weights of a checkpoint alone, or of ``models``, perhaps of a learner that needed less: a value head or a
        model that it lacks, or of which there are none, stays as it was made."""
        ...

    def require_learnt(self) -> None:
        """Raise Diverged where no update of the stage changed anything."""
        ...


FrozenName = Literal["reference", "teacher", "average"]
"""A model that no gradient changes: the policy at the start of the stage, the stage's teacher, or the slow average of
the policy's weights."""

Kept = Literal["parameters", "reference", "average"]
"""What a learner has weights of that nobody else has: those that it trains, and two of the frozen models."""


class Reduction(Protocol):
    """Makes small columns of whole distributions, which exist only inside the learner's pieces of a micro-batch: a
    distribution over 49,000 words is 197 kB per token.

    The pieces are computed again in the backward pass, so it must be a function of its arguments alone, each token's
    result of that token's logits alone.
    """

    @property
    def models(self) -> frozenset[FrozenName]:
        """The frozen models whose logits it reads beside the policy's."""
        ...

    @property
    def old(self) -> bool:
        """Whether its results under the weights at the start of the step are needed too, as ``old_NAME``."""
        ...

    @property
    def once(self) -> frozenset[str]:
        """Names of its results, all of them, where no more is needed than ``old_NAME``: they are computed once a step,
        without gradient. None: each update computes them, with gradient."""
        return frozenset()

    def __call__(
        self, logits: Float[Tensor, "k V"], token: Int[Tensor, " k"], frozen: Mapping[FrozenName, Float[Tensor, "k V"]]
    ) -> Mapping[str, Float[Tensor, "k ..."]]:
        """
        Args:
            logits: float32, of the current weights, with gradient, divided by the sampling temperature.
            token: the token that follows.
            frozen: logits of each of ``models`` for the same tokens, without gradient, divided alike.
        Returns:
            Columns by name: a number or n numbers per token.
        """
        ...


@runtime_checkable
class ViewedReduction(Reduction, Protocol):
    """A reduction whose logits are those of a policy that is shown something else before the same completion."""

    def view(self, policy: Any) -> Callable[[Sequence[int]], list[int]]:
        """What the policy is shown in the place of a row's tokens, such as other pictures.

        Raises:
            RecipeError: this policy cannot be shown it.
        """
        ...


class Objective(Stateful, Protocol):
    """A loss. ``lyceum.objective.base.BaseObjective`` is a base class."""

    columns: frozenset[str]
    """Token columns that the learner adds to the forest before credit: ``reference_logprob``, ``old_value``."""
    needs: frozenset[str]
    """What is computed in an update: any of ``entropy``, ``value``, ``old_logprob``; nothing else is. Where
    ``old_logprob`` is not needed it is the detached current one, which is equal when each batch gets one update."""
    reductions: tuple[Reduction, ...]
    """What is made of whole distributions in each update: ``Batch.columns``."""
    origins: tuple[Origin, ...]
    """Whose tokens are trained: the policy's own, or a teacher's in fine-tuning."""

    def plan(self, forest: Forest, credited: Credited, updates: Sequence[Int[Tensor, " r"]]) -> StepPlan:
        """Plan one pass over a step, without changing state.

        Args:
            updates: the rows of each update, which together are all rows once; whole trees.
        """
        ...

    def __call__(self, batch: Batch) -> tuple[Tensor, Metrics]:
        """The loss of some rows, without changing state.

        A loss that reads several rows together, a couple, must depend on their log-probabilities, entropies and values
        alone: those of a couple larger than a micro-batch come without the graph that they were computed by.
        """
        ...

    def look_ahead(self, gradients: GradientsOf) -> Mapping[str, float]:
        """Metrics of a step's gradients before its first update, without changing state.

        Args:
            gradients: those of another objective on the same step, such as a part of this one; a pass each.
        """
        ...

    def observe(self, metrics: Mapping[str, float]) -> None:
        """The step's metrics, once, after its last update: the only place where state changes."""
        ...


GradientsOf = Callable[[Objective], Gradients]
"""Takes an objective; returns its gradients on a step that is given."""

ShapingGrader = Callable[[Task, Sequence["Node"], GradingContext, Sequence[bool | None]], Awaitable[list[Grade]]]
"""A grader that is told which answers the other parts judged correct: True where every part that judges says so, None
where none gave a verdict. A part that needs the verdict returns ``Grade.ungraded(...)`` for None."""


@dataclass(frozen=True)
class Trace:
    """One completion of one prompt.

    Attributes:
        task: id of the task that it solves.
        messages: the prompt, as chat messages.
        text: the completion.
        tokens: tokens of the completion, end of sequence included; None where it was not drawn token by token: it is
            then encoded by the tokenizer.
        given: places of the tokens that are context of the others and not imitated, as (first, end), in order.
    """

    task: str
    messages: tuple[Message, ...]
    text: str
    tokens: tuple[int, ...] | None = None
    given: tuple[tuple[int, int], ...] = ()

    def state_dict(self) -> dict[str, Any]:
        return {
            "task": self.task,
            "messages": [dict(message) for message in self.messages],
            "text": self.text,
            "tokens": None if self.tokens is None else list(self.tokens),
            "given": [list(span) for span in self.given],
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Trace:
        require_keys("trace", given=state, needed=("task", "messages", "text", "tokens", "given"))
        tokens = None if state["tokens"] is None else tuple(state["tokens"])
        given = tuple((first, end) for first, end in state["given"])
        return cls(state["task"], tuple(state["messages"]), state["text"], tokens, given)


Traces = Callable[[Sequence["Tree"], Callable[[Sequence[int]], str]], list[Trace]]
"""Finished trees and a tokenizer's decode function in; traces out, in the order of the trees."""


class StageRun(Stateful, Protocol):
    """A running stage: what its settings build.

    Attributes:
        settings: the settings it was built from.
        steps: maximum number of steps.
        step: number of steps done.
        engine: what evaluations sample with.
        learner: what updates the weights.
    """

    steps: int
    step: int
    engine: Engine
    learner: Learner

    @property
    def settings(self) -> StageSettings: ...

    @property
    def ended_by(self) -> str:
        """Why it ended before its steps were done, as a clause; empty if they are."""
        ...

    async def run(self) -> None:
        """Run the remaining steps, with :meth:`Session.pause` after each."""
        ...


class Gathering(Protocol):
    """An offline stage while it gathers its trajectories: what it offers to its data.

    Attributes:
        policy: the one that entered the stage.
        source: the recipe's tasks.
        folder: the run's.
    """

    @property
    def policy(self) -> Policy: ...

    @property
    def source(self) -> TaskSource: ...

    @property
    def folder(self) -> Path: ...

    @property
    def spent(self) -> bool:
        """Whether the stage's budget of sampled tokens is spent."""
        ...

    async def sample(self, tasks: int) -> Sequence[Tree]:
        """The trees of the tasks drawn next, of the entering policy; those of a killed run come from its folder."""
        ...

    async def grade(self, task: Task, leaves: Sequence[Node]) -> None:
        """Grade trajectories that have no grade by the stage's reward."""
        ...


Split = Literal["train", "heldout"]
