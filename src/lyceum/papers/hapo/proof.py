"""What shows that the mechanism acts."""

from lyceum.recipe.proof import LONGER, WITHOUT_PENALTY, Proof

PROOFS = {
    "hapo": Proof(
        [
            *("hapo/high_entropy", "hapo/redistributed", "hapo/wider_clip", "reward/part/overlong < 0"),
            *(f"guidance/entropy-temperature/{count}" for count in ("hotter", "cooler", "change")),
        ],
        {
            "objective.redistribute=false": "weights",
            "guidance=[]": "generation",
            # Alone it changes no weight in so few steps, in which nothing is clipped.
            ("objective.adapt_clip=false", "objective.redistribute=false"): "weights",
            **WITHOUT_PENALTY,
        },
        given={"hapo/high_entropy": "tokens of high entropy, whose clip range is wider"},
        late={"clip/high": "objective.clip_high=100"},  # no ratio leaves 1 +- 0.2 in so few steps
        longer=LONGER,
    ),
}
