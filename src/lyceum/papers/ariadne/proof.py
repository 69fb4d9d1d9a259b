"""What shows that the mechanism acts."""

from lyceum.recipe.proof import LEARNS, Proof, short_start, stages

PROOFS = {
    "ariadne": Proof(
        ["reward/part/maze-steps/walked", LEARNS],
        {"stages.rl.curriculum.only=[1/0, 2/0, 2/1]": "draw", "reward=[task]": "grades"},
        [*stages(1, 2), "model={beside}/model"],
        beside=short_start(24, 12, warmup=4, lr=4e-3),
    ),
}
