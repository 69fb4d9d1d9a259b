"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof, short_start

PROOFS = {
    "agent-rlvr": Proof(
        ["guidance/test-feedback/attempts/guided"],
        {"stages.rl.guidance=[]": "generation", "stages.rl.guidance.0.keep=false": "generation"},
        ["stages.start.steps=1", "stages.rl.steps=2", "stages.rl.tasks_per_step=2", "model={beside}/model"],
        beside=short_start(17, 16),
    ),
}
