"""What shows that the mechanism acts."""

from lyceum.recipe.proof import WITHOUT_PENALTY, Proof

PROOFS = {
    "cog-rethinker": Proof(
        [
            *(f"guidance/rethink/rescued_by/{way}" for way in ("decompose", "refine")),
            *("imitated/rows", "reward/part/overlong < 0"),
        ],
        {"guidance.0.ways=[refine]": "generation", "objective.imitation=0": "weights", **WITHOUT_PENALTY},
        ["steps=4", "tasks_per_step=3", "tasks.levels=[9, 8]", "collect.max_waves=1"],
    ),
}
