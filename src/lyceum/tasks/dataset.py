"""Tasks from rows: JSON lines, parquet, CSV, a saved dataset folder, or a dataset of the Hugging Face hub."""

from __future__ import annotations

import copy
import itertools
import logging
import math
import os
from array import array
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal
from weakref import WeakValueDictionary

import numpy as np
from jaxtyping import Int, UInt
from pydantic import Field, field_validator, model_validator

from lyceum.core.component import PathText, Settings, of_kind, slot
from lyceum.core.settings import RewardSettings, TasksSettings
from lyceum.core.types import (
    Grader,
    LeftOut,
    Message,
    PromptReader,
    Row,
    Split,
    Task,
    can_be_compared,
    is_answer,
    is_scalar,
)
from lyceum.reward.base import combine
from lyceum.reward.choice import LETTERS
from lyceum.reward.criteria import is_rubric
from lyceum.reward.extract import after_last
from lyceum.tasks.base import Source, check_index, checksum, held_out
from lyceum.tasks.prompt import (
    answer_of,
    before_answer,
    fault_of,
    fault_of_media,
    fields_of,
    fill,
    plain_messages,
)
from lyceum.tasks.row_pictures import COLUMNS as PICTURES
from lyceum.tasks.row_pictures import shows_pictures, sources_of, with_pictures
from lyceum.tasks.rows import (
    DatasetRows,
    UnreadableRow,
    called,
    cell_of,
    check_there,
    files_of,
    kind_of,
    read_rows,
    refuse_part_of_file,
    stamp,
)
from lyceum.utils.errors import RecipeError, nearest
from lyceum.utils.messages import is_picture_part, text_of
from lyceum.utils.numbers import to_json
from lyceum.utils.paths import local_path
from lyceum.utils.terminal import quoted

log = logging.getLogger(__name__)

Scalar = bool | int | float | str

QUESTIONS = ("question", "problem", "messages")
"""Columns that are read as the prompt where a dataset has no column ``prompt``, the first of them that it has."""
ANSWERS = ("reward_model.ground_truth.target", "reward_model.ground_truth", "ground_truth", "solution")
"""Columns that are read as the answer where a dataset has no column ``answer`` (verl's files; TRL's and open-r1's)."""

LONGEST = 64
"""Longest prompts, by characters, that are compared with the model's context where longer ones are refused."""
TEMPLATE_TOKENS = 512
"""Tokens that a chat template may add to a prompt; prompts that could be too long by this bound are rendered."""


class Columns(Settings):
    """Column of each field. ``a.b`` is the cell ``b`` inside the column ``a``."""

    prompt: str = "prompt"
    """The problem: text, or chat messages ({role, content}); content is text or a list of {type: text, text}. Where
    there is no column ``prompt``: ``question``, ``problem``, or a conversation's ``messages`` before its answer."""
    answer: str | None = "answer"
    """The reference answer: text, a number, or a list of accepted ones, or what a reward function of yours reads: any
    list or object; null where there is none. Where there is no column ``answer``: ``reward_model.ground_truth`` or
    ``ground_truth``, or its cell ``target`` where that is an object, or ``solution``, or none where there is a
    completion."""
    id: str | None = None
    """Unique id of the row; null takes the row's number."""
    level: str | None = None
    """Difficulty of the problem, a number or a name; null where unknown."""
    hints: str | None = None
    """A list of hints, from abstract to concrete: texts, or {tier, text}."""
    demonstration: str | None = None
    """A worked solution, for fine-tuning and for prefixes: a text, or one message of the assistant. Null takes the
    column ``demonstration`` or ``completion``, or the answer at the end of ``messages``."""
    rubric: str | None = None
    """A list of criteria of a good answer, {criterion, points} with ``contains`` or ``ends``."""
    images: str | None = None
    """The row's pictures, one or a list: paths (from the file's folder), ``data:`` URIs, or bytes as the hub's tables
    have them; nothing is fetched. They stand where a message's parts of type ``image`` name none, or a text has
    ``<image>``, else before the question. Null takes the column ``images`` or ``image`` of the first row."""
    options: str | None = None
    """The options of a multiple-choice problem, a list of texts or numbers in the order of their letters. The template
    has them at {options}, one per line: ``A) Paris``."""


class Dataset(TasksSettings):
    """One task for each row of a dataset."""

    gives: ClassVar = ("rows",)

    kind: Literal["dataset"] = "dataset"
    path: PathText
    """A .jsonl (.ndjson), .json, .parquet, .csv or .tsv file, the texts also as .gz, a pattern such as
    ``data/*.jsonl``, a dataset's folder, or a dataset's name on the Hugging Face hub. All cells of a .csv file are
    texts."""
    subset: str | None = None
    """Configuration of a dataset on the hub, where it has several (``main`` of openai/gsm8k)."""
    split: str = "train"
    """The split to train on, where the dataset has several."""
    heldout_path: PathText | None = None
    """Another file, folder or hub name to evaluate on; null takes ``path``."""
    heldout_split: str | None = None
    """The split to evaluate on; null takes ``split`` of ``heldout_path``, or a share of the rows where that is null."""
    heldout_share: float = Field(0.1, ge=0, lt=1)
    """Share of the problems held out where neither another path nor another split is named (no unit); 0 leaves none to
    evaluate on."""
    columns: Columns = Columns()
    """Column of each field."""
    system: str | None = None
    """System message before each prompt; not where the prompt's own messages have one."""
    template: str | None = None
    """The user's message, with {column} wherever a column's text goes, and {options} for ``columns.options``; null
    takes ``columns.prompt`` as it is."""
    answer_after: str | None = Field(None, min_length=1)
    """Mark before the answer in its column: the answer is the text after the last one (``####`` for GSM8K)."""
    where: dict[str, Scalar | list[Scalar]] = Field(default_factory=dict)
    """Keep rows whose column has this value, or one of these values."""
    limit: int | None = Field(None, ge=1, le=10**9)
    """Maximum rows used in each split; null uses all."""
    bad_rows: Literal["refuse", "drop", "cut"] = "refuse"
    """What happens where a row cannot be used (a missing column, a cell of the wrong kind, a prompt that is too long):
    the command is refused, the row is left out and counted, or, where only its prompt is too long, the prompt loses
    its beginning."""
    max_prompt_tokens: int | None = Field(None, ge=1, le=10**9)
    """Maximum tokens of a prompt as the model's chat template renders it; null: what fits into the model's context."""
    verifier: Annotated[RewardSettings, slot("reward")] = of_kind("math")
    """The reward part that ``reward: task`` stands for."""

    @field_validator("template", mode="before")
    @classmethod
    def _template_is_text(cls, template: Any) -> Any:
        if isinstance(template, Mapping):
            raise ValueError(
                "got a mapping, which braces are in YAML; allowed: the text in quotes of its own, '\"{question}\"'"
            )
        return template

    @field_validator("template")
    @classmethod
    def _template_is_safe(cls, template: str | None) -> str | None:
        if template is not None and not fields_of(template):
            raise ValueError(f"got {template!r}; allowed: a text with at least one {{column}}")
        return template

    @model_validator(mode="after")
    def _verifier_ends(self) -> Dataset:
        if "tasks-verifier" in self.verifier.offers:
            raise ValueError("verifier: got 'task', which asks the tasks for their verifier; allowed: any other kind")
        return self

    @model_validator(mode="after")
    def _options_are_shown(self) -> Dataset:
        if self.columns.options is not None and "options" not in fields_of(self.template or ""):
            raise ValueError(
                f"columns.options: got {self.columns.options!r}, but the template does not show them; "
                "allowed: a template with {options}, or null"
            )
        return self

    def check_paths(self) -> None:
        check_there(self.path, "tasks.path")
        if self.heldout_path is not None:
            check_there(self.heldout_path, "tasks.heldout_path")
        if self.heldout_path is None or local_path(self.heldout_path).is_file():
            refuse_part_of_file(self.path, "tasks.subset", self.subset)

    def paths(self) -> frozenset[str]:
        return frozenset({self.path})

    def whole(self, trained: Collection[str] = ()) -> Dataset:
        chosen = self.model_fields_set & {"heldout_path", "heldout_split", "heldout_share"}
        return self if chosen or self.path in trained else self.model_copy(update={"heldout_path": self.path})

    def build(self, split: Split, seed: int) -> DatasetSource:
        """``seed`` is not used: rows are in the dataset's order, and the split is by checksum of the problem."""
        read, other = _read(self, "path"), self._other_rows()
        if other is None:
            kept = read.number[held_out(read.checksum, self.heldout_share) == (split == "heldout")]
            if not len(kept):
                problems = len(np.unique(read.problem))
                alike = f", which are {problems} problem{'s' * (problems > 1)} (rows of one problem stay together),"
                raise RecipeError(
                    f"tasks.heldout_share: {self.heldout_share} of the {len(read.rows)} rows of {called(self.path)}"
                    f"{alike if problems < len(read.problem) else ''} leaves none for {split}; allowed: another share, "
                    + ("heldout_path, or evaluate.n=0" if split == "heldout" else "or heldout_path")
                )
        elif split == "heldout":
            read, kept = other, other.number
        else:
            kept, shared = _apart(self, read.number, read.problem, other.problem)
            return DatasetSource(self, read, kept[: self.limit], split, read.left_out + shared)
        named = split == "heldout" and other is None  # the training tasks name these rows already
        return DatasetSource(self, read, kept[: self.limit], split, LeftOut() if named else read.left_out)

    def _other_rows(self) -> _Read | None:
        """Rows to evaluate on, where they are named; None where they are a share of all rows."""
        if self.heldout_path is None and self.heldout_split is None:
            return None
        return _read(self, "heldout_path")


class DatasetSource(Source):
    """The kept rows as tasks, in the dataset's order; a task's columns are the row's without its prompt."""

    def __init__(
        self, settings: Dataset, read: _Read, kept: Int[np.ndarray, " task"], split: Split, left_out: LeftOut
    ) -> None:
        self.settings, self.split = settings, split
        self.reading, self.rows, self.name = read, read.rows, read.name
        self.columns, self.kept, self.left_out = read.columns, kept, left_out
        self.gradable = read.columns.answer is not None
        self.starts: dict[int, int] = {}
        """Of each row whose prompt is cut, the first character that is kept."""
        self.conversational = settings.template is None and not isinstance(
            cell_of(self.rows[int(kept[0])], self.columns.prompt), str
        )
        self._ids = None if self.columns.id is None else self._hashed_ids(self.columns.id)

    def __len__(self) -> int:
        return len(self.kept)

    def __getitem__(self, index: int) -> Task:
        check_index(self.name, index, len(self))
        return self._task(int(self.kept[index]))

    def _task(self, number: int) -> Task:
        row, columns = self.rows[number], self.columns
        further = {name: value for name, value in row.items() if name not in (columns.prompt, columns.images)}
        for name in ("level", "hints", "rubric"):
            column = getattr(columns, name)
            if column is not None:
                further[name] = cell_of(row, column)
        if columns.demonstration is not None:
            further["demonstration"] = _demonstration(columns, row)
        if "hints" in further and columns.hints is not None:
            further["hints"] = [hint if isinstance(hint, dict) else _solution(hint) for hint in further["hints"]]
        if columns.options is not None:
            further["options"] = list(map(str, cell_of(row, columns.options)))
        id = str(number) if columns.id is None else str(cell_of(row, columns.id))
        messages = _messages(self.settings, columns, row, folder=self.reading.folder)
        if number in self.starts:
            messages = _cut(messages, self.starts[number])
        answer = _answer(self.settings, columns, row)
        return Task(f"{self.name}/{self.split}/{id}", messages, answer, further, self.name)

    def row(self, index: int) -> Mapping[str, Any]:
        return self.rows[int(self.kept[index])]

    def imitated(self, task: Task) -> str | None:
        """The demonstration, or the whole text of the answer's column where there is none."""
        text = super().imitated(task)
        if text is None and self.columns.answer is not None:
            answer = cell_of(self.rows[self._number(task)], self.columns.answer)
            text = str(answer) if is_scalar(answer) else None
        return text

    def reordered(self, task: Task, order: Sequence[int]) -> tuple[Message, ...] | None:
        if self.columns.options is None:
            return None
        row = self.rows[self._number(task)]
        return _messages(self.settings, self.columns, row, order, folder=self.reading.folder)

    def grader(self) -> Grader:
        if self.columns.answer is None:
            raise RecipeError(
                "tasks.columns.answer: got null, so that reward kind 'task' has nothing to compare with; "
                "allowed: a column, or a reward that needs no answer"
            )
        self.settings.verifier.check_tasks(self)
        return combine([self.settings.verifier], self)

    def prompt_hashes(self) -> UInt[np.ndarray, " task"]:
        return self.reading.problem[np.searchsorted(self.reading.number, self.kept)]

    def without(self, hashes: UInt[np.ndarray, " other"]) -> DatasetSource:
        apart = copy.copy(self)
        apart.kept, shared = _apart(self.settings, self.kept, self.prompt_hashes(), hashes)
        apart.left_out += shared
        return apart

    def fitted(self, prompts: PromptReader) -> DatasetSource:
        most = self.settings.max_prompt_tokens
        most = prompts.limit - 1 if most is None else min(most, prompts.limit - 1)
        length = self.reading.length[np.searchsorted(self.reading.number, self.kept)]
        if self.settings.bad_rows == "refuse":
            longest = np.argsort(-length, kind="stable")[:LONGEST]
            self._refuse(self.kept[longest].tolist(), prompts, most)
            return self
        # A token is a byte or more, and a character at most four.
        long = np.flatnonzero(4 * length + TEMPLATE_TOKENS > most)
        fitting = copy.copy(self)
        fitting.starts = dict(self.starts)
        out: list[int] = []
        for place in long.tolist():
            number = int(self.kept[place])
            if (tokens := prompts.tokens(self._task(number))) <= most:
                continue
            start = self._start(number, prompts, most) if self.settings.bad_rows == "cut" else None
            if start is None:
                out.append(place)
            else:
                fitting.starts[number] = start
            what = f"{self.rows.where(number)}: the prompt has {tokens} tokens; allowed: at most {most}"
            fitting.left_out += LeftOut(int(start is None), int(start is not None), (what,))
        fitting.kept = np.delete(self.kept, out)
        if not len(fitting.kept):
            raise RecipeError(f"tasks.bad_rows: got {self.settings.bad_rows!r}, but no row is left: {fitting.left_out}")
        return fitting

    def _refuse(self, numbers: Sequence[int], prompts: PromptReader, most: int) -> None:
        for number in numbers:
            task = self._task(number)
            tokens = prompts.tokens(task)
            try:
                prompts.check(task)
                if tokens > most:
                    raise RecipeError(f"tasks.max_prompt_tokens: got {most}, but a prompt has {tokens}")
            except RecipeError as error:
                if tokens <= most:
                    raise
                advice = "tasks.bad_rows=drop leaves such rows out, tasks.bad_rows=cut cuts their prompts"
                raise RecipeError([*error.lines, f"it is {self.rows.where(number)}; {advice}"]) from None

    def _start(self, number: int, prompts: PromptReader, most: int) -> int | None:
        """The first character to keep of a prompt's longest message, so that it just fits; None where nothing fits."""
        task = self._task(number)
        too_long, fitting = 0, max(len(text_of(message["content"])) for message in task.messages) - 1

        def fits(start: int) -> bool:
            return prompts.tokens(task.with_messages(_cut(task.messages, start))) <= most

        if fitting < 1 or not fits(fitting):
            return None
        while fitting - too_long > 1:
            middle = (too_long + fitting) // 2
            too_long, fitting = (too_long, middle) if fits(middle) else (middle, fitting)
        return fitting

    def _number(self, task: Task) -> int:
        """The row of one of these tasks."""
        id = task.id.removeprefix(f"{self.name}/{self.split}/")
        if self._ids is None:
            return int(id)
        hashed, numbers = self._ids
        return int(numbers[np.searchsorted(hashed, np.uint64(_hash(id)))])

    def _hashed_ids(self, column: str) -> tuple[UInt[np.ndarray, " task"], Int[np.ndarray, " task"]]:
        """The hashes of all ids in order, and the row of each."""
        hashes = array("Q", (_hash(str(cell_of(self.rows[int(number)], column))) for number in self.kept))
        hashed = np.frombuffer(hashes, np.uint64)
        order = np.argsort(hashed, kind="stable")
        hashed = hashed[order]
        if len(twice := np.flatnonzero(hashed[1:] == hashed[:-1])):
            at = twice[np.argmin(order[twice + 1])]  # the first row whose id came before
            first, second = self.kept[order[at : at + 2]].tolist()
            raise RecipeError(
                f"tasks.columns.id: {self.rows.where(first)} and {self.rows.where(second)} both hold "
                f"{quoted(str(cell_of(self.rows[first], column)))} in column {column!r}; allowed: a column that is "
                "different in each row, or null"
            )
        return hashed, self.kept[order]


@dataclass(frozen=True)
class _Read:
    """What one pass over a dataset finds: its rows, and of those that are used 28 bytes each.

    Attributes:
        name: of the dataset, as task ids begin.
        columns: the settings' columns, by the names that this dataset has for them.
        number: of each row that ``where`` keeps and that can be used.
        checksum: of its problem, which says on which side of a split it is (see ``held_out``).
        problem: a hash of what it asks.
        length: characters of its prompt.
        left_out: rows that cannot be used.
        folder: in which relative paths of pictures are looked for.
    """

    name: str
    rows: DatasetRows
    columns: Columns
    number: Int[np.ndarray, " row"]
    checksum: UInt[np.ndarray, " row"]
    problem: UInt[np.ndarray, " row"]
    length: Int[np.ndarray, " row"]
    left_out: LeftOut
    folder: Path


_READ: WeakValueDictionary[str, _Read] = WeakValueDictionary()
"""Datasets in use: training and held-out tasks of one file are found in one pass."""


def _read(settings: Dataset, key: Literal["path", "heldout_path"]) -> _Read:
    """The dataset's rows, or those of another path or split to evaluate on.

    Raises:
        RecipeError: they cannot be read, or a row cannot be used and ``bad_rows`` refuses it.
    """
    path, split = settings.path, settings.split
    if key == "heldout_path":
        path, split = settings.heldout_path or path, settings.heldout_split or split
    place = local_path(path)
    which = "heldout_split" if key == "heldout_path" and settings.heldout_split is not None else "split"
    refuse_part_of_file(path, f"tasks.{which}", split, usual="train", further="tasks.heldout_path=FILE")
    apart = {"heldout_path", "heldout_split", "heldout_share", "limit", "max_prompt_tokens", "verifier"}
    of = settings.model_dump(mode="json", exclude=apart)
    known = to_json([of, path, split, [stamp(os.stat(file)) for file in files_of(path)]])
    found = None if place.is_dir() else _READ.get(known)
    if found is None:
        rows = read_rows(path, subset=settings.subset, split=split, key=f"tasks.{key}")
        found = _pass(settings, rows, place.name, place if place.is_dir() else place.absolute().parent)
        if not place.is_dir():
            _READ[known] = found
    return found


def _pass(settings: Dataset, rows: DatasetRows, name: str, folder: Path) -> _Read:
    """Check every cell that will be used, of each row that ``where`` keeps."""
    columns: Columns | None = None
    checks: Sequence[_Check] = ()
    shown: Sequence[str] = ()
    number, checksums, problem, length = array("q"), array("I"), array("Q"), array("q")
    left_out, chosen = LeftOut(), 0
    for index, row in enumerate(rows.read()):
        try:
            if isinstance(row, UnreadableRow):
                raise RecipeError(f"{rows.key}: {row.why}")
            if columns is None:
                columns = _named(settings.columns, row)
                checks, shown = _checks(settings, columns, row), _shown(settings, columns)
                if columns.demonstration is not None and row.get("tools"):
                    log.warning("%s: the column 'tools' is not shown to the model, messages alone are", rows.name)
            if not _is_chosen(settings, rows, index, row):
                continue
            chosen += 1
            _check_row(checks, rows, index, row)
            _check_mark(settings, columns, rows, index, row)
            _check_pictures(settings, columns, rows, index, row)
        except RecipeError as error:
            if settings.bad_rows == "refuse":
                if not number:  # more likely a wrong setting than a bad row
                    raise
                raise RecipeError(f"{error}; or leave such rows out: tasks.bad_rows=drop") from None
            left_out += LeftOut(1, 0, (_without_key(error),) if len(left_out.named) < LeftOut.NAMED else ())
            continue
        cells = [cell_of(row, column) for column in shown]
        if columns.images is not None:
            cells += sources_of(row.get(columns.images), folder)
        number.append(index)
        # Of what the prompt is made of, without the template's words around it.
        checksums.append(checksum(repr(cells)))
        problem.append(_hash(_asked(columns, shown, cells)))
        length.append(_length(settings, columns, row))
    if not number:
        if settings.where and not chosen:
            raise RecipeError(
                f"tasks.where: no row of {name!r} has {quoted(settings.where)}; allowed: values that occur"
            )
        raise RecipeError(f"tasks.bad_rows: got {settings.bad_rows!r}, but no row of {name!r} is left: {left_out}")
    return _Read(
        name,
        rows,
        columns or settings.columns,
        np.frombuffer(number, np.int64),
        np.frombuffer(checksums, np.uint32),
        np.frombuffer(problem, np.uint64),
        np.frombuffer(length, np.int64),
        left_out,
        folder,
    )


def _without_key(error: RecipeError) -> str:
    """``row 3 of 'data.jsonl' holds ...``, without the recipe's key before it."""
    return str(error).partition(": ")[2]


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")


def _named(columns: Columns, row: Row) -> Columns:
    """The columns by the names that a dataset has for them, where it lacks the usual ones."""
    found: dict[str, str | None] = {}
    if columns.prompt == "prompt" and "prompt" not in row:
        found["prompt"] = next((name for name in QUESTIONS if name in row), columns.prompt)
    if columns.images is None:
        found["images"] = next((name for name in PICTURES if name in row), None)
    if columns.demonstration is None and "demonstration" not in row:
        answered = found.get("prompt") == "messages" and _fault_of_conversation(row["messages"]) is None
        found["demonstration"] = "completion" if "completion" in row else "messages" if answered else None
    if columns.answer == "answer" and "answer" not in row:
        named = next((name for name in ANSWERS if _has(row, name)), None)
        # Rows to imitate need no answer; others are refused without one.
        if named is not None or (columns.demonstration or found.get("demonstration")) is not None:
            found["answer"] = named
    return columns.model_copy(update=found)


def _has(row: Row, column: str) -> bool:
    try:
        cell_of(row, column)
    except KeyError:
        return False
    return True


def _asked(columns: Columns, shown: Sequence[str], cells: Sequence[Any]) -> str:
    """What a problem asks, the same text whether a file has texts or chat messages, with or without a template."""
    asked: list[str] = []
    for column, cell in itertools.zip_longest(shown, cells):  # pictures come last, under no column that is shown
        if column == columns.prompt and isinstance(cell, list):
            messages = before_answer(cell) if column == "messages" else cell
            asked += [text_of(message["content"]) for message in messages if message["role"] != "system"]
            if shows_pictures(messages):
                asked += [repr(part) for message in messages for part in message["content"] if is_picture_part(part)]
        else:
            asked.append(str(cell))
    return "\n".join(asked).strip()


def _apart(
    settings: Dataset,
    number: Int[np.ndarray, " row"],
    problem: UInt[np.ndarray, " row"],
    evaluated: UInt[np.ndarray, " other"],
) -> tuple[Int[np.ndarray, " kept"], LeftOut]:
    """The rows whose problems are not evaluated on, and how many are.

    Raises:
        RecipeError: all are.
    """
    kept = number[~np.isin(problem, evaluated)]
    if shared := len(number) - len(kept):
        if not len(kept):
            raise RecipeError(
                f"tasks.path: every problem of {settings.path!r} is evaluated on too; allowed: other rows, or other "
                "ones to evaluate on"
            )
        log.warning("%d rows of %s are evaluated on, and not trained", shared, settings.path)
    return kept, LeftOut(shared=shared)


def _length(settings: Dataset, columns: Columns, row: Mapping[str, Any]) -> int:
    """Characters of a prompt."""
    if (
        settings.template is None
        and settings.system is None
        and isinstance(prompt := cell_of(row, columns.prompt), str)
    ):
        return len(prompt)
    return sum(len(text_of(message["content"])) for message in _messages(settings, columns, row))


@dataclass(frozen=True)
class _Check:
    """What a column's cells have to be.

    Attributes:
        key: the settings' key that names the column.
        fault_in: describes a cell that does not fit; None for one that does.
    """

    key: str
    column: str
    fault_in: Callable[[Any], str | None]
    allowed: str


def _answers_like(columns: Columns, row: Row) -> tuple[Callable[[Any], str | None], str]:
    """The check of answers, where a row has this one: an object among texts is a fault of its row."""
    first = cell_of(row, columns.answer) if columns.answer is not None and _has(row, columns.answer) else None
    if is_answer(first) and not can_be_compared(first):
        return _unless(is_answer), "a text, a number, a list or an object"
    return _unless(can_be_compared), "a text, a number, or a list of these"


def _checks(settings: Dataset, columns: Columns, row: Row) -> list[_Check]:
    """What the cells of every row have to be, by the first one."""
    needed: list[tuple[str, str | None, Callable[[Any], str | None], str]] = [
        (
            "columns.prompt",
            None if settings.template else columns.prompt,
            _fault_of_prompt,
            "a text, or chat messages {role, content} of text",
        ),
        ("columns.answer", columns.answer, *_answers_like(columns, row)),
        ("columns.id", columns.id, _unless(is_scalar), "a text or a number"),
        ("columns.level", columns.level, _unless(is_scalar), "a text or a number"),
        ("columns.hints", columns.hints, _fault_of_hints, "a list of texts or of {tier, text}"),
        (
            "columns.demonstration",
            columns.demonstration,
            _fault_of_conversation if columns.demonstration == "messages" else _fault_of_completion,
            "a text, or one message {role: assistant, content: TEXT}",
        ),
        (
            "columns.options",
            columns.options,
            _unless(_is_options),
            f"a list of 2 to {len(LETTERS)} different texts or numbers",
        ),
        ("columns.rubric", columns.rubric, _unless(is_rubric), "a list of {criterion, points, contains or ends}"),
        *(
            ("template", column, _unless(_is_there), "what can be written")
            for column in (_shown(settings, columns) if settings.template is not None else ())
        ),
    ]
    return [_Check(key, column, fault_in, allowed) for key, column, fault_in, allowed in needed if column is not None]


def _is_chosen(settings: Dataset, rows: DatasetRows, index: int, row: Row) -> bool:
    """Whether ``where`` keeps a row. Raises RecipeError where it lacks the column."""
    for column, allowed in settings.where.items():
        try:
            value = cell_of(row, column)
        except KeyError:
            raise _missing("where", column, rows, index, row) from None
        if value not in _listed(allowed):
            return False
    return True


def _check_row(checks: Sequence[_Check], rows: DatasetRows, index: int, row: Row) -> None:
    """Raise RecipeError for a row that lacks a column, or whose cells cannot be used."""
    for check in checks:
        try:
            value = row[check.column] if check.column in row else cell_of(row, check.column)
        except KeyError:
            raise _missing(check.key, check.column, rows, index, row) from None
        if (fault := check.fault_in(value)) is not None:
            raise RecipeError(
                f"tasks.{check.key}: {rows.where(index)} holds {fault} in column {check.column!r}; allowed: "
                f"{check.allowed}"
            )
    if (other := fault_of_media(row, pictures=True)) is not None:
        allowed = "rows without the column, or tasks.bad_rows=drop"
        raise RecipeError(f"tasks.path: {rows.where(index)} holds {other}; allowed: {allowed}")


_OTHERS = {
    "conversations": "rename its column 'conversations' to 'messages'",
    "conversation": "rename its column 'conversation' to 'messages'",
    "instruction": "tasks.columns.prompt=instruction tasks.columns.answer=output; to imitate answers "
    "tasks.columns.prompt=instruction tasks.columns.demonstration=output; where there is an input, "
    "tasks.template='{instruction} {input}' instead of tasks.columns.prompt",
    "text": "the row is plain text: tasks='{kind: text, path: FILE}' cuts it into a prompt and what follows, as in "
    "lyceum train rlp, and the stage mid-training (lyceum train rmt) also learns the text; to imitate answers: "
    "columns prompt and completion, or messages",
}
"""Column of other kinds of rows -> what to do with them."""

_SHAREGPT = ", and in each message 'from' to 'role' (user, assistant, system) and 'value' to 'content'"


def _missing(key: str, column: str, rows: DatasetRows, index: int, row: Row) -> RecipeError:
    if column == "answer" and {"chosen", "rejected"} <= row.keys():
        told = "the row is a preference pair: data=FILE instead of tasks=FILE, as in lyceum train dpo data=FILE"
        return RecipeError(f"tasks.{key}: {rows.where(index)} has no column {column!r}; {told}")
    if (
        key == "columns.prompt"
        and column == "prompt"
        and (other := next((name for name in row if name in _OTHERS), ""))
    ):
        cell = row[other]
        sharegpt = isinstance(cell, list) and cell and isinstance(cell[0], Mapping) and "from" in cell[0]
        told = _OTHERS[other] + (_SHAREGPT if sharegpt else "")
        return RecipeError(f"tasks.{key}: {rows.where(index)} has no column {column!r}; {told}")
    unset = ", or null" if key not in ("columns.prompt", "where", "template") else ""
    return RecipeError(
        f"tasks.{key}: {rows.where(index)} has no column {column!r}{nearest(column, row)}; "
        f"allowed: {', '.join(row)}{unset}"
    )


def _check_mark(settings: Dataset, columns: Columns, rows: DatasetRows, index: int, row: Row) -> None:
    if settings.answer_after is None or columns.answer is None:
        return
    answers = _listed(cell_of(row, columns.answer))
    if any(not is_scalar(one) or after_last(str(one), settings.answer_after) is None for one in answers):
        raise RecipeError(
            f"tasks.answer_after: {rows.where(index)} has nothing after {settings.answer_after!r} in column "
            f"{columns.answer!r}; allowed: a mark that every answer has, or null"
        )


def _shown(settings: Dataset, columns: Columns) -> list[str]:
    """The columns that a prompt is made of."""
    if settings.template is None:
        return [columns.prompt]
    options = columns.options
    return [
        options if column == "options" and options is not None else column for column in fields_of(settings.template)
    ]


def _messages(
    settings: Dataset, columns: Columns, row: Row, order: Sequence[int] | None = None, *, folder: Path | None = None
) -> tuple[Message, ...]:
    """The prompt of a row.

    Args:
        order: of the options, by their numbers; None for the row's own.
        folder: in which paths of pictures are looked for.
    """
    if columns.options is not None:
        options = cell_of(row, columns.options)
        listed = options if order is None else [options[number] for number in order]
        lines = [f"{letter}) {option}" for letter, option in zip(LETTERS, listed, strict=False)]
        row = {**row, "options": "\n".join(lines)}
    prompt = fill(settings.template, row) if settings.template is not None else cell_of(row, columns.prompt)
    if not isinstance(prompt, str) and columns.prompt == "messages":
        prompt = before_answer(prompt)
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else plain_messages(prompt)
    if settings.system is not None and messages[0]["role"] != "system":
        messages.insert(0, {"role": "system", "content": settings.system})
    pictures = [] if columns.images is None else sources_of(row.get(columns.images), folder or Path())
    if pictures or shows_pictures(messages):
        return with_pictures(messages, pictures, folder or Path())
    return tuple(messages)


def _check_pictures(settings: Dataset, columns: Columns, rows: DatasetRows, index: int, row: Row) -> None:
    """Raise RecipeError for pictures that are none, that have no place in the prompt, or in a column not read."""
    if columns.images is None and (unread := next((name for name in PICTURES if row.get(name)), None)) is not None:
        raise RecipeError(
            f"tasks.columns.images: {rows.where(index)} holds pictures in column {unread!r}, which the first row lacks"
            f"; allowed: tasks.columns.images={unread}, or rows without the column"
        )
    prompt = "" if settings.template is not None else cell_of(row, columns.prompt)
    if columns.images is None and (isinstance(prompt, str) or not shows_pictures(prompt)):
        return
    try:
        _messages(settings, columns, row)
    except RecipeError as error:
        raise RecipeError(
            f"tasks.columns.images: {rows.where(index)} holds {error}; allowed: paths, data: URIs or bytes, as many as "
            "the prompt has places for them, or no places"
        ) from None


def _cut(messages: Sequence[Message], start: int) -> tuple[Message, ...]:
    """A prompt whose longest message, the last of equals, begins at one of its characters."""
    texts = [text_of(message["content"]) for message in messages]
    longest = max(range(len(texts)), key=lambda number: (len(texts[number]), number))
    content: Any = texts[longest][start:]
    if shows_pictures(messages[longest : longest + 1]):
        shown = [part for part in messages[longest]["content"] if is_picture_part(part)]
        content = [*shown, {"type": "text", "text": content}]
    shorter = {**messages[longest], "content": content}
    return (*messages[:longest], shorter, *messages[longest + 1 :])


def _demonstration(columns: Columns, row: Row) -> str | None:
    value = cell_of(row, columns.demonstration or "")
    return answer_of(value[-1:] if columns.demonstration == "messages" and isinstance(value, list) else value)


def _answer(settings: Dataset, columns: Columns, row: Mapping[str, Any]) -> Any:
    if columns.answer is None:
        return None
    answer = cell_of(row, columns.answer)
    mark = settings.answer_after
    if mark is None:
        return answer
    return [after_last(str(one), mark) for one in answer] if isinstance(answer, list) else after_last(str(answer), mark)


def _solution(text: str) -> dict[str, str]:
    return {"tier": "solution", "text": text}


def _listed(allowed: Scalar | list[Scalar]) -> list[Scalar]:
    return allowed if isinstance(allowed, list) else [allowed]


def _unless(fits: Callable[[Any], bool]) -> Callable[[Any], str | None]:
    """A check that describes a cell's value where it does not fit."""
    return lambda value: None if fits(value) else kind_of(value)


def _is_there(value: Any) -> bool:
    return value is not None and not (isinstance(value, float) and math.isnan(value))


def _is_options(value: Any) -> bool:
    fits = isinstance(value, list) and 2 <= len(value) <= len(LETTERS) and all(map(is_scalar, value))
    return fits and len(set(map(str, value))) == len(value)


def _fault_of_prompt(value: Any) -> str | None:
    if isinstance(value, str):
        return None if value else kind_of(value)
    return fault_of(value)


def _fault_of_completion(value: Any) -> str | None:
    if isinstance(value, str) or answer_of(value) is not None:
        return None
    return "messages that are not one text of the assistant" if isinstance(value, list) and value else kind_of(value)


def _fault_of_conversation(value: Any) -> str | None:
    if (fault := fault_of(value)) is not None:
        return fault
    whole = len(value) > 1 and answer_of(value[-1:]) is not None
    return None if whole else "a conversation that does not end with an answer of the assistant"


def _fault_of_hints(value: Any) -> str | None:
    if not isinstance(value, list):
        return kind_of(value)
    for number, hint in enumerate(value):
        texts = [hint.get("tier"), hint.get("text")] if isinstance(hint, Mapping) else [hint]
        if wrong := [text for text in texts if not isinstance(text, str)]:
            return f"{kind_of(wrong[0])} {'as' if texts == [hint] else 'in'} hint {number}"
    return None
