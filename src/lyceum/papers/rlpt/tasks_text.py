"""Plain text as tasks: the beginning of a document is the prompt, and what comes next in it is the answer.

No verifier is needed: rewards compare with the text itself, by its likelihood (``information-gain``) or by what was
written (``text-overlap``).
"""

from __future__ import annotations

import random
import re
from typing import Annotated, Any, Literal

import numpy as np
from jaxtyping import Bool, UInt
from pydantic import Field, field_validator, model_validator

from lyceum.core.component import PathText, of_kind, slot
from lyceum.core.settings import RewardSettings, TasksSettings
from lyceum.core.types import Grader, Split, Task, TaskSource
from lyceum.papers.rlpt._documents import Documents, read_documents
from lyceum.reward.base import combine
from lyceum.reward.scorer.base import question_of
from lyceum.tasks.base import Source, check_index, held_out
from lyceum.tasks.prompt import fields_of, fill
from lyceum.tasks.rows import kind_of
from lyceum.utils.errors import RecipeError, nearest

MOST_TASKS = 100_000_000
"""Maximum tasks in each split: an epoch's order takes 8 bytes for each."""

Cut = Literal["sentences", "words", "lines", "characters", "mark"]

_PIECES = {
    # White space is at the beginning of a piece, where tokenizers have it.
    "sentences": re.compile(r"\s*\S.*?(?:[.!?\u3002\uff01\uff1f][\"'\u2019\u201d)\]]*(?=\s|$)|\Z)", re.DOTALL),
    "words": re.compile(r"\s*\S+"),
    "lines": re.compile(r"\s*\S[^\n]*"),
    "characters": re.compile(r".", re.DOTALL),
}


class Text(TasksSettings):
    """Documents cut into a context, which is the prompt, and the piece of text that follows it, which is the answer."""

    kind: Literal["text"] = "text"
    path: PathText | None = None
    """A text file; or rows with texts in a column: a .jsonl, .json, .parquet or .csv file, a pattern of several, a
    dataset's folder or its name on the Hugging Face hub. A text or .jsonl file is read piece by piece, whatever its
    size. null takes the documents from ``tasks``."""
    tasks: Annotated[TasksSettings, slot("tasks")] | None = None
    """Where there is no ``path``: tasks, of each of which ``document`` makes a text."""
    document: str = "{prompt}{answer}"
    """Text of such a task, with {prompt}, {answer}, {solution} (as far as hints may give it) or a column."""
    column: str = Field("text", min_length=1)
    """Column with the text, where ``path`` has rows."""
    documents: Literal["paragraphs", "lines"] = "paragraphs"
    """What is one document of a text file: what empty lines separate, or each line."""
    longest: int = Field(100_000, ge=2, le=10_000_000)
    """Characters that are read of a document."""
    limit: int = Field(1_000_000, ge=1, le=10**8)
    """Maximum documents in each split; each takes 16 bytes of memory, and 4 more while they are read."""
    heldout_path: PathText | None = None
    """Another file, folder or hub name to evaluate on; null takes a share of the documents."""
    heldout_share: float = Field(0.1, gt=0, lt=1)
    """Share of the documents held out where there is no ``heldout_path``, to the nearest number (no unit)."""
    cut: Cut = "sentences"
    """Pieces that documents are cut into; with ``mark`` each ends after ``mark``."""
    mark: str | None = Field(None, min_length=1, max_length=100)
    """The mark of cut ``mark``."""
    pieces: int = Field(1, ge=1, le=100_000)
    """Number of pieces to predict."""
    earliest: int = Field(1, ge=1, le=1_000_000)
    """Minimum pieces in front of these."""
    latest: int | None = Field(None, ge=1, le=1_000_000)
    """Maximum pieces in front of these; null: as many as the document has."""
    context: int = Field(4000, ge=1, le=1_000_000)
    """Characters of the context; of a longer one the end is shown."""
    per_document: int = Field(1, ge=1, le=100_000)
    """Tasks of each document, each cut at a place of its own."""
    middle_share: float = Field(0.0, ge=0, le=1)
    """Share of tasks that show the text after the missing piece too, where there is some (no unit)."""
    following: int = Field(1, ge=1, le=100_000)
    """Number of pieces that such a task shows of it."""
    omit: str = Field("", max_length=100)
    """Text at the end of the context that prompts leave out, where the templates write it in another place."""
    template: str = "{context}"
    """The prompt, with {context}."""
    middle_template: str = "{context} [...] {following}\n\nThe text that stands at [...]:"
    """The prompt where the text after the missing piece is shown, with {context} and {following}."""
    verifier: Annotated[RewardSettings, slot("reward")] = of_kind("text-overlap")
    """The reward part that ``reward: task`` stands for."""

    @field_validator("template", "middle_template", "document")
    @classmethod
    def _is_a_template(cls, template: str) -> str:
        if not fields_of(template):
            raise ValueError(f"got {template!r}; allowed: a text with at least one {{name}}")
        return template

    @model_validator(mode="after")
    def _fits(self) -> Text:
        if (self.path is None) == (self.tasks is None):
            got = "neither path nor tasks" if self.path is None else "path and tasks"
            raise ValueError(f"got {got}; allowed: one of them, a file or tasks to make documents of")
        if self.tasks is not None and self.heldout_path is not None:
            raise ValueError("heldout_path: got one beside tasks, which have held-out ones of their own; allowed: null")
        if (self.cut == "mark") != (self.mark is not None):
            raise ValueError(f"mark: got {self.mark!r} with cut {self.cut!r}; allowed: one with 'mark', else null")
        if self.latest is not None and self.latest < self.earliest:
            raise ValueError(f"latest: got {self.latest}; allowed: earliest, {self.earliest}, or more")
        for name, known in (("template", ("context",)), ("middle_template", ("context", "following"))):
            if unknown := set(fields_of(getattr(self, name))) - set(known):
                raise ValueError(f"{name}: got {{{min(unknown)}}}; allowed: {', '.join(f'{{{k}}}' for k in known)}")
        if "tasks-verifier" in self.verifier.offers:
            raise ValueError("verifier: got 'task', which asks the tasks for their verifier; allowed: any other kind")
        return self

    def build(self, split: Split, seed: int) -> TextSource:
        if self.tasks is not None:
            return TextSource(self, OfTasks(self, self.tasks.build(split, seed)), "tasks", split, seed)
        heldout = split == "heldout"
        assert self.path is not None
        path, key = (self.path, "tasks.path")
        if self.heldout_path is not None and heldout:
            path, key = self.heldout_path, "tasks.heldout_path"

        def usable(text: str) -> bool:
            return len(self.pieces_of(text)) >= self.earliest + self.pieces

        def chosen(checksums: UInt[np.ndarray, " document"]) -> Bool[np.ndarray, " document"]:
            if self.heldout_path is not None:
                return np.ones(len(checksums), bool)
            return held_out(checksums, self.heldout_share) == heldout

        limit = self.limit
        if self.heldout_path is None:  # both splits are of the same documents
            limit = int(limit / max(self.heldout_share, 1 - self.heldout_share))
        form = {"column": self.column, "by_lines": self.documents == "lines", "longest": self.longest}
        found = read_documents(path, usable, chosen, limit=limit, key=key, **form)
        if not len(found):
            raise RecipeError(
                f"{key}: no {split} document of {path!r} has {self.earliest + self.pieces} pieces or more with "
                f"cut {self.cut!r}; allowed: longer documents, another cut, or another heldout_share"
            )
        return TextSource(self, found, found.name, split, seed)

    def pieces_of(self, text: str) -> list[str]:
        """The text in pieces, which together are the text without the white space at its end."""
        text = text.rstrip()
        if self.mark is None:
            return _PIECES[self.cut].findall(text)
        *ended, last = text.split(self.mark)
        return [*(piece + self.mark for piece in ended), *([last] if last else [])]


class OfTasks:
    """Documents made of tasks, on demand."""

    def __init__(self, settings: Text, source: TaskSource) -> None:
        self.settings, self.source = settings, source
        if len(source):
            self._check(source[0])

    def __len__(self) -> int:
        return min(len(self.source), self.settings.limit)

    def __getitem__(self, index: int) -> str:
        task = self.source[index]
        self._check(task)
        return fill(self.settings.document, self._fields(task))[: self.settings.longest]

    def level(self, index: int) -> Any:
        return self.source[index].columns.get("level")

    def _fields(self, task: Task) -> dict[str, Any]:
        solution = self.source.solution(task)
        given = "" if solution is None else solution.hint(len(solution.steps)).text
        return {**task.columns, "prompt": question_of(task.messages), "answer": task.answer, "solution": given}

    def _check(self, task: Task) -> None:
        fields = self._fields(task)
        for name in fields_of(self.settings.document):
            value = fields.get(name)
            if not isinstance(value, str | int | float):
                raise RecipeError(
                    f"tasks.document: got {{{name}}}{nearest(name, fields)}, and task {task.id!r} has {kind_of(value)} "
                    "there; allowed: {prompt}, {answer}, {solution} and columns that are texts or numbers"
                )


class TextSource(Source):
    """``source[i]`` is a place of document i // per_document, drawn by (seed, split, i) alone."""

    def __init__(self, settings: Text, documents: Documents, name: str, split: Split, seed: int) -> None:
        self.settings, self.documents, self.name, self.split, self.seed = settings, documents, name, split, seed
        if len(self) > MOST_TASKS:
            raise RecipeError(
                f"tasks.per_document: got {settings.per_document} for {len(documents)} documents; allowed: at most "
                f"{MOST_TASKS} tasks in all"
            )

    def __len__(self) -> int:
        return len(self.documents) * self.settings.per_document

    def __getitem__(self, index: int) -> Task:
        check_index("text", index, len(self))
        settings, number = self.settings, index // self.settings.per_document
        id = f"text/{self.name}/{self.split}/{self.seed}/{index}"
        pieces = settings.pieces_of(self.documents[number])
        last = len(pieces) - settings.pieces
        if last < settings.earliest:  # a file was cut when the source was built: its documents are long enough
            raise RecipeError(
                f"tasks.document: text {number} has {len(pieces)} pieces with cut {settings.cut!r}, fewer than "
                f"{settings.earliest + settings.pieces}; allowed: longer documents, or another cut"
            )
        rng = random.Random(id)
        at = rng.randint(settings.earliest, min(last, settings.latest or last))
        end = at + settings.pieces
        middle = rng.random() < settings.middle_share and end < len(pieces)
        context = "".join(pieces[:at])[-settings.context :]
        following = "".join(pieces[end : end + settings.following]) if middle else ""
        fields = {"context": context.strip().removesuffix(settings.omit), "following": following.strip()}
        prompt = fill(settings.middle_template if middle else settings.template, fields)
        answer = "".join(pieces[at:end])
        columns: dict[str, Any] = {
            "rest": answer + "".join(pieces[end:]),
            "mode": "middle" if middle else "next",
            "pieces_before": at,
        }
        if isinstance(self.documents, OfTasks) and (level := self.documents.level(number)) is not None:
            columns["level"] = level
        return Task(id, ({"role": "user", "content": prompt},), answer, columns, provenance=self.name)

    def grader(self) -> Grader:
        return combine([self.settings.verifier], self)
