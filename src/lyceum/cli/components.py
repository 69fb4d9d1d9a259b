"""``lyceum components``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from lyceum.cli.options import Json
from lyceum.cli.output import printing


def command(
    slot: Annotated[str | None, typer.Argument(help="tasks, reward, rollout, credit, objective, ...")] = None,
    kind: Annotated[str | None, typer.Argument(help="One of the slot's components.")] = None,
    *,
    find: Annotated[
        str | None, typer.Option(help="Those with all of these words in their kind, paper, file or what they are.")
    ] = None,
    as_json: Json = False,
) -> None:
    """List the components of each slot of a recipe, with their settings.

    For example: lyceum components credit gae; lyceum components --find tree
    """
    with printing(as_json) as out:
        from rich.table import Table
        from rich.text import Text

        from lyceum.cli.explain import shown
        from lyceum.utils.errors import RecipeError

        found = asked_for(slot, kind)
        document = {
            name: {each: described(model) for each, model in of_slot.items() if kind in (None, each)}
            for name, of_slot in found.items()
        }
        if find is not None:
            document = {name: kept for name, of_slot in document.items() if (kept := having(find, name, of_slot))}
            if not document:
                raise RecipeError(f"--find: got {find!r}; allowed: words that a component has (lyceum components)")
        out.json(document)
        if kind is None or slot is None:
            table = Table(show_edge=False, pad_edge=False, box=None, padding=(0, 2, 0, 0))
            for head in ("kind", "what it is, its paper and its file"):
                table.add_column(head, overflow="fold")
            for name, of_slot in document.items():
                if slot is None:
                    table.add_row("", "")
                    table.add_row(Text(name, style="bold underline"), "")
                for each, component in of_slot.items():
                    lines = [component["about"].split("\n")[0], *where(component)]
                    table.add_row(Text(each, style="bold"), Text("\n".join(lines)))
            out.show(table, "", f"one kind with its settings: lyceum components {slot or 'SLOT'} KIND")
            return
        for each, component in document[slot].items():
            lines = [*component["about"].split("\n"), *where(component)]
            out.show(Text(f"{slot}.kind: {each}", style="bold"), *lines)
            table = Table(show_edge=False, pad_edge=False, box=None, padding=(0, 2, 0, 0))
            for head in ("  setting", "default", "allowed", "meaning"):
                table.add_column(head, overflow="fold")
            for line in component["settings"]:
                allowed = f"{line['type']}{' ' + line['bounds'] if line['bounds'] else ''}"
                default = (
                    "(needed)" if line["required"] else "" if line["type"] == "settings" else shown(line["default"])
                )
                cells = (f"  {line['key']}", default, allowed, line["about"])
                table.add_row(*(Text(cell) for cell in cells))
            out.show(*([table] if component["settings"] else []), "")


def asked_for(slot: str | None, kind: str | None) -> dict[str, Any]:
    """Slot -> its kinds, of the slot that was named or of all."""
    from lyceum.core import own_components
    from lyceum.core.component import find, kinds
    from lyceum.core.paper_folders import SLOTS
    from lyceum.utils.errors import RecipeError, nearest

    if slot is not None and slot not in SLOTS:
        raise RecipeError(f"slot: got {slot!r}{nearest(slot, SLOTS)}; allowed: {', '.join(SLOTS)}")
    if kind is not None and slot is not None and own_components.is_code(kind):
        with own_components.trusting({kind}):
            own = find(slot, kind)
        assert own is not None
        return {slot: {kind: own}}
    found = {name: kinds(name) for name in ([slot] if slot is not None else SLOTS)}
    if kind is not None and slot is not None and kind not in found[slot]:
        raise RecipeError(f"kind: got {kind!r}{nearest(kind, found[slot])}; allowed: {', '.join(found[slot])}")
    return found


def having(text: str, slot: str, components: dict[str, Any]) -> dict[str, Any]:
    """The components of a slot that have every word of a text."""
    words = text.casefold().split()

    def searched(kind: str, component: dict[str, Any]) -> str:
        return " ".join([slot, kind, component["about"], *where(component)]).casefold()

    return {kind: of for kind, of in components.items() if all(word in searched(kind, of) for word in words)}


def described(model: Any) -> dict[str, Any]:
    from lyceum.cli.explain import about, equations, settings

    return {
        "about": about(model),
        "equations": equations(model),
        "settings": settings(model),
        **place_of(model),
    }


def where(component: dict[str, Any]) -> list[str]:
    """The lines that name a component's paper and its file, each where there is one."""
    cited = [component["title"], *([f"arXiv:{component['arxiv']}"] if component["arxiv"] else [])]
    return [line for line in (", ".join(cited) if component["paper"] else "", component["file"] or "") if line]


def place_of(model: Any) -> dict[str, str | None]:
    """The paper whose folder a component is in, its short title and its number on arXiv, and the component's file,
    lyceum's below the package; None where there is none."""
    from pathlib import Path

    import lyceum
    from lyceum.analysis.papers import cited
    from lyceum.core.own_components import file_of
    from lyceum.core.paper_folders import folder_of

    file, package = file_of(model), Path(lyceum.__file__).parent
    folder = folder_of(file)
    shown = file if file is None or not Path(file).is_relative_to(package) else str(Path(file).relative_to(package))
    title, arxiv = (None, None) if folder is None else cited(folder)
    return {"paper": None if folder is None else folder.name, "title": title, "arxiv": arxiv, "file": shown}
