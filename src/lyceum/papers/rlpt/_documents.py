"""The documents of a file, read one by one: what is in memory is where each begins and how long it is."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from jaxtyping import Bool, UInt

from lyceum.core.types import Row
from lyceum.tasks.base import checksum
from lyceum.tasks.rows import DatasetRows, UnreadableRow, is_named_as_file, kind_of, read_rows
from lyceum.utils.documents import DATA, DocumentError, read_json
from lyceum.utils.errors import RecipeError, nearest
from lyceum.utils.paths import local_path

MOST_BYTES = 1 << 24
"""Maximum bytes of a line, or of a paragraph."""


class Documents(Protocol):
    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> str: ...


Chosen = Callable[[UInt[np.ndarray, " document"]], Bool[np.ndarray, " document"]]
"""Which documents to keep, by the checksums of all that are usable."""


def read_documents(
    path: str,
    usable: Callable[[str], bool],
    chosen: Chosen,
    *,
    column: str,
    by_lines: bool,
    longest: int,
    limit: int,
    key: str,
) -> NamedDocuments:
    """The documents of a file that are usable and chosen, in order; all are read once, to check them.

    Args:
        column: of the text, where the file has rows.
        by_lines: whether each line of a text file is a document; else a paragraph is.
        longest: characters that are read of each.
        limit: maximum number of usable ones, from the first, among which some are chosen.
        key: the recipe's key that holds the path, for messages.
    Raises:
        RecipeError: the file cannot be read, or is no text; also on access, where it has changed since.
    """
    place = local_path(path)
    if not place.exists() and place.suffix in (".txt", ".md", ".text"):
        raise RecipeError(f"{key}: got {path!r}, which does not exist; allowed: a file, a folder or a dataset's name")
    if place.is_file() and place.suffix == ".jsonl":
        return _InFile(place, _Lines(place, key), _text_in_json(column), usable, chosen, longest, limit, key)
    if place.is_file() and not is_named_as_file(place.name):
        spans = _Lines(place, key) if by_lines else _Paragraphs(place, key)
        return _InFile(place, spans, lambda text, where: text, usable, chosen, longest, limit, key)
    rows = read_rows(path, subset=None, split="train", key=key)
    return _InRows(rows, place.name, column, usable, chosen, longest, limit, key)


class NamedDocuments(Documents, Protocol):
    @property
    def name(self) -> str: ...


Read = Callable[[str, str], str]
"""The document in a span's text; told where it is, for messages."""


class _Lines:
    """(offset, bytes, where) of each line that is not empty."""

    def __init__(self, place: Path, key: str) -> None:
        self.place, self.key = place, key

    def __iter__(self) -> Iterator[tuple[int, bytes, str]]:
        for number, offset, line in self._lines():
            if line.strip():
                yield offset, line, f"line {number}"

    def _lines(self) -> Iterator[tuple[int, int, bytes]]:
        number = offset = 0
        with self.place.open("rb") as file:
            while line := file.readline(MOST_BYTES + 1):
                number += 1
                self._check_size(len(line), f"line {number}")
                yield number, offset, line
                offset += len(line)

    def _check_size(self, size: int, where: str) -> None:
        if size > MOST_BYTES:
            raise RecipeError(
                f"{self.key}: {where} of {str(self.place)!r} has more than {MOST_BYTES >> 20} MiB; allowed: a "
                "text in paragraphs, one in lines with tasks.documents 'lines', or rows with one text each"
            )


class _Paragraphs(_Lines):
    """The same of each run of lines that are not empty."""

    def __iter__(self) -> Iterator[tuple[int, bytes, str]]:
        begun, first, size = 0, 0, 0
        lines: list[bytes] = []
        for number, offset, line in self._lines():
            if line.strip():
                begun, first = (begun, first) if lines else (offset, number)
                lines.append(line)
                size += len(line)
                self._check_size(size, f"the paragraph from line {first} on")
            elif lines:
                yield begun, b"".join(lines), f"line {first}"
                lines, size = [], 0
        if lines:
            yield begun, b"".join(lines), f"line {first}"


class _InFile:
    """Documents of a file, read from it on access."""

    def __init__(
        self,
        place: Path,
        spans: _Lines,
        read: Read,
        usable: Callable[[str], bool],
        chosen: Chosen,
        longest: int,
        limit: int,
        key: str,
    ) -> None:
        self.place, self.name, self.read, self.longest, self.key = place, place.name, read, longest, key
        starts, sizes, checksums = array("Q"), array("Q"), array("I")
        try:
            for offset, span, where in spans:
                document = self._document(span, where)
                if usable(document):
                    starts.append(offset)
                    sizes.append(len(span))
                    checksums.append(checksum(document))
                    if len(starts) == limit:
                        break
        except OSError as error:
            raise RecipeError(f"{key}: {str(place)!r} cannot be read: {error}") from None
        kept = chosen(np.array(checksums))
        self.starts, self.sizes = np.array(starts)[kept], np.array(sizes)[kept]

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, index: int) -> str:
        try:
            with self.place.open("rb") as file:
                file.seek(int(self.starts[index]))
                span = file.read(int(self.sizes[index]))
        except OSError as error:
            raise RecipeError(f"{self.key}: {str(self.place)!r} cannot be read: {error}") from None
        return self._document(span, f"byte {self.starts[index]}")

    def _document(self, span: bytes, where: str) -> str:
        where = f"{where} of {str(self.place)!r}"
        try:
            text = span.decode().removeprefix("\ufeff")
        except UnicodeDecodeError as error:
            raise RecipeError(f"{self.key}: {where} is no UTF-8 text ({error.reason}); allowed: a text file") from None
        if "\0" in text:
            raise RecipeError(f"{self.key}: {where} has a NUL character; allowed: a text file")
        return self.read(text, f"{self.key}: {where}")[: self.longest]


def _text_in_json(column: str) -> Read:
    def read(line: str, where: str) -> str:
        try:
            row = read_json(line, limits=DATA)
        except DocumentError as error:
            raise RecipeError(f"{where}: not JSON: {error}") from None
        if not isinstance(row, dict):
            raise RecipeError(f"{where} holds {kind_of(row)}; allowed: an object with named cells")
        return _cell(row, column, where)

    return read


def _cell(row: Row, column: str, where: str) -> str:
    if column not in row:
        raise RecipeError(
            f"tasks.column: {where.partition(': ')[2]} has no column {column!r}{nearest(column, row)}; "
            f"allowed: {', '.join(row) or 'rows with columns'}"
        )
    text: Any = row[column]
    if not isinstance(text, str):
        raise RecipeError(f"{where} holds {kind_of(text)} in column {column!r}; allowed: a text")
    return text


class _InRows:
    """Documents of a dataset's rows."""

    def __init__(
        self,
        rows: DatasetRows,
        name: str,
        column: str,
        usable: Callable[[str], bool],
        chosen: Chosen,
        longest: int,
        limit: int,
        key: str,
    ) -> None:
        self.rows, self.name, self.column, self.longest, self.key = rows, name, column, longest, key
        numbers, checksums = array("Q"), array("I")
        for number, row in enumerate(rows.read()):
            if isinstance(row, UnreadableRow):
                raise RecipeError(f"{key}: {row.why}")
            text = self._text(row, number)
            if usable(text):
                numbers.append(number)
                checksums.append(checksum(text))
                if len(numbers) == limit:
                    break
        self.numbers = np.array(numbers)[chosen(np.array(checksums))]

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: int) -> str:
        number = int(self.numbers[index])
        return self._text(self.rows[number], number)

    def _text(self, row: Row, number: int) -> str:
        return _cell(row, self.column, f"{self.key}: row {number} of {self.name!r}")[: self.longest]
