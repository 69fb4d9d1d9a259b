"""``lyceum sparsity``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from lyceum.cli.options import Json, takes
from lyceum.cli.output import printing


@takes("lyceum.api:sparsity", "atol rank output")
def command(
    base: Annotated[str, typer.Argument(help="The model before training: base, a model's folder, or a run's.")],
    model: Annotated[str, typer.Argument(help="The trained one.")],
    other: Annotated[
        str | None, typer.Argument(help="Another training of the same base: do both change the same weights?")
    ] = None,
    *,
    output: Path | None,
    as_json: Json = False,
    **how: Any,
) -> None:
    """Say which weights training changed: the share that stays, by kind of layer, and the rank of the updates.

    For example: lyceum sparsity base runs/demo

    Weights are read tensor by tensor, in pieces; no model is loaded.
    """
    with printing(as_json) as out:
        from lyceum import api
        from lyceum.analysis.tables import sparsity_lines, sparsity_table

        found = api.sparsity(base, model, other, output=output, progress=out.progress, **how)
        out.json(found.to_json())
        out.show("", sparsity_table(found), *sparsity_lines(found))
        if output is not None:
            out.show(f"written to {output}")
