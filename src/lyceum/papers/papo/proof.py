"""What shows that the mechanism acts."""

from lyceum.recipe.proof import LEARNS, Proof, stages

PROOFS = {
    "papo": Proof(
        ["perception/kl", "perception/likelier_seen", LEARNS],
        {"stages.rl.objective.perception=0": "weights", "stages.rl.objective=ppo-clip": "weights"},
        [*stages(1, 2), "model={beside}/model"],
        beside=[*stages(60, 1, tasks=1), "stages.start.tasks_per_step=16", "checkpoint_every=100"],
    ),
}
