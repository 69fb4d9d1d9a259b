"""``lyceum push``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lyceum.cli.options import Json, takes
from lyceum.cli.output import printing


@takes("lyceum.api:push", "best public")
def command(
    run: Annotated[Path, typer.Argument(help="A finished run's folder.")],
    repository: Annotated[str, typer.Argument(help="owner/name on the hub; made if there is none.")],
    *,
    best: Annotated[
        bool, typer.Option("--best", help="The model in best/ (evaluate.save_best) and not the last.")
    ] = False,
    public: bool,
    as_json: Json = False,
) -> None:
    """Upload a run's model and its card to the Hugging Face hub.

    For example: lyceum push runs/demo me/demo

    The card, README.md, names models and tasks by the paths that you gave: read it before --public.
    """
    with printing(as_json) as output:
        from lyceum import api

        address = api.push(run, repository, which="best" if best else "model", public=public)
        output.show(address)
        output.json({"repository": address})
