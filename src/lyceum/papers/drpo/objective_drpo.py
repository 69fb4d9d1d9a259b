"""DRPO: correct samples lifted, the short ones most, wrong ones lowered whatever their length; nothing is compared with
a mean of both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from jaxtyping import Bool, Float, Int
from pydantic import Field

from lyceum.core.forest import Forest
from lyceum.core.settings import ObjectiveSettings
from lyceum.core.types import Batch, Credited, Metrics, Objective, StepPlan
from lyceum.objective.base import BaseObjective, clean, require_verdicts
from lyceum.utils.lazy_imports import Tensor, torch


class DRPO(ObjectiveSettings):
    """Raises the mean log-probability of a group's correct samples above that of its wrong ones; advantages are not
    read.

    Length decides among correct samples alone: a long one is lifted less, but never pushed down.
    """

    requires: ClassVar = ("company",)
    refuses: ClassVar = ("value-targets", "state-values")

    kind: Literal["drpo"] = "drpo"
    length_temperature: float = Field(0.1, gt=0, le=1e6)
    """lambda: correct samples weigh exp((1 - length / max_tokens) / lambda) within their group (no unit): a low
    one lifts the shortest alone, a high one all alike."""
    max_tokens: int = Field(8192, ge=1)
    """Length of the longest completion, in tokens, by which lengths are divided."""
    wrong_temperature: float = Field(10.0, ge=1e-4, le=1e6)
    """tau: how evenly wrong samples are lowered (nats); a low one lowers the likeliest alone."""
    trust_region: float = Field(1e-4, ge=0)
    """delta: KL from the step's first policy that is free, in nats per token."""
    penalty: float = Field(1e3, ge=0, le=1e9)
    """beta: weight of half the squared KL beyond it; 0 leaves the constraint out."""

    def build(self) -> Objective:
        return Decoupled(self)


class Decoupled(BaseObjective):
    def __init__(self, settings: DRPO) -> None:
        super().__init__("sequence", needs=frozenset({"old_logprob"}), skips=False)
        self.settings = settings

    def plan(self, forest: Forest, credited: Credited, updates: Sequence[Int[Tensor, " r"]]) -> StepPlan:
        require_verdicts("drpo", forest)
        mask = forest.trainable(forest.rows(), self.origins)
        group = forest.group.unique(return_inverse=True)[1]
        there, right = mask.any(1), forest.correct > 0
        both = _any(group, there & right) & _any(group, there & ~right)
        trained = there & both[group]
        counts = {"drpo/groups": float(both.sum()), "drpo/groups_of_one_verdict": float((~both).sum())}
        return StepPlan(group_weights(mask, group, trained, updates), trained, group, forest.correct, counts=counts)

    def __call__(self, batch: Batch) -> tuple[Tensor, Metrics]:
        batch = clean(batch)
        if batch.couple is None or batch.label is None:
            raise ValueError("objective.kind 'drpo' needs whole groups and verdicts, which the batch does not have")
        settings = self.settings
        group = batch.couple.unique(return_inverse=True)[1]
        n_groups, right = _size(group), batch.label > 0
        length = batch.mask.sum(1).clamp(min=1)
        score = batch.logprob.sum(1) / length
        share = length_share(length, right, group, max_tokens=settings.max_tokens, by=settings.length_temperature)
        lifted = score.new_zeros(n_groups).index_add(0, group, share.to(score) * score)
        lowered = soft_maximum(score, ~right, group, n_groups, temperature=settings.wrong_temperature)
        tokens = score.new_zeros(n_groups).index_add(0, group, length.to(score))
        kl = score.new_zeros(n_groups).index_add(0, group, (batch.old_logprob - batch.logprob).sum(1)) / tokens
        beyond = (kl - settings.trust_region).clamp(min=0)
        weight = score.new_zeros(n_groups).index_add(0, group, batch.weight.sum(1).to(score))
        loss = (weight * (lowered - lifted + 0.5 * settings.penalty * beyond.square())).sum()
        groups = torch.tensor(float(n_groups))
        even = torch.where(right, 1 / _count(group, right).clamp(min=1)[group], 0)
        metrics = {
            "drpo/margin": ((lifted - lowered).detach().sum(), groups),
            "drpo/moved_by_length": ((share - even).clamp(min=0).sum(), groups),
            "drpo/outside": ((beyond.detach() > 0).sum().float(), groups),
            "kl/old": (kl.detach().sum(), groups),
        }
        return loss, metrics


def length_share(
    length: Int[Tensor, " R"], right: Bool[Tensor, " R"], group: Int[Tensor, " R"], *, max_tokens: int, by: float
) -> Float[Tensor, " R"]:
    """Share of each correct row in what its group's correct rows are lifted by; 0 for wrong ones.

        w_i = exp(r_i / lambda) / sum_j exp(r_j / lambda)        r = 1 - length / max_tokens, i and j correct

    It is the distribution over the correct samples with the highest mean r under a KL penalty of lambda.

    Args:
        length: in tokens.
        right: whether the row is correct.
        group: of each row, 0 .. G-1.
        by: lambda, without unit.
    Source:
        DRPO, arXiv:2510.04474; the authors' code, ``compute_policy_loss_drpo``.
    """
    # In double precision, from the group's highest: a ratio of lengths over 1e-38 overflows float32.
    tilt = (1 - length.double() / max_tokens) / by
    return torch.where(right, (tilt - _log_sum(tilt, right, group, _size(group))[group]).exp(), 0).float()


def soft_maximum(
    score: Float[Tensor, " R"],
    among: Bool[Tensor, " R"],
    group: Int[Tensor, " R"],
    n_groups: int,
    *,
    temperature: float,
) -> Float[Tensor, " G"]:
    """tau log(mean_j exp(s_j / tau)) over a group's rows ``among``: their mean where tau is high, else the highest.

    Args:
        score: s, nats per token, with gradient.
        temperature: tau, in the same unit.
    Source:
        DRPO, arXiv:2510.04474, and its code, whose loss has the same gradient.
    """
    total = _log_sum(score / temperature, among, group, n_groups)
    return temperature * (total - _count(group, among).to(score).clamp(min=1).log())


def group_weights(
    mask: Bool[Tensor, "R L"],
    group: Int[Tensor, " R"],
    trained: Bool[Tensor, " R"],
    updates: Sequence[Int[Tensor, " r"]],
) -> Float[Tensor, "R L"]:
    """Each token's weight: those of a trained group sum to 1 / groups of its update, untrained ones counted too."""
    weight = torch.zeros(mask.shape)
    for rows in updates:
        groups = len(group[rows].unique())
        length = mask[rows].sum(1).clamp(min=1)
        of_row = trained[rows] / (groups * _count(group, trained)[group[rows]].clamp(min=1))
        weight[rows] = mask[rows] * (of_row / length)[:, None]
    return weight


def _size(group: Int[Tensor, " R"]) -> int:
    return int(group.max()) + 1 if len(group) else 0


def _count(group: Int[Tensor, " R"], among: Bool[Tensor, " R"]) -> Float[Tensor, " G"]:
    return torch.zeros(_size(group), device=group.device).index_add(0, group, among.float())


def _any(group: Int[Tensor, " R"], among: Bool[Tensor, " R"]) -> Bool[Tensor, " G"]:
    return _count(group, among) > 0


def _log_sum(
    x: Float[Tensor, " R"], among: Bool[Tensor, " R"], group: Int[Tensor, " R"], n_groups: int
) -> Float[Tensor, " G"]:
    """log(sum exp(x)) over each group's rows ``among``; of a group without any, what is not to be read."""
    top = x.new_full((n_groups,), -torch.inf).scatter_reduce(
        0, group, x.detach().masked_fill(~among, -torch.inf), "amax"
    )
    top = torch.where(top.isfinite(), top, 0)
    above = (x - top[group]).masked_fill(~among, -torch.inf).exp()
    return top + x.new_zeros(n_groups).index_add(0, group, above).clamp(min=torch.finfo(x.dtype).tiny).log()
