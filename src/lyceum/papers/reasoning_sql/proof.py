"""What shows that the mechanism acts."""

from lyceum.recipe.proof import LEARNS, Proof, short_start, stages

PROOFS = {
    "reasoning-sql": Proof(
        [
            "reward/part/sql/schema_linking",
            *(f"reward/part/{name}" for name in ("format", "feedback/points", "feedback/asked")),
            LEARNS,
        ],
        {"stages.1.reward.0.schema_linking=0": "grades", "stages.1.reward.2.weight=0": "grades"},
        [*stages(1, 2, tasks=2), "model={beside}/model"],
        given={"reward/part/feedback/asked": "answers that the judge was asked about"},
        # Fine-tuned once for all of the runs, and not long enough for a query that SQLite takes.
        beside=short_start(30, 14),
    ),
}
