"""``lyceum components``."""

from __future__ import annotations

from typing import Annotated

import typer

from lyceum.cli.options import Json
from lyceum.cli.output import listing, printing


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
        from rich.text import Text

        from lyceum.analysis.explain import asked_for, described, having, shown, where
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
            table = listing("kind", "what it is, its paper and its file")
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
            table = listing("  setting", "default", "allowed", "meaning")
            for line in component["settings"]:
                allowed = f"{line['type']}{' ' + line['bounds'] if line['bounds'] else ''}"
                default = (
                    "(needed)" if line["required"] else "" if line["type"] == "settings" else shown(line["default"])
                )
                cells = (f"  {line['key']}", default, allowed, line["about"])
                table.add_row(*(Text(cell) for cell in cells))
            out.show(*([table] if component["settings"] else []), "")
