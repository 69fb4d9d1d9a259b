"""What shows that the mechanism acts."""

from lyceum.recipe.proof import LONGER, Proof

PROOFS = {
    "hapo": Proof(
        ["hapo/high_entropy", "hapo/redistributed", "hapo/wider_clip"]
        + [f"guidance/entropy-temperature/{count}" for count in ("hotter", "cooler", "change")],
        {"objective.redistribute=false": "weights", "guidance=[]": "generation"},
        late={"clip/high": "objective.clip_high=100"},  # no ratio leaves 1 +- 0.2 in so few steps
        longer=LONGER,
    ),
}
