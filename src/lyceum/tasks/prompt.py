"""Prompts from templates, and hints appended to them."""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from typing import Any

from lyceum.core.types import Hint, Message, Task
from lyceum.tasks.row_pictures import COLUMNS, fault_of_pictures, named_in
from lyceum.tasks.rows import kind_of
from lyceum.utils.messages import is_picture_part, text_of
from lyceum.utils.terminal import quoted

MOST_NAMES = 50
"""Maximum names in a template."""


def fields_of(template: str) -> list[str]:
    """The names in a template's braces. Raises ValueError where braces hold more than a name.

    ``{question.__class__}`` or ``{0}`` would reach beyond the columns; templates come with untrusted recipes.
    """
    try:
        fields = [(name, spec, conversion) for _, name, spec, conversion in string.Formatter().parse(template)]
    except ValueError as error:
        raise ValueError(f"{error}; allowed: {{column}}, and {{{{ }}}} for braces that stay") from None
    names: list[str] = []
    for name, spec, conversion in fields:
        if name is None:
            continue
        if not name or spec or conversion or not all(part.isidentifier() for part in name.split("-")):
            raise ValueError(
                f"got {{{name}{'!' + conversion if conversion else ''}{':' + spec if spec else ''}}}; "
                "allowed: {column}, and {{ }} for braces that stay"
            )
        names.append(name)
    if len(names) > MOST_NAMES:  # each may be filled with megabytes
        raise ValueError(f"got {len(names)} names in braces; allowed: at most {MOST_NAMES}")
    return names


def fill(template: str, values: Mapping[str, Any]) -> str:
    """The template with its names replaced; ``fields_of`` has checked it."""
    return template.format_map(dict(values))


def fault_of(messages: Any) -> str | None:
    """The fault in a prompt's chat messages, to follow ``it holds``; None where they are valid."""
    if not isinstance(messages, list) or not messages:
        return kind_of(messages)
    for number, message in enumerate(messages):
        if not isinstance(message, Mapping):
            return f"{kind_of(message)} as message {number}"
        role = message.get("role")
        if not isinstance(role, str) or not role:
            return f"message {number}, whose role is {kind_of(role)},"
        if message.get("content") is None and message.get("tool_calls"):
            return f"message {number}, which calls a tool (tool_calls are not supported: calls are text in content),"
        if (fault := _fault_of_content(message.get("content"))) is not None:
            return f"message {number}, whose content is {fault},"
    return None


def _fault_of_content(content: Any) -> str | None:
    if isinstance(content, str):
        return None
    if not isinstance(content, list) or not content:
        return kind_of(content)
    for part in content:
        kind = part.get("type") if isinstance(part, Mapping) else None
        if is_picture_part(part):
            if (named := named_in(part)) is not None and (fault := fault_of_pictures(named)) is not None:
                return fault
            continue
        if kind != "text":
            return f"a list with {kind_of(part)}" if kind is None else f"a list with a part of type {quoted(kind)}"
        if not isinstance(part.get("text"), str):
            return f"a list with a part whose text is {kind_of(part.get('text'))}"
    return None


NOT_TEXT = {"videos": "videos", "video": "videos", "audios": "sound", "audio": "sound"}
"""Columns of other things than text and pictures, as datasets for models that read these name them."""


def fault_of_media(row: Mapping[str, Any], *, pictures: bool) -> str | None:
    """Why a row's videos or sound keep it from being used, to follow ``it holds``; None where it has none.

    Args:
        pictures: whether rows may have these.
    """
    columns = NOT_TEXT if pictures else NOT_TEXT | dict.fromkeys(COLUMNS, "pictures")
    column = next((column for column in columns if row.get(column)), None)
    if column is None:
        return None
    return (
        f"{columns[column]} in column {column!r}, which are not supported {'yet' if pictures else 'in such files yet'}"
    )


def answer_of(value: Any) -> str | None:
    """A completion's text: the cell itself, or its one message of the assistant; None where it is neither."""
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], Mapping):
        value = value[0].get("content") if value[0].get("role") == "assistant" else None
        if isinstance(value, list) and _fault_of_content(value) is None:
            value = text_of(value)
    return value if isinstance(value, str) and value else None


def before_answer(messages: Sequence[Message]) -> Sequence[Message]:
    """A conversation's prompt: all but the assistant's message at its end."""
    return messages[:-1] if len(messages) > 1 and messages[-1].get("role") == "assistant" else messages


def plain_messages(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Valid messages without their null entries: a table gives each message, and each part, every key."""

    def present(cells: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in cells.items() if value is not None}

    plain = [present(message) for message in messages]
    for message in plain:
        if isinstance(message["content"], list):
            message["content"] = [present(part) for part in message["content"]]
    return plain


def with_hint_below(task: Task, hint: Hint) -> Task:
    """The same problem with a hint below its last message."""
    *before, last = task.messages
    content, text = last["content"], f"Hint: {hint.text}"
    # Content is text, or a list of parts (text, images).
    content = f"{content}\n{text}" if isinstance(content, str) else [*content, {"type": "text", "text": text}]
    return task.with_messages([*before, {**last, "content": content}], hint=hint)
