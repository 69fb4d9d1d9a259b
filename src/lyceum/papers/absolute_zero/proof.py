"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof, stages

PROOFS = {
    "absolute-zero": Proof(
        ["guidance/proposer-solver/proposals/solved_between"],
        {"guidance.0.rejected=0": "grades"},  # others: tests/training/stages/test_models_and_roles.py
        [*stages(1, 2), "model={beside}/model"],
        given={"guidance/proposer-solver/proposals/solved_between": "proposals that earn their proposer something"},
        beside=["stages.0.steps=40", "stages.1.steps=1", "stages.1.tasks_per_step=1", "checkpoint_every=100"],
    ),
}
