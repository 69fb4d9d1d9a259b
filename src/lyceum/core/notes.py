"""Notes: what one component tells another about a task or its tree.

A note is a dataclass, frozen once it is passed on. The file of the component that writes it declares it, and its reader
imports it; where the reader's folder lies below the writer's, the reader's file declares it. So the core knows none.

A file holds a note as the mapping of its fields, under its kind. Reading it gives the note where its class has been
imported; else it stays a mapping until a reader asks for it by its class. So nothing has to be imported for a file to
be read, and what nobody knows is written back unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar


class Note:
    """Base class of notes, which are dataclasses of plain values; each subclass has a ``kind``."""

    kind: ClassVar[str]
    """Its name in files, and in the rollout table for a tree's; no other note has it."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        _known[cls.kind] = cls

    def in_table(self) -> Any:
        """What the rollout table shows of it: all of its fields, unless it says otherwise."""
        return self


_known: dict[str, type[Note]] = {}
"""The classes that this process has imported."""

AnyNote = TypeVar("AnyNote", bound=Note)


def typed(kind: type[AnyNote], value: Any) -> AnyNote:
    """A note as its class, which a file may have given as the mapping of its fields.

    Raises:
        ValueError: it was recorded with other fields.
    """
    if isinstance(value, kind):
        return value
    try:
        return kind(**value)
    except TypeError as error:
        raise ValueError(
            f"note {kind.kind!r}: recorded as {value!r:.200}, which is none of this version: {error}"
        ) from error


def restored(values: Mapping[str, Any]) -> dict[str, Any]:
    """What a file holds by name, with notes as their classes where these are imported and have these fields."""
    return {name: _restored(_known.get(name.partition("#")[0]), value) for name, value in values.items()}


def _restored(kind: type[Note] | None, value: Any) -> Any:
    if kind is None:
        return value
    try:
        return typed(kind, value)
    except ValueError:  # who asks for it gets the error
        return value
