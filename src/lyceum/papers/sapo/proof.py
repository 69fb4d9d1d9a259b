"""What shows that the mechanism acts."""

from lyceum.recipe.proof import BRIEF, Proof

PROOFS = {
    "sapo": Proof(
        ["replay/groups", "replay/files"],
        {"replay=null": "draw"},
        [*BRIEF, "replay.runs=[{beside}]"],
        beside=[*BRIEF, "seed=7"],
    ),
}
