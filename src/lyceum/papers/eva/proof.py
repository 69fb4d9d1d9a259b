"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof, short_start, stages

PROOFS = {
    "eva": Proof(
        [
            *("guidance/evolve-prompts/prompts/evolved", "guidance/evolve-prompts/pool/informative"),
            *("guidance/evolve-prompts/spread/parents", "pairs"),
        ],
        {"guidance.0.share=0": "generation", "guidance.0.by=uniform": "generation"},
        [*stages(1, 3, tasks=8), "tasks.levels=[3, 4, 5]", "model={beside}/model"],
        beside=[*short_start(24, 16, lr=1e-3), "stages.0.tasks.parts.0.tasks.levels=[3, 4, 5]"],
    ),
}
