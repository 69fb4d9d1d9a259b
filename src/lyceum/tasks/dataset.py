"""Tasks from rows: JSON lines, parquet, CSV, a saved dataset folder, or a dataset of the Hugging Face hub."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from lyceum.core.component import PathText, Settings, of_kind, slot
from lyceum.core.rubric import is_rubric
from lyceum.core.settings import RewardSettings, TasksSettings
from lyceum.core.types import Grader, Message, Row, Split, Task
from lyceum.reward.base import combine
from lyceum.reward.choice import LETTERS
from lyceum.reward.extract import after_last
from lyceum.tasks._split import check_index, kept_for_evaluation
from lyceum.tasks.base import Source
from lyceum.tasks.prompt import fault_of, fields_of, fill, plain_messages
from lyceum.tasks.rows import Rows, check_there, kind_of, read_rows
from lyceum.utils.errors import RecipeError, nearest
from lyceum.utils.terminal import quoted

log = logging.getLogger(__name__)

Scalar = bool | int | float | str


class Columns(Settings):
    """Column of each field. ``a.b`` is the cell ``b`` inside the column ``a``."""

    prompt: str = "prompt"
    """The problem: text, or chat messages ({role, content}); content is text or a list of {type: text, text}."""
    answer: str | None = "answer"
    """The reference answer: text, a number, or a list of accepted ones; null where there is none."""
    id: str | None = None
    """Unique id of the row; null takes the row's number."""
    level: str | None = None
    """Difficulty of the problem, a number or a name; null where unknown."""
    hints: str | None = None
    """A list of hints, from abstract to concrete: texts, or {tier, text}."""
    demonstration: str | None = None
    """A worked solution, for fine-tuning and for prefixes."""
    rubric: str | None = None
    """A list of criteria of a good answer, {criterion, points} with ``contains`` or ``ends``."""
    options: str | None = None
    """The options of a multiple-choice problem, a list of texts or numbers in the order of their letters. The template
    has them at {options}, one per line: ``A) Paris``."""


class Dataset(TasksSettings):
    """One task for each row of a dataset."""

    kind: Literal["dataset"] = "dataset"
    path: PathText
    """A .jsonl, .json, .parquet or .csv file, a pattern such as ``data/*.jsonl``, a dataset's folder, or a dataset's
    name on the Hugging Face hub. All cells of a .csv file are texts."""
    subset: str | None = None
    """Configuration of a dataset on the hub, where it has several (``main`` of openai/gsm8k)."""
    split: str = "train"
    """The split to train on, where the dataset has several."""
    heldout_path: PathText | None = None
    """Another file, folder or hub name to evaluate on; null takes ``path``."""
    heldout_split: str | None = None
    """The split to evaluate on; null takes ``split`` of ``heldout_path``, or a share of the rows where that is null."""
    heldout_share: float = Field(0.1, gt=0, lt=1)
    """Share of the problems held out where neither another path nor another split is named (no unit)."""
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
        if self.verifier.kind == "task":
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

    def build(self, split: Split, seed: int) -> DatasetSource:
        """``seed`` is not used: rows are in the dataset's order, and the split is by checksum of the problem."""
        rows = read_rows(self.path, subset=self.subset, split=self.split, key="tasks.path")
        other = self._other_rows()
        name = Path(self.path).name
        if other is None:
            kept = [
                index
                for index, problem in _problems(self, rows, name)
                if kept_for_evaluation(problem, self.heldout_share) == (split == "heldout")
            ]
            if not kept:
                raise RecipeError(
                    f"tasks.heldout_share: {self.heldout_share} of the {len(rows)} rows of {self.path!r} leaves none "
                    f"for {split}; allowed: another share, or heldout_path"
                )
        elif split == "heldout":
            name, rows = Path(self.heldout_path or self.path).name, other
            kept = [index for index, _ in _problems(self, rows, name)]
        else:
            evaluated = {problem for _, problem in _problems(self, other, Path(self.heldout_path or self.path).name)}
            problems = _problems(self, rows, name)
            kept = [index for index, problem in problems if problem not in evaluated]
            if len(kept) < len(problems):
                log.warning("%d rows of %s are evaluated on, and not trained", len(problems) - len(kept), self.path)
            if not kept:
                raise RecipeError("tasks.path: every problem is in the rows to evaluate on too; allowed: other rows")
        return DatasetSource(self, rows, kept[: self.limit], name=name, split=split)

    def _other_rows(self) -> Rows | None:
        """Rows to evaluate on, where they are named; None where they are a share of all rows."""
        if self.heldout_path is not None:
            split = self.heldout_split or self.split
            return read_rows(self.heldout_path, subset=self.subset, split=split, key="tasks.heldout_path")
        if self.heldout_split is not None:
            return read_rows(self.path, subset=self.subset, split=self.heldout_split, key="tasks.heldout_path")
        return None


class DatasetSource(Source):
    """The kept rows as tasks, in the dataset's order; a task's columns are the row's without its prompt."""

    def __init__(self, settings: Dataset, rows: Rows, kept: Sequence[int], *, name: str, split: Split) -> None:
        self.settings, self.rows, self.kept, self.name, self.split = settings, rows, kept, name, split
        self.conversational = settings.template is None and not isinstance(
            _cell(rows[kept[0]], settings.columns.prompt), str
        )
        self._numbers = None if settings.columns.id is None else self._numbers_by(settings.columns.id)

    def __len__(self) -> int:
        return len(self.kept)

    def __getitem__(self, index: int) -> Task:
        check_index(self.name, index, len(self))
        number = self.kept[index]
        row, columns = self.rows[number], self.settings.columns
        further = {name: value for name, value in row.items() if name != columns.prompt}
        for name in ("level", "hints", "demonstration", "rubric"):
            column = getattr(columns, name)
            if column is not None:
                further[name] = _cell(row, column)
        if "hints" in further and columns.hints is not None:
            further["hints"] = [hint if isinstance(hint, dict) else _solution(hint) for hint in further["hints"]]
        if columns.options is not None:
            further["options"] = list(map(str, _cell(row, columns.options)))
        id = str(number) if columns.id is None else str(_cell(row, columns.id))
        answer = _answer(self.settings, row)
        return Task(f"{self.name}/{self.split}/{id}", _messages(self.settings, row), answer, further, self.name)

    def looked_at(self, n: int) -> range:
        return range(len(self))

    def row(self, index: int) -> Mapping[str, Any]:
        return self.rows[self.kept[index]]

    def reordered(self, task: Task, order: Sequence[int]) -> tuple[Message, ...] | None:
        if self.settings.columns.options is None:
            return None
        id = task.id.removeprefix(f"{self.name}/{self.split}/")
        row = self.rows[int(id) if self._numbers is None else self._numbers[id]]
        return _messages(self.settings, row, order)

    def grader(self) -> Grader:
        if self.settings.columns.answer is None:
            raise RecipeError(
                "tasks.columns.answer: got null, so that reward kind 'task' has nothing to compare with; "
                "allowed: a column, or a reward that needs no answer"
            )
        return combine([self.settings.verifier], self)

    def _numbers_by(self, column: str) -> dict[str, int]:
        """The row number of each id."""
        first: dict[str, int] = {}
        for number in self.kept:
            id = str(_cell(self.rows[number], column))
            if id in first:
                raise RecipeError(
                    f"tasks.columns.id: rows {first[id]} and {number} of {self.name!r} are both {quoted(id)} in column "
                    f"{column!r}; allowed: a column that is different in each row, or null"
                )
            first[id] = number
        return first


def _problems(settings: Dataset, rows: Rows, name: str) -> list[tuple[int, str]]:
    """Number and problem of each row that ``where`` keeps; checks every cell that will be used."""
    found: list[tuple[int, str]] = []
    for index, row in enumerate(rows):
        _check_row(settings, row, index, name)
        if all(_cell(row, column) in _listed(allowed) for column, allowed in settings.where.items()):
            found.append((index, _problem(settings, row)))
    if not found:
        raise RecipeError(f"tasks.where: no row of {name!r} has {quoted(settings.where)}; allowed: values that occur")
    return found


def _problem(settings: Dataset, row: Mapping[str, Any]) -> str:
    """Identity of a problem: the cells that the prompt is made of, without the template's words around them."""
    columns = _shown(settings) if settings.template is not None else [settings.columns.prompt]
    return repr([_cell(row, column) for column in columns])


def _check_row(settings: Dataset, row: Mapping[str, Any], index: int, name: str) -> None:
    columns = settings.columns
    needed: list[tuple[str, str | None, Callable[[Any], str | None], str]] = [
        (
            "columns.prompt",
            None if settings.template else columns.prompt,
            _fault_of_prompt,
            "a text, or chat messages {role, content} of text",
        ),
        ("columns.answer", columns.answer, _unless(_is_answer), "a text, a number, or a list of these"),
        ("columns.id", columns.id, _unless(_is_scalar), "a text or a number"),
        ("columns.level", columns.level, _unless(_is_scalar), "a text or a number"),
        ("columns.hints", columns.hints, _fault_of_hints, "a list of texts or of {tier, text}"),
        ("columns.demonstration", columns.demonstration, _unless(_is_text), "a text"),
        (
            "columns.options",
            columns.options,
            _unless(_is_options),
            f"a list of 2 to {len(LETTERS)} different texts or numbers",
        ),
        ("columns.rubric", columns.rubric, _unless(is_rubric), "a list of {criterion, points, contains or ends}"),
        *(("where", column, _unless(_is_any), "") for column in settings.where),
        *(("template", column, _unless(_is_there), "what can be written") for column in _shown(settings)),
    ]
    for key, column, fault_in, allowed in needed:
        if column is None:
            continue
        try:
            value = _cell(row, column)
        except KeyError:
            unset = ", or null" if key not in ("columns.prompt", "where", "template") else ""
            raise RecipeError(
                f"tasks.{key}: row {index} of {name!r} has no column {column!r}{nearest(column, row)}; "
                f"allowed: {', '.join(row)}{unset}"
            ) from None
        if (fault := fault_in(value)) is not None:
            raise RecipeError(
                f"tasks.{key}: row {index} of {name!r} holds {fault} in column {column!r}; allowed: {allowed}"
            )
    if settings.answer_after is not None and columns.answer is not None:
        answers = _listed(_cell(row, columns.answer))
        if any(after_last(str(answer), settings.answer_after) is None for answer in answers):
            raise RecipeError(
                f"tasks.answer_after: row {index} of {name!r} has nothing after {settings.answer_after!r} in column "
                f"{columns.answer!r}; allowed: a mark that every answer has, or null"
            )


def _cell(row: Mapping[str, Any], column: str) -> Any:
    """A cell by its column, or by ``column.key`` inside one. Raises KeyError."""
    if column in row:
        return row[column]
    outer, dot, inner = column.partition(".")
    if dot and isinstance(row.get(outer), Mapping):
        return _cell(row[outer], inner)
    raise KeyError(column)


def _shown(settings: Dataset) -> list[str]:
    """The columns that the template shows."""
    columns, options = fields_of(settings.template or ""), settings.columns.options
    return [options if column == "options" and options is not None else column for column in columns]


def _messages(settings: Dataset, row: Row, order: Sequence[int] | None = None) -> tuple[Message, ...]:
    """The prompt of a row.

    Args:
        order: of the options, by their numbers; None for the row's own.
    """
    if settings.columns.options is not None:
        options = _cell(row, settings.columns.options)
        listed = options if order is None else [options[number] for number in order]
        lines = [f"{letter}) {option}" for letter, option in zip(LETTERS, listed, strict=False)]
        row = {**row, "options": "\n".join(lines)}
    prompt = fill(settings.template, row) if settings.template is not None else _cell(row, settings.columns.prompt)
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else plain_messages(prompt)
    if settings.system is not None and messages[0]["role"] != "system":
        messages.insert(0, {"role": "system", "content": settings.system})
    return tuple(messages)


def _answer(settings: Dataset, row: Mapping[str, Any]) -> Any:
    if settings.columns.answer is None:
        return None
    answer = _cell(row, settings.columns.answer)
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


def _is_any(value: Any) -> bool:
    return True


def _is_there(value: Any) -> bool:
    return value is not None and not (isinstance(value, float) and math.isnan(value))


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_scalar(value: Any) -> bool:
    return isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value))


def _is_answer(value: Any) -> bool:
    return _is_scalar(value) or (isinstance(value, list) and bool(value) and all(map(_is_scalar, value)))


def _is_options(value: Any) -> bool:
    fits = isinstance(value, list) and 2 <= len(value) <= len(LETTERS) and all(map(_is_scalar, value))
    return fits and len(set(map(str, value))) == len(value)


def _fault_of_prompt(value: Any) -> str | None:
    if isinstance(value, str):
        return None if value else kind_of(value)
    return fault_of(value)


def _fault_of_hints(value: Any) -> str | None:
    if not isinstance(value, list):
        return kind_of(value)
    for number, hint in enumerate(value):
        texts = [hint.get("tier"), hint.get("text")] if isinstance(hint, Mapping) else [hint]
        if wrong := [text for text in texts if not isinstance(text, str)]:
            return f"{kind_of(wrong[0])} {'as' if texts == [hint] else 'in'} hint {number}"
    return None
