"""``lyceum recipes``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from lyceum.cli.options import Json
from lyceum.cli.output import Output, printing
from lyceum.utils.errors import RecipeError

WIDTH = 100


def command(
    words: Annotated[list[str] | None, typer.Argument(metavar="[show NAME [KEY=VALUE]...]")] = None,
    *,
    as_json: Json = False,
) -> None:
    """List the recipes, or show one with every key explained.

    For example: lyceum recipes show grpo steps=50
    """
    words = words or []
    with printing(as_json) as out:
        if not words:
            show_list(out)
        elif words[0] == "show" and len(words) > 1:
            show_recipe(out, words[1], words[2:])
        else:
            raise RecipeError(f"recipes: got {' '.join(words)!r}; allowed: nothing, or show NAME [KEY=VALUE]...")


def show_list(out: Output) -> None:
    from rich.table import Table
    from rich.text import Text

    from lyceum.recipe.files import described_recipes

    found = described_recipes()
    out.json(found)
    table = Table()
    for head in ("recipe", "what it does", "paper"):
        table.add_column(head)
    for name, about in found.items():
        table.add_row(Text(name, style="bold"), Text(about["summary"] or about["title"]), Text(about["paper"]))
    out.show(table, "every key of one, explained: lyceum recipes show NAME")


def show_recipe(out: Output, name: str, keys: Sequence[str]) -> None:
    from lyceum.recipe.schema import load_recipe

    recipe = load_recipe(name, keys)
    out.json(recipe.resolved())
    if out.as_json:
        return
    from rich.syntax import Syntax

    text = "\n".join([*made_after(name), *commented(recipe)])
    # Coloured only for a terminal: a file gets plain YAML.
    out.show(Syntax(text, "yaml", background_color="default", word_wrap=True) if out.console.is_terminal else text)


def made_after(name: str) -> list[str]:
    """What a recipe of lyceum was made after, as comments; nothing for one of your own, or of no paper."""
    from textwrap import wrap

    from lyceum.recipe.papers import origin

    return [f"# {line}" for line in wrap(origin(name), WIDTH)]


def commented(value: Any, indent: str = "") -> list[str]:
    """Settings as YAML, each key with its meaning as a comment, and for a slot the kinds that it takes."""
    from textwrap import wrap

    from lyceum.cli.explain import bounds_of, meaning, slot_of
    from lyceum.core.component import Component, kinds

    lines: list[str] = []
    if "kind" in type(value).model_fields:
        lines.append(f"{indent}kind: {value.kind}")
    for name, field in type(value).model_fields.items():
        if name == "kind":
            continue
        inner = getattr(value, name)
        about = meaning(field)
        bounds = bounds_of(field)
        slot = slot_of(field)
        others = f" One of: {', '.join(kinds(slot))}." if slot is not None and kinds(slot) else ""
        comment = f"{about}{others}{f' ({bounds})' if bounds else ''}"
        lines += [f"{indent}# {line}" for line in wrap(comment, max(40, WIDTH - len(indent)))]
        if hasattr(type(inner), "model_fields"):
            lines += [f"{indent}{name}:", *commented(inner, indent + "  ")]
        elif isinstance(inner, tuple) and inner and isinstance(inner[0], Component):
            lines.append(f"{indent}{name}:")
            for item in inner:
                first, *rest = commented(item, indent + "    ")
                lines += [f"{indent}  - {first.strip()}", *rest]
        else:
            lines += plain_yaml(name, inner, indent)
    return lines


def plain_yaml(name: str, value: Any, indent: str) -> list[str]:
    from lyceum.cli.explain import plain_settings
    from lyceum.utils.documents import write_yaml

    value = plain_settings(value)
    style = None if isinstance(value, Mapping) and value else True
    text = write_yaml({name: value}, default_flow_style=style, width=10_000)
    text = text.strip()
    if style and text.startswith("{") and text.endswith("}"):
        text = text[1:-1]
    return [f"{indent}{line}" for line in text.split("\n")]
