"""DPO and the losses of its family: a trajectory that was graded higher is made more likely than a lower one."""

from __future__ import annotations

import math
from typing import Literal

from jaxtyping import Float
from pydantic import Field, model_validator

from lyceum.core.types import Batch, Objective
from lyceum.objective._pairs import Couples, PairObjective, StepPairs, log_ratio
from lyceum.utils.lazy_imports import F, Tensor

PairLossName = Literal[
    "sigmoid",
    "sigmoid_norm",
    "hinge",
    "ipo",
    "robust",
    "exo_pair",
    "nca_pair",
    "bco_pair",
    "sppo_hard",
    "apo_zero",
    "apo_down",
]
"""As TRL's ``loss_type``."""

SMOOTHED = ("robust", "exo_pair")


class DPO(StepPairs):
    """Preference pairs of a step's own graded trajectories, by their log-ratios to the reference; advantages are not
    read.

    Every trajectory is in at most one pair: the best of a prompt with the worst, the second best with the second worst,
    and so on while their outcomes differ.
    """

    kind: Literal["dpo"] = "dpo"
    loss: PairLossName = "sigmoid"
    """The loss of a pair, by TRL's names: ``sigmoid`` is DPO; ``sigmoid_norm`` and ``ipo`` take log-ratios per token;
    ``nca_pair``, ``bco_pair``, ``sppo_hard`` and ``apo_zero`` each trajectory by itself."""
    beta: float = Field(0.1, gt=0, le=1e6)
    """Strength of the implicit KL penalty against the reference (no unit)."""
    label_smoothing: float = Field(0.0, ge=0, lt=0.5)
    """Share of pairs whose order is taken to be wrong (no unit); ``robust`` and ``exo_pair`` read it."""

    advantage: float = Field(0.0, ge=0, le=1e6)
    """Weight of the difference of two siblings' advantages, by which their margin has to be larger (alpha of Step-APO,
    per unit of the reward)."""

    @model_validator(mode="after")
    def _advantage_where_read(self) -> DPO:
        if self.advantage and (self.of != "siblings" or self.loss != "sigmoid"):
            raise ValueError(
                f"advantage: got {self.advantage:g} with of '{self.of}' and loss '{self.loss}'; allowed: 0, or of "
                "'siblings' and loss 'sigmoid'"
            )
        return self

    @model_validator(mode="after")
    def _smoothing_where_read(self) -> DPO:
        if self.label_smoothing and self.loss not in SMOOTHED:
            raise ValueError(
                f"label_smoothing: got {self.label_smoothing:g} with loss '{self.loss}'; allowed: 0, or loss "
                f"{' or '.join(map(repr, SMOOTHED))}"
            )
        if self.loss == "exo_pair" and not self.label_smoothing:
            raise ValueError("label_smoothing: got 0 with loss 'exo_pair', which is then infinite; allowed: above 0")
        return self

    def build(self) -> Objective:
        return PairObjective(self, self.of_pairs, columns=frozenset({"reference_logprob"}))

    def of_pairs(self, batch: Batch, couples: Couples) -> tuple[Tensor, Tensor]:
        chosen, rejected = couples.of_rows(log_ratio(batch, self.kind))
        if self.loss in ("ipo", "sigmoid_norm"):
            n_chosen, n_rejected = couples.of_rows(batch.mask.sum(1).clamp(min=1).to(chosen))
            chosen, rejected = chosen / n_chosen, rejected / n_rejected
        margin = self.beta * (chosen - rejected)
        if self.advantage:
            return advantage_loss(margin, couples.gap, self.advantage), margin
        loss = preference_loss(chosen, rejected, self.loss, beta=self.beta, label_smoothing=self.label_smoothing)
        return loss, margin


def advantage_loss(margin: Float[Tensor, " P"], gap: Float[Tensor, " P"], alpha: float) -> Float[Tensor, " P"]:
    """DPO's loss of two steps, the better of which has to be ahead by more the more it is worth.

        -log sigmoid(beta (s_w - s_l) - alpha (A_w - A_l))

    Args:
        margin: beta (s_w - s_l), with gradient.
        gap: A_w - A_l, in the reward's unit.
    Source:
        Step-APO: Wang et al., arXiv:2409.08642; the loss ``sigmoid_a`` of the authors' ``dpo/trainer.py``.
    """
    return -F.logsigmoid(margin - alpha * gap.to(margin))


def preference_loss(
    chosen: Float[Tensor, " P"],
    rejected: Float[Tensor, " P"],
    loss: PairLossName,
    *,
    beta: float,
    label_smoothing: float = 0.0,
) -> Float[Tensor, " P"]:
    """Loss of each pair, with s = log pi(y | x) - log pi_ref(y | x), m = beta (s_w - s_l), e the label smoothing.

        sigmoid, sigmoid_norm  -log sigmoid(m)
        hinge                  max(0, 1 - m)
        ipo                    (s_w - s_l - 1 / (2 beta))^2
        robust                 -((1 - e) log sigmoid(m) - e log sigmoid(-m)) / (1 - 2 e)
        exo_pair               KL((sigmoid(m), sigmoid(-m)) || (1 - e, e))
        nca_pair               -log sigmoid(beta s_w) - (log sigmoid(-beta s_w) + log sigmoid(-beta s_l)) / 2
        bco_pair               -log sigmoid(beta s_w) - log sigmoid(-beta s_l)
        sppo_hard              (s_w - 1 / (2 beta))^2 + (s_l + 1 / (2 beta))^2
        apo_zero               sigmoid(-beta s_w) + sigmoid(beta s_l)
        apo_down               sigmoid(beta s_w) + sigmoid(-m)

    Args:
        chosen, rejected: s_w and s_l, nats, with gradient; of ``ipo`` and ``sigmoid_norm`` nats per token.
    Source:
        DPO, arXiv:2305.18290, equation 7; SLiC, arXiv:2305.10425; IPO, arXiv:2310.12036 (per token as its authors
        told TRL's); robust DPO, arXiv:2403.00409; EXO, arXiv:2402.00856; NCA, arXiv:2402.05369; BCO, arXiv:2404.04656;
        SPPO, arXiv:2405.00675; APO, arXiv:2408.06266; per token: Tülu 3, arXiv:2411.15124. All as TRL's DPOTrainer.
    """
    above, below = beta * chosen, beta * rejected
    margin = beta * (chosen - rejected)
    e = label_smoothing
    match loss:
        case "sigmoid" | "sigmoid_norm":
            return -F.logsigmoid(margin)
        case "hinge":
            return (1 - margin).relu()
        case "ipo":
            return (chosen - rejected - 1 / (2 * beta)).square()
        case "robust":
            return -((1 - e) * F.logsigmoid(margin) - e * F.logsigmoid(-margin)) / (1 - 2 * e)
        case "exo_pair":
            ordered, reversed_ = F.logsigmoid(margin), F.logsigmoid(-margin)
            return ordered.exp() * (ordered - math.log1p(-e)) + reversed_.exp() * (reversed_ - math.log(e))
        case "nca_pair":
            return -F.logsigmoid(above) - (F.logsigmoid(-above) + F.logsigmoid(-below)) / 2
        case "bco_pair":
            return -F.logsigmoid(above) - F.logsigmoid(-below)
        case "sppo_hard":
            return (chosen - 0.5 / beta).square() + (rejected + 0.5 / beta).square()
        case "apo_zero":
            return (-above).sigmoid() + below.sigmoid()
        case "apo_down":
            return above.sigmoid() + (-margin).sigmoid()
