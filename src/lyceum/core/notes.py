"""Notes: what one component tells another about a task or its tree.

A note is a dataclass, frozen once it is passed on. The file of the component that writes it declares it, and its reader
imports it; where the reader's folder lies below the writer's, the reader's file declares it. So the core knows none.

What was read from a file stands under its name as the plain values that were written, until a reader asks for it by
its class: nothing has to be imported for a file to be read, and what nobody knows is written back unchanged.
"""

from __future__ import annotations

from typing import Any, ClassVar, TypeVar


class Note:
    """Base class of notes, which are dataclasses of plain values."""

    kind: ClassVar[str]
    """Its name in files, and in the rollout table for a tree's; no other note has it."""

    def in_table(self) -> Any:
        """What the rollout table shows of it: all of its fields, unless it says otherwise."""
        return self


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
