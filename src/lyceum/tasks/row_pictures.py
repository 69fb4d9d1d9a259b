"""Pictures in a dataset's rows, as chat messages hold them: a path, or a ``data:`` URI. Nothing is read here."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lyceum.core.types import Message
from lyceum.tasks.rows import kind_of
from lyceum.utils.errors import RecipeError
from lyceum.utils.messages import is_picture_part
from lyceum.utils.paths import local_path
from lyceum.utils.terminal import quoted

COLUMNS = ("images", "image")
"""Columns that are read as a row's pictures where the settings name none."""
MARK = "<image>"
"""Where a prompt of text says that a picture stands, as LLaVA's and verl's datasets write it."""


def sources_of(cell: Any, folder: Path) -> list[str]:
    """The pictures of a cell: one, or a list of some.

    Args:
        cell: each a path, a ``data:`` URI, an object with one or with bytes, as the hub's tables have them, or a
            picture that ``datasets`` has decoded; null where there is none.
        folder: in which relative paths are looked for.
    Raises:
        RecipeError: something else.
    """
    cells = [] if cell is None else list(cell) if isinstance(cell, list | tuple) else [cell]
    return [_source(each, folder) for each in cells]


def fault_of_pictures(cell: Any) -> str | None:
    """What is wrong with a cell of pictures, to follow ``it holds``; None where nothing is."""
    try:
        sources_of(cell, Path())
    except RecipeError as error:
        return str(error)
    return None


def _source(cell: Any, folder: Path) -> str:
    if hasattr(cell, "save") and hasattr(cell, "mode"):
        buffer = io.BytesIO()
        cell.save(buffer, format="PNG")
        return _uri(buffer.getvalue())
    if isinstance(cell, Mapping):
        if isinstance(data := cell.get("bytes"), bytes) and data:
            return _uri(data)
        cell = next((cell[name] for name in ("image", "url", "path") if cell.get(name)), None)
        if isinstance(cell, Mapping) or hasattr(cell, "save"):
            return _source(cell, folder)
    if not isinstance(cell, str) or not cell:
        raise RecipeError(f"{kind_of(cell)} as a picture")
    if cell.startswith("data:"):
        return cell
    if "://" in cell:
        raise RecipeError(f"an address as a picture, {quoted(cell[:100])}, and nothing is fetched")
    place = local_path(cell)
    return str(place if place.is_absolute() else folder / place)


def _uri(data: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(data).decode('ascii')}"


def shows_pictures(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Whether some message has a part that is a picture."""
    contents = (message["content"] for message in messages)
    return any(not isinstance(content, str) and any(map(is_picture_part, content)) for content in contents)


def named_in(part: Mapping[str, Any]) -> Any:
    """What a part of a message says of its picture; None where that is in the row's own column."""
    found = part.get("image_url") or part.get("image") or part.get("url") or part.get("path")
    return found or (part if part.get("bytes") else None)


def with_pictures(messages: Sequence[Message], sources: Sequence[str], folder: Path) -> tuple[Message, ...]:
    """Messages with all pictures in them: those that their own parts name, and the row's, in order, where parts name
    none or a text has ``<image>``; before the first user's text where there is no place for any.

    Raises:
        RecipeError: there are more places than pictures, or fewer.
    """
    left = iter(sources)
    places = sum(
        1 for message in messages for part in _parts(message) if is_picture_part(part) and named_in(part) is None
    )
    marked = 0 if places else sum(text.count(MARK) for message in messages for text in _texts(message))
    if sources and not places and not marked:
        first = next((n for n, message in enumerate(messages) if message["role"] == "user"), 0)
        before = [_part(source) for source in sources]
        at_first = {**messages[first], "content": [*before, *_parts(messages[first])]}
        messages, left = [*messages[:first], at_first, *messages[first + 1 :]], iter(())
    elif (places or marked if sources else places) != len(sources):
        raise RecipeError(f"{places or marked} places for pictures and {len(sources)} pictures")

    def filled(part: Any) -> Iterator[dict[str, Any]]:
        if is_picture_part(part):
            named = named_in(part)
            yield _part(next(left) if named is None else _source(named, folder))
        elif marked and sources:
            head, *tail = part["text"].split(MARK)
            for text, source in [(head, None), *((text, next(left)) for text in tail)]:
                yield from [] if source is None else [_part(source)]
                yield from [{"type": "text", "text": text}] if text else []
        else:
            yield dict(part)

    def whole(message: Message) -> Message:
        if not (marked and sources) and not shows_pictures([message]):
            return message
        return {**message, "content": [own for part in _parts(message) for own in filled(part)]}

    return tuple(map(whole, messages))


def _part(source: str) -> dict[str, Any]:
    return {"type": "image", "image": source}


def _parts(message: Message) -> list[Any]:
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)


def _texts(message: Message) -> list[str]:
    return [part["text"] for part in _parts(message) if not is_picture_part(part)]
