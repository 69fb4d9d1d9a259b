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
    as_json: Json = False,
) -> None:
    """List the components of each slot of a recipe, with their settings.

    For example: lyceum components credit gae
    """
    with printing(as_json) as out:
        from rich.table import Table
        from rich.text import Text

        from lyceum.cli.explain import SLOTS, about, shown
        from lyceum.core import own_components
        from lyceum.core.component import find, kinds
        from lyceum.utils.errors import RecipeError, nearest

        if slot is not None and slot not in SLOTS:
            raise RecipeError(f"slot: got {slot!r}{nearest(slot, SLOTS)}; allowed: {', '.join(SLOTS)}")
        if kind is not None and slot is not None and own_components.is_code(kind):
            with own_components.trusting({kind}):
                own = find(slot, kind)
            assert own is not None
            found = {slot: {kind: own}}
        else:
            found = {name: kinds(name) for name in ([slot] if slot is not None else SLOTS)}
        if kind is not None and slot is not None and kind not in found[slot]:
            raise RecipeError(f"kind: got {kind!r}{nearest(kind, found[slot])}; allowed: {', '.join(found[slot])}")
        document = {
            name: {each: described(model) for each, model in of_room.items() if kind in (None, each)}
            for name, of_room in found.items()
        }
        out.json(document)
        if kind is None or slot is None:
            table = Table()
            for head in ("slot", "kind", "what it is"):
                table.add_column(head)
            for name, of_room in found.items():
                for number, (each, model) in enumerate(of_room.items()):
                    first = about(model).split("\n")[0]
                    table.add_row(name if number == 0 else "", Text(each, style="bold"), Text(first))
                table.add_section()
            out.show(table, f"one kind with its settings: lyceum components {slot or 'SLOT'} KIND")
            return
        for each, component in document[slot].items():
            out.show(Text(f"{slot}.kind: {each}", style="bold"), *component["about"].split("\n"))
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


def described(model: Any) -> dict[str, Any]:
    from lyceum.cli.explain import about, settings

    return {"about": about(model), "settings": settings(model)}
