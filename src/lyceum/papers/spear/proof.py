"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof

PROOFS = {
    "spear": Proof(
        ["replay/groups", "credit/imitated", "clip_cov/tokens", "reward/part/tool-calls/turns"],
        {
            "replay.after=1000": "forest",
            "credit.coefficient=0": "credit",
            "credit.warm_up_steps=0": "credit",
            "objective=ppo-clip": "weights",
            "reward.1.schedule=null": "grades",
            "reward=[task]": "grades",
        },
        ["steps=3", "tasks_per_step=8"],
    ),
}
