"""``lyceum recipes``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from lyceum.cli.options import Json
from lyceum.cli.output import Output, listing, printing
from lyceum.utils.errors import RecipeError

WIDTH = 100


NARROW = 70
"""Columns below which a recipe's name has a line of its own."""


def command(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[WORD]... | show NAME [KEY=VALUE]... | diff NAME [OTHER] [KEY=VALUE]..."),
    ] = None,
    *,
    family: Annotated[
        str | None, typer.Option(help="Those of one group: objective, credit, curriculum, ...; the list names them.")
    ] = None,
    slot: Annotated[
        str | None, typer.Option(help="Those with a component of their own in a slot, such as curriculum.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Find a recipe by words of its name, title, paper or components; show one with every key explained; or print what
    one changes of another.

    For example: lyceum recipes tree; lyceum recipes show grpo steps=50; lyceum recipes diff dapo grpo
    """
    words = words or []
    with printing(as_json) as out:
        if words[:1] == ["show"] and len(words) > 1:
            show_recipe(out, words[1], words[2:])
        elif words[:1] == ["diff"] and len(words) > 1:
            show_differences(out, words[1:])
        else:
            show_list(out, words, family, slot)


def show_list(out: Output, words: Sequence[str], family: str | None, slot: str | None) -> None:
    from lyceum.analysis.catalogue import GROUPS, catalogue, matching
    from lyceum.core.paper_folders import SLOTS
    from lyceum.utils.errors import nearest

    for option, given, allowed in (("--family", family, GROUPS), ("--slot", slot, SLOTS)):
        if given is not None and given not in allowed:
            raise RecipeError(f"{option}: got {given!r}{nearest(given, allowed)}; allowed: {', '.join(allowed)}")
    every = catalogue()
    found = matching(words, every, group=family, slot=slot)
    if not found:
        got = " ".join(
            [*words, *(f"--{name} {value}" for name, value in (("family", family), ("slot", slot)) if value)]
        )
        meant = nearest(words[0], ["show", "diff", *(each.name for each in every)]) if words else ""
        raise RecipeError(
            f"recipes: got {got!r}{meant}; allowed: words that a recipe has, show NAME [KEY=VALUE]..., or "
            "diff NAME [OTHER]"
        )
    about = ("title", "paper", "summary", "group")
    out.json({each.name: {key: getattr(each, key) for key in about} for each in found})
    if words or family or slot:
        for each in found:
            paper = f" ({each.paper})" if each.paper else ""
            out.show(*entry(each.name, f"{each.about}{paper}", out.console.width))
        out.show("", "every key of one, explained: lyceum recipes show NAME; what it changes: lyceum recipes diff NAME")
    else:
        show_groups(out, found)


def show_groups(out: Output, every: Sequence[Any]) -> None:
    """The recipes to begin with, and the names of the others by group."""
    from textwrap import wrap

    from rich.text import Text

    from lyceum.analysis.catalogue import FIRST, GROUPS

    width = min(out.console.width, WIDTH)
    out.show(Text("To begin with", style="bold"))
    for name, about in FIRST.items():
        out.show(*entry(name, about, width))
    for group, heading in GROUPS.items():
        names = [each.name for each in every if each.group == group]
        if names:
            out.show("", Text(f"{heading} ({group}, {len(names)})", style="bold"))
            out.show(
                *wrap(", ".join(names), width - 1, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)
            )
    out.show(
        "",
        "what each of a group does: lyceum recipes --family GROUP; search: lyceum recipes WORD",
        "every key of one, explained: lyceum recipes show NAME; what it changes: lyceum recipes diff NAME",
    )


def entry(name: str, about: str, width: int) -> list[Any]:
    """A name and what it is, beside each other where there is room."""
    from textwrap import wrap

    from rich.text import Text

    indent = 4 if width < NARROW else 26
    lines = wrap(about, max(20, min(width, WIDTH) - indent - 1)) or [""]
    head = Text(f"  {name}", style="bold")
    if width < NARROW or len(name) > indent - 3:
        return [head, *(" " * indent + line for line in lines)]
    first, *rest = lines
    return [Text.assemble(head, " " * (indent - 2 - len(name)), first), *(" " * indent + line for line in rest)]


def show_differences(out: Output, words: Sequence[str]) -> None:
    """What a recipe, with some keys, changes of another."""
    from rich.text import Text

    from lyceum.analysis.catalogue import differences
    from lyceum.recipe.schema import load_recipe
    from lyceum.utils.numbers import to_json

    names = [word for word in words if "=" not in word]
    keys = [word for word in words if "=" in word]
    if not 1 <= len(names) <= 2:
        raise RecipeError(
            f"recipes: got diff of {', '.join(names) or 'none'}; allowed: diff NAME [OTHER] [KEY=VALUE]..."
        )
    name, other = names[0], names[1] if len(names) == 2 else "grpo"
    found = differences(load_recipe(name, keys), load_recipe(other))
    out.json({key: {other: before, name: now} for key, (before, now) in found.items()})
    if not found:
        out.show(f"{name} changes nothing of {other}")
        return
    table = listing("key", other, name)
    for key, (before, now) in found.items():
        table.add_row(key, *(Text("-" if value is None else to_json(value).strip('"')) for value in (before, now)))
    out.show(table)


def show_recipe(out: Output, name: str, keys: Sequence[str]) -> None:
    from lyceum.analysis.explain import commented
    from lyceum.recipe.schema import load_recipe

    recipe = load_recipe(name, keys)
    out.json(recipe.resolved())
    if out.as_json:
        return
    from rich.syntax import Syntax

    text = "\n".join([*made_after(name), *commented(recipe, WIDTH)])
    # Coloured only for a terminal: a file gets plain YAML.
    out.show(Syntax(text, "yaml", background_color="default", word_wrap=True) if out.console.is_terminal else text)


def made_after(name: str) -> list[str]:
    """What a recipe of lyceum was made after, as comments; nothing for one of your own, or of no paper."""
    from textwrap import wrap

    from lyceum.analysis.papers import origin

    return [f"# {line}" for line in wrap(origin(name), WIDTH)]
