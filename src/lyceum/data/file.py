"""A user's own preference pairs, labelled completions or graded logs, from a file."""

from __future__ import annotations

import json
import logging
import os
from array import array
from collections.abc import AsyncIterator, Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b
from itertools import islice
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, overload

import numpy as np
from pydantic import Field

from lyceum.core.component import PathText
from lyceum.core.group import Group
from lyceum.core.settings import DataSettings, ObjectiveSettings
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Continuation, Gathering, Grade, Message, Task
from lyceum.core.user_files import user_file
from lyceum.data._formats import Completed, RowError, completed
from lyceum.models.policy import Policy
from lyceum.models.prompts import far_too_long
from lyceum.models.renderer import Renderer
from lyceum.tasks.rows import DatasetRows, UnreadableRow, called, files_of, read_rows, refuse_part_of_file, stamp
from lyceum.utils.atomic_files import atomic_path
from lyceum.utils.errors import RecipeError
from lyceum.utils.messages import text_of
from lyceum.utils.numbers import to_json
from lyceum.utils.terminal import printable

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

log = logging.getLogger(__name__)

NAMED = 5
"""Bad rows that a warning names; of further ones only the number is given."""

CHECKED = 64
"""Rows that are looked at before anything else, and whose characters are compared with the model's vocabulary."""

TEMPLATE_TOKENS = 512
"""Tokens that a chat template may add to a row; rows that could be too long by this bound are rendered to be sure."""


class File(DataSettings):
    """Rows of a file by TRL's column names: ``prompt, chosen, rejected`` (the prompt may be implicit, as what both
    begin with), ``prompt, completion, label`` and ``prompt, completion, reward``. Texts, or chat messages.

    A pair is a group of its own; labelled and graded completions of one prompt are a group. Chosen and desirable
    completions have outcome 1, others 0.
    """

    given: ClassVar[bool] = True

    kind: Literal["file"] = "file"
    path: PathText
    """A file, a pattern such as ``pairs/*.jsonl``, a dataset's folder, or its name on the Hugging Face hub: what
    ``tasks.path`` may be. In a .csv file, whose cells are all texts, a label is ``true``, ``false``, 1 or 0."""
    subset: str | None = None
    """Configuration of a dataset on the hub, where it has several."""
    split: str = "train"
    """The split to read, where the dataset has several."""
    bad_rows: Literal["refuse", "drop"] = "refuse"
    """What happens where a row cannot be used: the command is refused, or the row is left out and counted."""
    limit: int | None = Field(None, ge=1, le=10**9)
    """Maximum rows read; null reads all."""

    def check_first_rows(self) -> None:
        refuse_part_of_file(self.path, "data.split", self.split, usual="train")
        refuse_part_of_file(self.path, "data.subset", self.subset)
        for _ in islice(self.rows(), CHECKED):
            pass

    def check_files(self, tokenizer: PreTrainedTokenizerBase, limit: int, objective: ObjectiveSettings | None) -> None:
        used, paired = 0, objective is None or "pairs-alone" not in objective.offers
        outcomes: dict[int, float] = {}
        for used, (_, row) in enumerate(self.rows(tokenizer, limit, warn=True), 1):  # noqa: B007, it is read below
            if not paired:
                outcome = row.completions[0][1]
                paired = row.alone or outcomes.setdefault(hash(to_json(row.prompt)), outcome) != outcome
        if not used:
            raise RecipeError(f"data.path: {called(self.path)} has no row that can be used; allowed: at least one")
        if not paired:
            raise RecipeError(
                f"data.path: {called(self.path)} has no pair to learn from: each prompt has one "
                "completion, or several of one outcome; allowed: prompt, chosen and rejected; or, for completions by "
                "themselves, lyceum train kto data=FILE"
            )

    def first_task(self) -> Task:
        number, row = next(self.rows())
        return _task(Path(self.path).name, number, row.prompt)

    async def parts(self, stage: Gathering) -> AsyncIterator[Sequence[Tree]]:
        """None: its groups are read one by one."""
        return
        yield ()

    def groups(self, stage: Gathering, home: Path) -> FileGroups:
        # The rows are copied into the run's folder: a resumed run trains on the same, whatever becomes of the file.
        copy = home / "data" / "rows.jsonl"
        if not copy.exists():
            copy.parent.mkdir(parents=True, exist_ok=True)
            with atomic_path(copy) as partial, partial.open("w", encoding="utf-8") as lines:
                for number, row in self.rows(stage.policy.tokenizer, stage.policy.context_length):
                    written = {"row": number, "prompt": row.prompt, "completions": row.completions, "alone": row.alone}
                    lines.write(to_json(written) + "\n")
        _read_once.cache_clear()
        return FileGroups(copy, stage.policy, Path(self.path).name)

    def _opened(self) -> DatasetRows:
        """The rows, of files the same object until they are copied: they are looked at several times before."""
        stamps = tuple(stamp(os.stat(file)) for file in files_of(self.path))
        if stamps:
            return _read_once(self.path, self.subset, self.split, stamps)
        return read_rows(self.path, subset=self.subset, split=self.split, key="data.path")

    def rows(
        self, tokenizer: PreTrainedTokenizerBase | None = None, limit: int = 0, *, warn: bool = False
    ) -> Iterator[tuple[int, Completed]]:
        """(number, row) of each row that is used, read one by one.

        Args:
            tokenizer, limit: the model's, and its context in tokens, where rows are checked against them.
            warn: log what is left out.
        Raises:
            RecipeError: the file cannot be read, or a row cannot be used and ``bad_rows`` is ``refuse``.
        """
        bad: list[str] = []
        left_out = 0
        rows = self._opened()
        for number, row in enumerate(islice(rows.read(), self.limit)):
            try:
                if isinstance(row, UnreadableRow):
                    raise RowError(row.why)
                found = completed(row)
                if tokenizer is not None:
                    _check_tokens(found, tokenizer, limit, vocabulary=number < CHECKED)
            except RowError as error:
                line = str(error) if isinstance(row, UnreadableRow) else f"{rows.where(number)}: {error}"
                if self.bad_rows == "refuse":
                    raise RecipeError(f"data.path: {line}; or leave such rows out: data.bad_rows=drop") from None
                left_out += 1
                if len(bad) < NAMED:
                    bad.append(line)
                continue
            yield number, found
        if left_out and warn:
            more = f"; and {left_out - len(bad)} more" if left_out > len(bad) else ""
            log.warning("data.bad_rows: %d rows are left out: %s%s", left_out, printable("; ".join(bad)), more)


@lru_cache(maxsize=1)
def _read_once(path: str, subset: str | None, split: str, stamps: tuple[tuple[int, ...], ...]) -> DatasetRows:
    """Rows of files that have not changed since."""
    return read_rows(path, subset=subset, split=split, key="data.path")


def _task(name: str, number: int, prompt: Sequence[Message]) -> Task:
    return Task(f"{name}/{number}", tuple(prompt), provenance=name)


class FileGroups(Sequence[Group]):
    """The groups of a file's copy, each read and tokenised when it is asked for: 16 bytes of memory per row."""

    def __init__(self, copy: Path, policy: Policy, name: str) -> None:
        self.copy, self.policy, self.name = copy, policy, name
        start, key = array("q"), array("Q")
        at = 0
        with copy.open("rb") as lines:
            for line in lines:
                row = json.loads(line)
                what = line if row["alone"] else to_json(row["prompt"]).encode()
                start.append(at)
                key.append(int.from_bytes(blake2b(what, digest_size=8).digest(), "little"))
                at += len(line)
        keys = np.frombuffer(key, np.uint64) if len(key) else np.empty(0, np.uint64)
        _, first, group = np.unique(keys, return_index=True, return_inverse=True)
        rank = np.empty(len(first), np.int64)  # groups in the order of their first rows
        rank[np.argsort(first)] = np.arange(len(first))
        order = np.argsort(rank[group], kind="stable")
        self.start = np.frombuffer(start, np.int64)[order] if len(start) else np.empty(0, np.int64)
        self.end = np.cumsum(np.bincount(rank[group], minlength=len(first)))

    def __len__(self) -> int:
        return len(self.end)

    @overload
    def __getitem__(self, index: int) -> Group: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Group]: ...
    def __getitem__(self, index: int | slice) -> Group | Sequence[Group]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not 0 <= index < len(self):
            raise IndexError(index)
        rows: list[dict[str, Any]] = []
        with self.copy.open("rb") as lines:
            for start in self.start[self.end[index - 1] if index else 0 : self.end[index]]:
                lines.seek(int(start))
                rows.append(json.loads(lines.readline()))
        task = _task(self.name, rows[0]["row"], rows[0]["prompt"])
        root = Node.prompt(self.policy.render(task.messages))
        tree = Tree(task, [root])
        for row in rows:
            for text, outcome in row["completions"]:
                tokens = self.policy.encode(text)
                unknown = [nan] * len(tokens)
                leaf = root.add_drawn(Continuation(tokens, unknown, [], [0] * len(tokens), "stop"), text)
                leaf.grade = Grade(outcome, correct=bool(outcome) if outcome in (0, 1) else None)
        return Group(tree)


def _check_tokens(row: Completed, tokenizer: PreTrainedTokenizerBase, limit: int, *, vocabulary: bool) -> None:
    """Raise RowError where a row is longer than the context, or has characters that the vocabulary lacks."""
    texts = [text for text, _ in row.completions]
    # A token is a byte or more, so that short rows need no tokenizer.
    most = len(to_json(row.prompt)) + TEMPLATE_TOKENS
    if not vocabulary and most + max(len(text.encode(errors="replace")) for text in texts) < limit:
        return
    characters = sum(len(text_of(message["content"])) for message in row.prompt) + max(map(len, texts))
    if far_too_long(tokenizer, characters, limit):
        raise RowError(f"prompt and completion have {characters} characters, too many for the model's {limit} tokens")
    renderer = Renderer(tokenizer)
    try:
        prompt = renderer.render(row.prompt).tokens
    except RecipeError as error:
        raise RowError(f"the prompt cannot be rendered: {'; '.join(error.lines)}") from error
    unknown = tokenizer.unk_token_id
    for text in texts:
        with user_file("data.path", "a completion", "allowed: text that the tokenizer can encode"):
            tokens = tokenizer(renderer.controls.as_text(text), add_special_tokens=False)["input_ids"]
        if len(prompt) + len(tokens) + 1 > limit:
            raise RowError(
                f"prompt and completion have {len(prompt) + len(tokens) + 1} tokens, the end of sequence among them; "
                f"allowed: at most {limit}, the model's context"
            )
        if unknown is not None and (unknown in tokens or unknown in prompt):
            raise RowError("it has characters that the model's vocabulary lacks; allowed: text that it can write")
