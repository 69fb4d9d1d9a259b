"""Prompts from templates and hints below them."""

from __future__ import annotations

import string
from collections.abc import Mapping
from typing import Any

from lyceum.types import Task


def fields_of(template: str) -> list[str]:
    """The names in a template's braces. Raises ValueError where braces hold more than a name.

    ``{question.__class__}`` or ``{0}`` would reach beyond the columns; a template comes with a recipe, from anywhere.
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
    return names


def fill(template: str, values: Mapping[str, Any]) -> str:
    """The template with its names replaced; ``fields_of`` has checked it."""
    return template.format_map(dict(values))


def with_hint_below(task: Task, hint: Mapping[str, str]) -> Task:
    """The same problem with a hint below its last message; ``columns["hint"]`` is the hint."""
    *before, last = task.messages
    content, text = last["content"], f"Hint: {hint['text']}"
    # Content is text, or a list of parts (text, images).
    content = f"{content}\n{text}" if isinstance(content, str) else [*content, {"type": "text", "text": text}]
    return task.with_messages([*before, {**last, "content": content}], hint=dict(hint))
