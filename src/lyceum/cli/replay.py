"""``lyceum replay``: another credit or objective on a step's recorded trees, beside the run's own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lyceum.cli.options import Json, takes
from lyceum.cli.output import printing


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
        from lyceum.analysis.tables import replay_lines

        found = api.replay(run, step, keys or [], output=output, progress=out.progress).to_json()
        out.json(found)
        out.show(*replay_lines(found))
        if output is not None:
            out.show(f"written to {output}")
