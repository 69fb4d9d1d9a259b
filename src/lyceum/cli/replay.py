"""``lyceum replay``: another credit or objective on a step's recorded trees, beside the run's own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lyceum.cli.options import Json, takes
from lyceum.cli.output import printing

if TYPE_CHECKING:
    from rich.table import Table

ROWS = (
    ("loss", "loss"),
    ("gradient norm", "gradient_norm"),
    ("mean |coefficient|", "coefficient_mean_abs"),
    ("coefficients not 0", "share_not_zero"),
)


@takes("lyceum.api:replay", "step output")
def command(
    run: Annotated[Path, typer.Argument(help="A run's folder (trained with trees_every=STEPS).")],
    keys: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE",
            help="Keys of credit and objective to change, such as credit=leave-one-out objective.clip_high=0.28; "
            "none compares the run with itself.",
        ),
    ] = None,
    *,
    step: int,
    output: Path | None,
    as_json: Json = False,
) -> None:
    """Compare another credit or objective with a run's own, on the trees of a step that the run recorded.

    For example: lyceum train grpo trees_every=20 checkpoint_every=20 --name a, then:
    lyceum replay runs/a --step 21 credit=leave-one-out

    Both are computed on the same trees under the weights that the step began with; nothing is sampled or changed.
    A token's coefficient is d loss / d log-probability: negative where the update makes the token likelier. A sign
    flip is a token that one side makes likelier and the other less likely; the cosine is that of the gradients of
    all weights.
    """
    with printing(as_json) as out:
        from lyceum import api

        found = api.replay(run, step, keys or [], output=output, progress=out.progress).to_json()
        out.json(found)
        out.show(
            f"step {found['step']} of {found['run']}, from the weights of {_weights(found['weights'])}: "
            f"{found['groups']} groups, {found['trajectories']} trajectories, {found['tokens']} trained tokens",
            table(found),
            *lines_of(found),
        )
        if output is not None:
            out.show(f"written to {output}")


def _weights(weights: str) -> str:
    return "the initial model" if weights == "initial model" else Path(weights).name


def table(found: Mapping[str, Any]) -> Table:
    """Both sides' metrics, and the settings in which they differ."""
    from rich.table import Table

    sides = Table()
    sides.add_column("")
    for name in ("the run's own", "replayed"):
        sides.add_column(name, justify="right", overflow="fold")
    for slot in ("credit", "objective"):
        sides.add_row(slot, *(found[side][slot]["kind"] for side in ("own", "other")))
    for key, values in found["changed"].items():
        if not key.endswith(".kind"):
            sides.add_row(key, *map(str, values))
    sides.add_section()
    for title, key in ROWS:
        show = percent if key.startswith("share") else number
        sides.add_row(title, *(show(found[side][key]) for side in ("own", "other")))
    return sides


def lines_of(found: Mapping[str, Any]) -> list[str]:
    lines = [
        f"sign flips: {percent(found['sign_flips'])} of tokens; "
        f"moved by one of them alone: {percent(found['one_sided'])}",
        f"correlation of the coefficients: {number(found['correlation'])}; "
        f"cosine of the gradients: {number(found['cosine'])}",
    ]
    if found["recorded_loss"] is not None:
        lines.append(f"loss that the run recorded, the mean of its updates: {number(found['recorded_loss'])}")
    return lines


def number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"
