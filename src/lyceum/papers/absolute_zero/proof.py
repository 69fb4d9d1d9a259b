"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof, short_start, stages

PROOFS = {
    "absolute-zero": Proof(
        ["guidance/proposer-solver/proposals/solved_between"],
        {"guidance.0.rejected=0": "grades"},  # others: tests/training/stages/test_models_and_roles.py
        [*stages(1, 2), "model={beside}/model"],
        given={"guidance/proposer-solver/proposals/solved_between": "proposals that earn their proposer something"},
        beside=short_start(30, 24, lr=1e-3),
    ),
}
