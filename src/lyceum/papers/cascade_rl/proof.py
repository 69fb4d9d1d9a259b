"""What shows that the mechanism acts."""

from lyceum.recipe.proof import LEARNS, Proof, short_start, stages

ACTED = ["pairs", "data/kept", "mpo/generation", "mpo/quality", LEARNS]
OFF: dict[str | tuple[str, ...], str] = {
    "stages.offline.objective=dpo": "weights",
    "stages.offline.objective.quality=0": "weights",
    "stages.offline.objective.generation=0": "weights",
    "stages.online.objective=ppo-clip": "weights",
}
BRIEF = [
    *("stages.start.steps=1", "stages.start.tasks_per_step=4", "stages.offline.data.tasks=8"),
    *("stages.offline.steps=2", "stages.offline.tasks_per_step=2"),
    *("stages.online.steps=2", "stages.online.tasks_per_step=2"),
]
GIVEN = {"data/kept": "problems of the offline stage that have both a right and a wrong sample"}

PROOFS = {
    "cascade-rl": Proof(ACTED, OFF, BRIEF, given=GIVEN),
    "cascade-pictures": Proof(
        ACTED,
        OFF,
        [*BRIEF, "model={beside}/model"],
        given=GIVEN,
        beside=short_start(34, 12, warmup=4, lr=4e-3),
    ),
    # The bound itself, a ratio of 5, is not reached in 20 steps of 16 tasks: its header says so.
    "vico": Proof(
        ["rate/kl", "rate/ratio", "rate/router_loss", "rate/routed_compressed"],
        {
            "stages.vico.learner.lr=1e-30": "weights",
            "stages.vico.router_lr=1e-30": "weights",
            "stages.vico.compressed=0.01": "weights",
        },
        [*stages(1, 8), "stages.vico.router_steps=6"],  # a router compresses nothing in its first steps
    ),
}
