"""Turn advantages: what a critic says of a turn, on every token that the policy wrote in it."""

from __future__ import annotations

from typing import ClassVar, Literal

from jaxtyping import Bool, Float, Int

from lyceum.core.forest import Forest
from lyceum.core.settings import CreditSettings
from lyceum.core.types import Credit, Credited
from lyceum.credit.base import ForestCredit, lay
from lyceum.credit.gae import judged_ends
from lyceum.utils.errors import RecipeError
from lyceum.utils.lazy_imports import Tensor


class TurnAdvantage(CreditSettings):
    """The reward that a model gave a turn is the advantage of its tokens; the outcome itself is only what the model
    learns from.

    Source: ArCHer, arXiv:2402.19446 (the token policy's advantage is that of its utterance).
    """

    requires: ClassVar = ("judgements",)

    kind: Literal["turn-advantage"] = "turn-advantage"

    def build(self) -> Credit:
        return ForestCredit(frozenset(), self.credited)

    def credited(self, forest: Forest) -> Credited:
        rows = forest.rows()
        mask = forest.trainable(rows)
        row, at, reward = judged_ends(forest, rows)
        if bool(mask.any()) and not len(reward):
            raise RecipeError(
                "credit.kind: got 'turn-advantage', but no turn has a reward of its own; allowed: with reward "
                "'{kind: model, cut: turns}' and a value model that judges turns"
            )
        advantage, number = on_turns(reward, row, at, mask)
        metrics = {
            "turns": float(number.max()) if number.numel() else 0.0,
            "turns_judged": float(len(number[row, at].unique())),
            "advantage/mean_abs": float(reward.abs().mean()) if len(reward) else 0.0,
        }
        return Credited(lay(advantage, forest, rows), metrics=metrics)


def on_turns(
    reward: Float[Tensor, " U"], row: Int[Tensor, " U"], at: Int[Tensor, " U"], mask: Bool[Tensor, "R L"]
) -> tuple[Float[Tensor, "R L"], Int[Tensor, "R L"]]:
    """Rewards spread over their turns, which are unbroken runs of the policy's tokens.

    Args:
        reward: of a turn, added where several are of one.
        row, at: a token of the turn.
        mask: tokens that the policy wrote.
    Returns:
        Each token's reward, and the number of its turn among all, from 1; both 0 outside of the mask.
    """
    begins = mask.clone()
    begins[:, 1:] &= ~mask[:, :-1]
    number = begins.flatten().long().cumsum(0).view(mask.shape) * mask
    of_turn = reward.new_zeros(int(begins.sum()) + 1).index_put((number[row, at],), reward, accumulate=True)
    return of_turn[number] * mask, number
