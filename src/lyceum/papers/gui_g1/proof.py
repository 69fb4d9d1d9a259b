"""What shows that the mechanism acts."""

from lyceum.recipe.proof import LEARNS, Proof, short_start, stages

PROOFS = {
    "gui-g1": Proof(
        ["curriculum/weight/largest > 1", "reward/part/task#2", "reward/part/task#3", LEARNS],
        {"stages.rl.curriculum=uniform": "forest", "reward=[task]": "grades"},
        [*stages(1, 2), "model={beside}/model"],
        beside=short_start(24, 12, warmup=4, lr=4e-3),
    ),
}
