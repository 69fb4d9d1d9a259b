"""WebRL's loss: each turn's log-ratio to the policy before the phase is regressed on the turn's advantage."""

from __future__ import annotations

from typing import ClassVar, Literal

from jaxtyping import Bool, Float, Int
from pydantic import Field

from lyceum.core.settings import ObjectiveSettings
from lyceum.core.types import Batch, Metrics, Objective
from lyceum.objective.base import BaseObjective, clean, ratio_metrics, token_ratio
from lyceum.papers.webrl.credit_state_values import numbered_turns
from lyceum.utils.lazy_imports import Tensor, torch


class TurnLogRatio(ObjectiveSettings):
    """The policy that is best under a KL penalty against the one before the step has the log-ratio A / beta, which is
    fitted, turn by turn. A turn whose advantage is exactly 0 is left out. Nothing is clipped.

    Source: WebRL, arXiv:2411.02337, the actor's loss: E[(beta log(pi / pi_ref) - A)^2], pi_ref the policy of the phase
    before.
    """

    refuses: ClassVar = ("value-targets",)

    kind: Literal["turn-log-ratio"] = "turn-log-ratio"
    beta: float = Field(default=1.0, gt=0, le=1e6)
    """The KL penalty's coefficient, in reward units per nat."""

    def build(self) -> Objective:
        return TurnRegression(self)


class TurnRegression(BaseObjective):
    def __init__(self, settings: TurnLogRatio) -> None:
        super().__init__("sequence", needs=frozenset({"old_logprob"}), skips=True)
        self.settings = settings

    def update_weights(
        self, mask: Bool[Tensor, "r L"], episode: Int[Tensor, " r"] | None = None
    ) -> Float[Tensor, "r L"]:
        """Each turn of the update counts the same, however many tokens it has: they share it."""
        number = numbered_turns(mask)
        tokens = torch.bincount(number.flatten()).clamp(min=1)
        turns = max(1, int(number.max()) if number.numel() else 0)
        return mask / (tokens[number] * turns)

    def __call__(self, batch: Batch) -> tuple[Tensor, Metrics]:
        batch, beta = clean(batch), self.settings.beta
        number = numbered_turns(batch.mask)
        turns = int(number.max()) if number.numel() else 0
        by_turn = number.flatten()

        def summed(x: Float[Tensor, "R L"]) -> Float[Tensor, " U"]:
            return x.new_zeros(turns + 1).index_add(0, by_turn, x.flatten())[1:]

        log_ratio = summed(batch.logprob - batch.old_logprob)
        tokens = summed(batch.mask.to(batch.logprob.dtype))
        advantage = summed(batch.advantage) / tokens
        weight = summed(batch.weight) * (advantage != 0)
        loss = turn_loss(log_ratio, advantage, beta=beta)
        learnt = (advantage != 0).float()
        error = (advantage - beta * log_ratio.detach()).abs() * learnt
        held = log_ratio.detach().abs() * beta * learnt
        metrics = ratio_metrics(token_ratio(batch.logprob, batch.old_logprob), batch)
        metrics |= {"regression/error": (error.sum(), learnt.sum()), "regression/held": (held.sum(), learnt.sum())}
        return (weight * loss).sum(), metrics


def turn_loss(log_ratio: Float[Tensor, " U"], advantage: Float[Tensor, " U"], *, beta: float) -> Float[Tensor, " U"]:
    """Squared error of each turn's log-ratio, over 2 beta, less a constant.

        (beta l - A)^2 / (2 beta) - A^2 / (2 beta) = beta / 2 l^2 - A l        l = log pi(a|s) / pi_ref(a|s)

    The gradient is that of the policy, A grad log pi, less beta l grad log pi: an action is held where its log-ratio is
    A / beta.

    Args:
        log_ratio: l, summed over the turn's tokens, nats, with gradient.
        advantage: A, in the reward's unit.
    Source:
        WebRL, arXiv:2411.02337, the actor's loss, here over 2 beta.
    """
    return beta / 2 * log_ratio.square() - advantage * log_ratio
