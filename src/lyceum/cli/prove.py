"""``lyceum prove``."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from lyceum.cli.options import Json
from lyceum.cli.outcome import Failure
from lyceum.cli.output import printing
from lyceum.utils.errors import FAILED


def command(
    recipes: Annotated[list[str], typer.Argument(help="Recipes in papers' folders, with a line in their proof.py.")],
    *,
    as_json: Json = False,
) -> None:
    """Run the proof of a recipe in a paper's folder: briefly trained its mechanism acts, without it the run is another
    one, and killed and resumed it ends in the same bits. No file is left behind. Exit code 1 if a part is not shown.

    For example: lyceum prove my-paper --papers path/to/my_paper
    """
    with printing(as_json) as out:
        from lyceum.analysis.proving import proof_of, unproven
        from lyceum.utils import progress
        from lyceum.utils.library_messages import quiet

        proofs = {name: proof_of(name) for name in recipes}
        found: dict[str, list[str]] = {}
        for name, proof in proofs.items():
            with tempfile.TemporaryDirectory() as work, quiet(), progress.using(out.progress):
                found[name] = unproven(name, proof, Path(work), every=True, say=out.show)
        out.json(found)
        if wrong := [line for lines in found.values() for line in lines]:
            raise Failure(FAILED, wrong)
