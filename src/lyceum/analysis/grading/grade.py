"""Grading completions that are in a file: any reward, one line per row."""

from __future__ import annotations

import asyncio
import math
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from lyceum.analysis.grading.rows import (
    MOST_TOGETHER,
    Completion,
    GradedColumns,
    check_completions,
    check_file,
    read_completions,
    read_rollouts,
    rollout_files,
)
from lyceum.analysis.keys import KEYS_OF_COLUMNS, refuse_unknown
from lyceum.analysis.measure import engine_settings, model_settings
from lyceum.core.component import explain, kinds
from lyceum.core.needs import FROZEN
from lyceum.core.tree import LOGGED, Node, UnknownTokens
from lyceum.core.types import (
    Continuation,
    Engine,
    FrozenName,
    Grade,
    Grader,
    GradingContext,
    Judgement,
    MarkedPath,
    Message,
    Origin,
    Request,
    Sampling,
    Scored,
    Spoken,
    Task,
    verdict_reader,
)
from lyceum.models.load import check_model, load_policy
from lyceum.models.policy import Policy
from lyceum.recipe.files import recipe_names
from lyceum.recipe.schema import (
    Overrides,
    Recipe,
    apply_overrides,
    check_code,
    read_override,
    read_raw,
    refuse_trust,
    trusting_own,
)
from lyceum.reward.base import Combined, allow_code, combine, named_code, to_judge
from lyceum.run.files import check_output, input_paths
from lyceum.run.reader import is_run, read_recipe
from lyceum.tasks import base
from lyceum.utils.aio import run_async
from lyceum.utils.atomic_files import atomic_lines
from lyceum.utils.documents import DocumentError, read_json
from lyceum.utils.errors import RecipeError, nearest
from lyceum.utils.html import table
from lyceum.utils.numbers import plain, shown, to_json
from lyceum.utils.paths import local_path
from lyceum.utils.progress import Progress
from lyceum.utils.seeds import SeedKey, counter_seed
from lyceum.utils.tracebacks import frames

WAITING = 128
"""Maximum groups that are graded at the same time."""
WAITING_BYTES = 1 << 26
"""Size of rows that are graded at the same time from which no further one is read (64 MiB)."""
EXAMPLES = 100
"""Rows that are read before any is graded, for the columns that a function may ask for."""
MOST_REASONS = 1000
"""Maximum different reasons that are counted; further ones are counted together."""

Line = dict[str, Any]
SHOWN_REASONS = 5
"""Reasons that a summary shows; :meth:`Graded.to_json` has all."""


@dataclass
class Graded:
    """Summary of the grades of a file.

    Attributes:
        rows: how many rows it has.
        graded: how many have a score.
        correct: how many are correct, of those ``judged``; plain numbers judge where all of a part are 0 or 1.
        mean: of the scores; None where nothing is graded.
        parts: mean of each part over the rows in which it is a finite number.
        reasons: why rows could not be graded, and how often.
    """

    rows: int = 0
    graded: int = 0
    mean: float | None = None
    reasons: Counter[str] = field(default_factory=Counter)
    to_judge: str | None = None
    """The key that says which rewards are correct answers, where functions give numbers."""
    _parts: dict[str, tuple[int, float]] = field(default_factory=dict)
    _said: Counter[tuple[bool | None, tuple[tuple[str, float], ...]]] = field(default_factory=Counter)
    """What grades said of correctness, and how often: their verdict, and their plain numbers, any other one as nan."""

    def add(self, line: Line, grade: Grade) -> None:
        self.rows += 1
        if line["score"] is None:
            reason = line["reason"]
            self.reasons[reason if reason in self.reasons or len(self.reasons) < MOST_REASONS else "others"] += 1
            return
        self.graded += 1
        before = self.mean or 0.0
        self.mean = before + (line["score"] / self.graded - before / self.graded)
        plain = ((name, number if number in (0.0, 1.0) else math.nan) for name, number in grade.numbers.items())
        self._said[grade.correct, tuple(plain)] += 1
        for name, value in line["parts"].items():
            if value is None:  # nan or infinite
                continue
            count, mean = self._parts.get(name, (0, 0.0))
            self._parts[name] = (count + 1, mean + (value / (count + 1) - mean / (count + 1)))

    @property
    def parts(self) -> dict[str, float]:
        return {name: mean for name, (_, mean) in self._parts.items()}

    @property
    def judged(self) -> int:
        return sum(count for verdict, count in self._verdicts if verdict is not None)

    @property
    def correct(self) -> int:
        return sum(count for verdict, count in self._verdicts if verdict)

    @property
    def _verdicts(self) -> list[tuple[bool | None, int]]:
        said = [(Grade(0.0, correct, plain=dict(plain)), count) for (correct, plain), count in self._said.items()]
        read = verdict_reader(grade for grade, _ in said)
        return [(read(grade), count) for grade, count in said]

    @property
    def ungraded(self) -> int:
        return self.rows - self.graded

    def __repr__(self) -> str:
        found = self.to_json() | {"reasons_ungraded": self._shown_reasons}
        return f"Graded({', '.join(f'{name}={value}' for name, value in found.items())})"

    def _repr_html_(self) -> str:
        counts = {name: str(value) for name, value in self.to_json().items() if isinstance(value, int)}
        means = {"mean": self.mean, **{f"mean of {name}": value for name, value in self.parts.items()}}
        told = {f"ungraded: {reason}": str(count) for reason, count in self._shown_reasons.items()}
        rows = {**counts, **{name: shown(value, 3) for name, value in means.items() if value is not None}, **told}
        return table(("grades", ""), rows.items())

    @property
    def _shown_reasons(self) -> dict[str, int]:
        """The most frequent reasons, and how many rows have another one: each may name its task."""
        most = dict(self.reasons.most_common(SHOWN_REASONS))
        others = self.reasons.total() - sum(most.values())
        return most | ({"others": most.get("others", 0) + others} if others else {})

    def to_json(self) -> dict[str, Any]:
        named = ("rows", "graded", "ungraded", "judged", "correct", "mean", "parts")
        return {name: getattr(self, name) for name in named} | {"reasons_ungraded": dict(self.reasons.most_common())}


@dataclass(frozen=True)
class Grading:
    """What is graded, and by what: made by :meth:`of`, which refuses what cannot work before any model is loaded."""

    recipe: Recipe
    columns: GradedColumns
    file: Path
    rollouts: list[Path] | None
    output: Path | None
    with_model: bool

    @classmethod
    def of(
        cls, file: Path | str, overrides: Overrides, *, reward: Any, model: Any = None, output: Path | str | None = None
    ) -> Grading:
        try:
            path = local_path(file)
            run = path.is_dir() and is_run(path)
        except (OSError, ValueError) as error:  # too long, a NUL
            raise RecipeError(f"file: got {str(file)!r:.200}, which is no path ({error}); allowed: a file") from None
        placed = [read_override(override) for override in overrides]
        refuse_unknown("grade", (key for key, _ in placed))
        raw, typed = _raw_reward(reward, path if run else None)
        for key, _ in placed:
            if key == "columns":
                raise RecipeError(f"columns: got it as a key; allowed: {', '.join(KEYS_OF_COLUMNS)}")
            if key.startswith("model.") and model is None:
                raise RecipeError(f"{key}: got a value, but no model; allowed: together with --model")
            if key in ("reward", "model"):
                raise RecipeError(f"{key}: got it as a key; allowed: the option --{key}, and {key}.KEY=VALUE")
        if model is not None:
            raw["model"] = model_settings(model, {}).model_dump(mode="json")
        typed |= apply_overrides(raw, [one for one in placed if not one[0].startswith("columns.")])
        with trusting_own(placed, typed):
            recipe = _validated(raw, Recipe)
        named = {key.partition(".")[2]: value for key, value in placed if key.startswith("columns.")}
        columns = _validated(named, GradedColumns, "columns")
        check_code(recipe, typed)
        rollouts = None
        if run:
            rollouts = rollout_files(path)
        else:
            check_file(path)
            check_completions(path, columns)
        inputs = {**input_paths(recipe), "file": str(path)}
        written = None if output is None else check_output("output", output, inputs=inputs)
        if written is not None and written.exists() and written.stat().st_size and not _is_ours(written):
            raise RecipeError(
                f"output: {written} is there and was not written by lyceum grade; allowed: a new file, or grades"
            )
        grading = cls(recipe, columns, path, rollouts, written, model is not None)
        if not run and "tasks" not in raw and any("tasks-verifier" in part.offers for part in recipe.reward):
            raise RecipeError(
                "reward: got 'task', the verifier of the tasks, and a file has none; allowed: with the tasks "
                "(tasks=KIND), or another reward, such as math"
            )
        asking = [part.kind for part in recipe.reward if part.waits_for_model or part.needed & FROZEN]
        if asking and model is None:
            raise RecipeError(f"reward: got '{asking[0]}', which asks a model; allowed: together with --model FOLDER")
        if model is not None:
            check_model(recipe.model)
        grading.grader()
        return grading

    def grader(self) -> Combined:
        with allow_code():
            return combine(self.recipe.reward, _TasksOfFile(self.recipe, self.example()))

    def example(self) -> Task:
        """A task with the columns of the first rows, for functions whose parameters name columns."""
        if not named_code(self.recipe.reward):
            return Task("none", ())
        first = [row.task for row in islice(self.rows(), EXAMPLES) if row.fault is None]
        columns = {name: value for task in reversed(first) for name, value in task.columns.items()}
        return replace(first[0] if first else Task("none", ()), columns=columns)

    def rows(self) -> Iterator[Completion]:
        return read_completions(self.file, self.columns) if self.rollouts is None else read_rollouts(self.rollouts)

    def run(self, each: Callable[[Line], None] | None = None) -> Graded:
        """Grade every row.

        Args:
            each: called with every line, in the rows' order.
        """
        summary = Graded(to_judge=to_judge(self.recipe.reward))
        model = _Model.loaded(self.recipe) if self.with_model else None
        with Progress(None, title="grading", unit="row") as progress, atomic_lines(self.output) as write:

            def done(row: Completion, grade: Grade, logged: Line) -> None:
                line = line_of(row, grade, logged)
                summary.add(line, grade)
                if each is not None:
                    each(line)
                write(to_json(line))
                progress.step(summary.rows)

            told: set[tuple[str, ...]] = set()

            def failed(reason: str, details: str) -> None:
                if (where := frames(details)) not in told:
                    told.add(where)
                    progress.say("\n  ".join([f"not graded: {reason}", *details.splitlines()]))

            run_async(_grade_all(self.rows(), self.grader(), model, done, failed))
            progress.total = summary.rows
            progress.step(summary.rows)
        return summary


def _raw_reward(reward: Any, run: Path | None) -> tuple[dict[str, Any], set[str]]:
    """The reward, and the tasks whose own verifier it may be; and what of it the user gave, and not a file."""
    if reward is None and run is not None:
        written = read_recipe(run)
        return {key: written[key] for key in ("reward", "tasks") if key in written}, set()
    if reward is None:
        raise RecipeError("reward: got none; allowed: a kind, FILE.py:FUNCTION, or a recipe")
    raw: dict[str, Any] = {}
    if not isinstance(reward, str):
        return raw, apply_overrides(raw, [("reward", reward)])
    named = reward if "{" in reward or "[" in reward else reward.strip()
    if named in recipe_names() or Path(named).suffix in (".yaml", ".yml"):
        raw = read_raw(named)
        refuse_trust(raw)
        return {key: raw[key] for key in ("reward", "tasks") if key in raw}, set()
    value = read_override(f"reward={reward}")[1]
    if isinstance(value, str) and not {":", "."} & set(value) and value not in kinds("reward"):
        known = [*kinds("reward"), *recipe_names()]
        raise RecipeError(
            f"reward: got {value[:100]!r}{nearest(value, known)}; allowed: {', '.join(kinds('reward'))}, "
            "FILE.py:FUNCTION, or a recipe"
        )
    return raw, apply_overrides(raw, [("reward", value)])


def _validated(raw: Mapping[str, Any], settings: type[Any], key: str = "") -> Any:
    try:
        return settings.model_validate(dict(raw))
    except ValidationError as error:
        raise RecipeError(f"{key}.{line}" if key else line for line in explain(error, settings)) from None


def _is_ours(file: Path) -> bool:
    try:
        with file.open("rb") as lines:
            first = read_json(lines.readline(1 << 20))
    except (DocumentError, OSError):
        return False
    return isinstance(first, dict) and {"row", "score", "parts"} <= first.keys()


class _TasksOfFile(base.Source):
    """The source of graders whose tasks are in a file: an example, and the own verifier of a recipe's tasks."""

    def __init__(self, recipe: Recipe, example: Task) -> None:
        self.recipe, self.example = recipe, example

    def __len__(self) -> int:
        return 0  # none is checked: what a row lacks is the reason why it is ungraded, and no error of the command

    def __getitem__(self, index: int) -> Task:
        return self.example

    def grader(self) -> Grader:
        return self.recipe.tasks.build("train", self.recipe.seed).grader()


def _groups(rows: Iterator[Completion]) -> Iterator[list[Completion]]:
    """Rows that are graded together."""
    together: list[Completion] = []
    for row in rows:
        if together and not (
            row.fault is None
            and row.group is not None
            and row.group == together[0].group
            and (row.task.messages, row.task.answer) == (together[0].task.messages, together[0].task.answer)
            and len(together) < MOST_TOGETHER
        ):
            yield together
            together = []
        together.append(row)
    if together:
        yield together


async def _grade_all(
    rows: Iterator[Completion],
    grader: Grader,
    model: _Model | None,
    done: Callable[[Completion, Grade, Line], None],
    failed: Callable[[str, str], None],
) -> None:
    """Grade groups side by side while further rows are read, and hand on their lines, and failures, in order."""
    waiting: deque[tuple[list[Completion], asyncio.Task[list[tuple[Grade, Line]]]]] = deque()
    held = 0
    # A model's batches depend on who asks at the same time, and in the last bits so would its grades.
    most = WAITING if model is None else 1

    async def first() -> int:
        group, grades = waiting.popleft()
        for row, (grade, logged) in zip(group, await grades, strict=True):
            if grade.outcome is None and grade.details is not None:
                failed(grade.reason or "", grade.details)
            done(row, grade, logged)
        return sum(row.size for row in group)

    try:
        for group in _groups(rows):
            waiting.append((group, asyncio.ensure_future(_grade(group, grader, model))))
            held += sum(row.size for row in group)
            await asyncio.sleep(0)
            while len(waiting) >= most or (held > WAITING_BYTES and waiting):
                held -= await first()
        while waiting:
            await first()
    finally:
        for _, grades in waiting:
            grades.cancel()


async def _grade(group: Sequence[Completion], grader: Grader, model: _Model | None) -> list[tuple[Grade, Line]]:
    """Each row's grade, and what the reward logged of it."""
    if group[0].fault is not None:
        return [(Grade.ungraded(row.fault or ""), {}) for row in group]
    task = group[0].task
    context: GradingContext = _Context(task, model)
    try:
        prompt = Node.prompt(model.policy.renderer.render(task.messages).tokens if model else [])
        leaves = [_leaf(prompt, row, model) for row in group]
    except ValueError as error:  # a chat template that refuses the messages, half of a surrogate pair
        return [(Grade.ungraded(str(error)[:500]), {})] * len(group)
    grades = await grader(task, leaves, context)
    return [(grade, leaf.stats.get(LOGGED, {})) for grade, leaf in zip(grades, leaves, strict=True)]


def _leaf(prompt: Node, row: Completion, model: _Model | None) -> Node:
    tokens = UnknownTokens(row.tokens) if model is None else model.policy.encode(row.text)
    address = counter_seed(prompt.address, row.number)
    leaf = Node(prompt, tokens, Origin.POLICY, finish=row.finish, text=row.text, address=address)
    prompt.children.append(leaf)
    return leaf


def line_of(row: Completion, grade: Grade, logged: Line) -> Line:
    """The output line of a row."""
    score = None if grade.outcome is None else float(grade.outcome)
    line: Line = {"row": row.number, **row.about, "score": score, "correct": grade.verdict, "parts": dict(grade.parts)}
    if score is None:
        line["correct"] = None
    if logged:
        line["logged"] = logged
    if grade.reason is not None:
        line["reason"] = grade.reason
    return plain(line, other=str)


@dataclass(frozen=True)
class _Model:
    """The model that graders ask."""

    policy: Policy
    engine: Engine

    @classmethod
    def loaded(cls, recipe: Recipe) -> _Model:
        policy = load_policy(recipe.model)
        return cls(policy, engine_settings([]).build(policy))


class _Context:
    """Implements ``GradingContext`` for one task of a file, with the given model for all models that are asked.

    Args:
        model: None where there is none: whatever asks it is an error, and the reason why a row is ungraded.
    """

    step, progress = 0, 1.0
    folder: Path | None = None

    def __init__(self, task: Task, model: _Model | None) -> None:
        self._task, self._given = task, model

    @property
    def _model(self) -> _Model:
        if self._given is None:
            raise ValueError("the reward asks a model; give --model")
        return self._given

    def render(self, messages: Sequence[Message]) -> list[int]:
        return list(self._model.policy.renderer.render(messages).tokens)

    def decode(self, tokens: Sequence[int]) -> str:
        return self._model.policy.decode(tokens)

    def encode(self, completion: str) -> list[int]:
        return self._model.policy.encode(completion)

    def encode_after(self, path: Sequence[int], text: str) -> list[int]:
        return self._model.policy.renderer.within(path, text)

    def spoken(self, turn: Node) -> Spoken | None:
        return None  # for environments, and none answers here

    async def ask(
        self, prefix: Sequence[int], n: int, sampling: Sampling, *, key: tuple[SeedKey, ...]
    ) -> list[Continuation]:
        seeds = [self.seed("ask", *key, i) for i in range(n)]
        return await self._model.engine.extend(Request(prefix, seeds, sampling, order=tuple(seeds[:1])))

    async def score(self, path: Sequence[int]) -> list[float]:
        return await self._model.engine.score(path)

    async def score_under(self, model: FrozenName, paths: Sequence[Scored]) -> list[list[float]]:
        return [(await self.score(path.tokens))[path.start : path.stop] for path in paths]

    async def judge(self, paths: Sequence[MarkedPath]) -> list[Judgement]:
        raise ValueError("the reward asks its stage's value model, and there is no stage here")

    def seed(self, *key: SeedKey) -> int:
        return counter_seed(0, "grade", self._task.id, 0, *key)
