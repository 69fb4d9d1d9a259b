"""What shows that the mechanism acts."""

from lyceum.recipe.proof import Proof

PROOFS = {
    "dgrpo": Proof(
        ["curriculum/weight/chain > 1", "curriculum/weight/chain-compare < 1"],
        {f"curriculum.{which}=false": "forest" for which in ("family", "item")},
    ),
}
