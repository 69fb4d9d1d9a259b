"""``lyceum boundary``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from lyceum.cli.options import Json, takes
from lyceum.cli.outcome import Failure
from lyceum.cli.output import printing
from lyceum.utils.errors import STOPPED


@takes("lyceum.api:boundary", "tasks samples n hints SAMPLING reward seed workers output unsolved")
def command(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="BASE [MODEL]... [KEY=VALUE]...",
            help="As for lyceum eval, the base first, MODEL@LABEL under another label; or a .jsonl file of samples "
            '({"task": ID, "correct": [true, false, null]} per line). Keys as for lyceum eval.',
        ),
    ],
    *,
    output: Path | None,
    unsolved: Path | None,
    as_json: Json = False,
    **how: Any,
) -> None:
    """Say what training added to a base model: pass@k of both for every k, where the curves cross, which tasks which
    of them solves, perplexity of correct answers under the base, accuracy with hints.

    For example: lyceum boundary base runs/demo --samples 64 --hints all --output study

    Only the base: lyceum boundary base --tasks data.jsonl --samples 256 --unsolved hard.jsonl
    """
    with printing(as_json) as out:
        from lyceum import api
        from lyceum.analysis.boundary.show import lines, tables

        models = [word for word in words if "=" not in word]
        keys = [word for word in words if "=" in word]
        try:
            found = api.boundary(models, keys, output=output, unsolved=unsolved, progress=out.progress, **how)
        except KeyboardInterrupt:
            kept = "nothing was kept; with --output models that are done are not sampled again"
            if output is not None:
                kept = f"samples of models that were done are kept in {output}; the same command goes on from there"
            raise Failure(STOPPED, [kept]) from None
        out.json(found.to_json())
        for table in tables(found):
            out.show("", table)
        out.show("", *lines(found))
        if output is not None:
            out.show("", f"metrics  {output / 'boundary.json'}", f"page     {output / 'boundary.html'}")
        if unsolved is not None:
            out.show(f"{len(found.unsolved)} of {found.tasks} tasks, unsolved by {found.labels[0]}: {unsolved}")
