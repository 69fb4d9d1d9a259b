"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof

PROOFS = {
    "alp-gmm": Proof(
        ["curriculum/components/mixture"],
        {"curriculum.random_share=1": "generation", "curriculum.fit_every=1000": "generation"},
        ["steps=4", "tasks_per_step=4", "curriculum.fit_every=8", "curriculum.most_components=3"],
    ),
}
