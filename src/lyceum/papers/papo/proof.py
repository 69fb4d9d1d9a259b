"""What shows that the mechanism acts."""

from lyceum.recipe.proof import LEARNS, Proof, short_start, stages

PROOFS = {
    "papo": Proof(
        ["perception/kl", "perception/likelier_seen", LEARNS],
        {"stages.rl.objective.perception=0": "weights", "stages.rl.objective=ppo-clip": "weights"},
        [*stages(1, 2), "model={beside}/model"],
        beside=short_start(34, 12, warmup=4, lr=4e-3),
    ),
}
