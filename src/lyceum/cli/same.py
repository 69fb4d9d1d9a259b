"""``lyceum same``: where two runs, or the runs of two checkouts, first differ."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lyceum.cli.options import Json
from lyceum.cli.outcome import Failure
from lyceum.cli.output import printing
from lyceum.utils.errors import FAILED


def command(
    a: Annotated[Path, typer.Argument(help="A run's folder (trained with digests=true), or a checkout of lyceum.")],
    b: Annotated[Path, typer.Argument(help="The other one.")],
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RECIPE|KEY=VALUE",
            help="For two checkouts, recipes to train with both: by default all, for two steps.",
        ),
    ] = None,
    *,
    as_json: Json = False,
) -> None:
    """Say where two runs first differ: the step, the part (draw, generation, grades, ...) and the metrics.

    For example: lyceum train grpo digests=true --name a, the same under another version or on another machine as b,
    then: lyceum same runs/a runs/b

    Given two checkouts, it trains recipes with the code of each, side by side. Exit code 1 if anything differs.
    """
    with printing(as_json) as out:
        from lyceum.analysis.same import lines_of, of_checkouts, of_runs
        from lyceum.utils.errors import RecipeError

        if (a / "src" / "lyceum").is_dir() and (b / "src" / "lyceum").is_dir():
            found = of_checkouts(a, b, words or [], progress=out.progress)
        elif words:
            raise RecipeError(f"same: got {words[0]!r} beside two runs; allowed: recipes and keys beside two checkouts")
        else:
            found = [of_runs(a.name, a, b)]
        document = {"same": not any(each["differs"] for each in found), "runs": found}
        out.json(document)
        out.show(*lines_of(found))
        differing = [each["run"] for each in found if each["differs"]]
        if differing:
            raise Failure(FAILED, [f"{len(differing)} of {len(found)} differ: {', '.join(differing)}"], **document)
