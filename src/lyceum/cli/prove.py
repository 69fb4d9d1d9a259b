"""``lyceum prove``."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from lyceum.cli.outcome import FAILED, Failure
from lyceum.cli.output import printing


def command(recipes: Sequence[str], *, as_json: bool) -> None:
    with printing(as_json) as out:
        from lyceum.recipe.proof import proof_of
        from lyceum.training.proving import unproven
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
