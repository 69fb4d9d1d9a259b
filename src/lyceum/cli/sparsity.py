"""``lyceum sparsity``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lyceum.cli.options import Json, takes
from lyceum.cli.output import printing

if TYPE_CHECKING:
    from rich.table import Table

    from lyceum.analysis.sparsity import Share, Sparsity


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

        found = api.sparsity(base, model, other, output=output, progress=out.progress, **how)
        out.json(found.to_json())
        out.show("", table(found), *lines(found))
        if output is not None:
            out.show(f"written to {output}")


def table(found: Sparsity) -> Table:
    """Shares that training left unchanged, by kind of tensor; numbers of layers are ``*``. Fits into 80 columns."""
    from rich.table import Table

    title = f"weights of {found.model} that are unchanged from {found.base}, %"
    rows = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    rows.add_column("tensors", overflow="fold")
    for head in ("number", "elements", "in\nbfloat16", f"within\n{found.atol:g}", "equal", "rank,\n%"):
        rows.add_column(head, justify="right")
    for kind, share in found.kinds.items():
        rows.add_row(kind.removeprefix("model.").removeprefix("layers.").removesuffix(".weight"), *cells(share))
    rows.add_section()
    rows.add_row("all", *cells(found.overall), style="bold")
    return rows


def cells(share: Share) -> list[str]:
    unchanged = [f"{100 * each:.1f}" for each in (share.close_bfloat16, share.close, share.equal)]
    return [
        str(share.tensors),
        f"{share.elements:,}".replace(",", " "),
        *unchanged,
        "-" if share.rank is None else f"{100 * share.rank:.0f}",
    ]


def lines(found: Sparsity) -> list[str]:
    said = [
        f"in bfloat16: both rounded to bfloat16, differences up to {found.atol:g} count as none (arXiv:2505.11711). "
        "rank: of that update, of its full rank.",
        f"within {found.atol:g}, equal: as stored, in {found.stored}. Training in float32 changes nearly every weight "
        "in some bit, most by less than bfloat16 can show: do not compare these columns with shares in bfloat16.",
    ]
    for which, names in (("base", found.only_in_base), ("model", found.only_in_model), ("", found.not_compared)):
        if names:
            what = f"only in the {which}" if which else "of integers, not compared"
            said.append(f"{len(names)} tensors {what}: {', '.join(names[:3])}{', ...' if len(names) > 3 else ''}")
    if found.overlap is not None:
        of = found.overlap
        said.append(
            f"overlap of the changed weights: {100 * of.of_first:.1f} % of the first's are the second's too (by chance "
            f"{100 * of.chance_first:.1f}), {100 * of.of_second:.1f} % the other way round (by chance "
            f"{100 * of.chance_second:.1f})"
        )
    return said
