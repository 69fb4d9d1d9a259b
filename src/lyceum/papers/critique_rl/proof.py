"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof, short_start, stages

PROOFS = {
    "critique-rl": Proof(
        ["guidance/critique/refined/all", "guidance/critique/right/share", "guidance/critique/right/share < 1"],
        {"stages.1.guidance.0.helpful_from=1": "generation"},
        [*stages(1, 2), "model={beside}/model"],
        given={
            f"guidance/critique/right/share{bound}": "verdicts, right or not, whose use is what the mechanism pays"
            for bound in ("", " < 1")
        },
        beside=short_start(16, 10, lr=2e-3),
    ),
}
