"""WebRL's advantage of a turn, and which turns of earlier trajectories are learnt from again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from jaxtyping import Bool, Float, Int
from pydantic import Field, model_validator

from lyceum.core.forest import Forest
from lyceum.core.settings import CreditSettings
from lyceum.core.types import Credit, Credited
from lyceum.credit.base import BaseCredit, lay, recorded_rows
from lyceum.credit.gae import judged_ends
from lyceum.utils.errors import RecipeError
from lyceum.utils.lazy_imports import Tensor, torch


class StateValues(CreditSettings):
    """A turn's advantage from the value of the state before it, which the reward ``model`` gives where the value model
    says it, and of the state before the next turn.

    Of recorded trajectories (``replay``) only turns of successful ones count, and of these such as the policy finds
    neither certain nor unlikely; the others get 0.

    Source: WebRL, arXiv:2411.02337; THUDM/WebRL, ``scripts/process_data.py`` (the filter by perplexity).
    """

    requires: ClassVar = ("judgements",)

    kind: Literal["state-values"] = "state-values"
    lam: float = Field(default=0.5, ge=0, le=1)
    """Weight of the outcome less the value; the rest is on the difference of the two values (no unit)."""
    least: float = Field(default=0.5, ge=0, le=1)
    """Recorded turns: lowest mean probability of a token, the reciprocal of the perplexity 1 / 0.5."""
    most: float = Field(default=0.95, ge=0, le=1)
    """Recorded turns: highest mean probability of a token, the reciprocal of the perplexity 1 / 0.95."""

    @model_validator(mode="after")
    def _some_turns_pass(self) -> StateValues:
        if self.least >= self.most:
            raise ValueError(f"least: got {self.least:g} with most {self.most:g}; allowed: less than it")
        return self

    def sources(self, outcome: tuple[str, ...]) -> tuple[str, ...]:
        return ("outcome",)  # the values are what is expected of it

    def build(self) -> Credit:
        return StateValuesCredit(frozenset({"old_logprob"}), self)


@dataclass
class StateValuesCredit(BaseCredit):
    needs: frozenset[str]
    settings: StateValues

    def __call__(self, forest: Forest) -> Credited:
        of, rows = self.settings, forest.rows()
        mask = forest.trainable(rows)
        row, at, value = judged_ends(forest, rows)
        if bool(mask.any()) and not len(value):
            raise RecipeError(
                "credit.kind: got 'state-values', but no turn has the value of its state; allowed: with reward "
                "'{kind: model, cut: turns}' and value.kind 'phase-critic'"
            )
        number = numbered_turns(mask)
        turns = int(number.max()) if number.numel() else 0
        of_turn = value.new_zeros(turns + 1).index_put((number[row, at],), value, accumulate=True)
        own_row = torch.zeros(turns + 1, dtype=torch.long)
        own_row[number[mask]] = torch.arange(len(mask))[:, None].expand(mask.shape)[mask]
        advantage = turn_advantages(of_turn[1:], forest.reward[own_row[1:]], own_row[1:], lam=of.lam)
        recorded = recorded_rows(forest)[own_row[1:]]
        likely = mean_probability(rows.gather(forest.columns["old_logprob"]), number, turns)
        good = forest.reward[own_row[1:]] > 0
        inside = (likely >= of.least) & (likely <= of.most)
        advantage = torch.where(recorded & ~(good & inside), 0, advantage)
        on_tokens = torch.cat([advantage.new_zeros(1), advantage])[number] * mask
        metrics = {
            "turns": float(turns),
            "value/mean": float(value.mean()) if len(value) else 0.0,
            "advantage/mean_abs": float(advantage.abs().mean()) if turns else 0.0,
            "recorded/successful": float((recorded & good).sum()),
            "recorded/kept": float((recorded & good & inside).sum()),
            "recorded/certain": float((recorded & good & (likely > of.most)).sum()),
            "recorded/unlikely": float((recorded & good & (likely < of.least)).sum()),
        }
        return Credited(lay(on_tokens, forest, rows), metrics=metrics)


def numbered_turns(mask: Bool[Tensor, "R L"]) -> Int[Tensor, "R L"]:
    """The number of each token's turn among all, from 1; 0 outside of the mask. A turn is an unbroken run of it."""
    begins = mask.clone()
    begins[:, 1:] &= ~mask[:, :-1]
    return begins.flatten().long().cumsum(0).view(mask.shape) * mask


def turn_advantages(
    value: Float[Tensor, " U"], outcome: Float[Tensor, " U"], row: Int[Tensor, " U"], *, lam: float
) -> Float[Tensor, " U"]:
    """The advantage of each turn, in the outcome's unit.

        A_t = lam (r_T - V(s_t)) + (1 - lam) (r_t + V(s_{t+1}) - V(s_t))

    r_t is 0 but at the last turn T, where it is the outcome and V(s_{T+1}) is 0.

    Args:
        value: V of the state before each turn, of one trajectory after another.
        outcome: r_T of the turn's trajectory.
        row: number of the turn's trajectory, never decreasing.
    Source:
        WebRL, arXiv:2411.02337, the advantage estimator; lam is 0.5.
    """
    last = torch.ones(len(row), dtype=torch.bool)
    last[:-1] = row[1:] != row[:-1]
    after = torch.where(last, outcome, value.roll(-1))
    return lam * (outcome - value) + (1 - lam) * (after - value)


def mean_probability(logprob: Float[Tensor, "R L"], number: Int[Tensor, "R L"], turns: int) -> Float[Tensor, " U"]:
    """exp of the mean log-probability of each turn's tokens: the reciprocal of its perplexity, without unit.

    Args:
        logprob: nats per token; not read where ``number`` is 0.
        number: of the token's turn, from 1.
    """
    inside = number > 0
    total = logprob.new_zeros(turns + 1).index_add(0, number[inside], logprob[inside])
    count = logprob.new_zeros(turns + 1).index_add(0, number[inside], torch.ones_like(logprob[inside]))
    return (total / count.clamp(min=1)).exp()[1:]
