"""P3O: a policy gradient on pairs of samples, in which the difference of their rewards alone counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from jaxtyping import Bool, Float, Int
from pydantic import Field

from lyceum.core.forest import Forest
from lyceum.core.settings import ObjectiveSettings
from lyceum.core.types import Batch, Credited, Metrics, Objective, StepPlan
from lyceum.objective._pairs import Couples
from lyceum.objective.base import BaseObjective, clean, of_rows
from lyceum.objective.kl import LOG_RATIO_LIMIT
from lyceum.utils.lazy_imports import Tensor, torch


class P3O(ObjectiveSettings):
    """Samples of a group in pairs, in the order in which they were drawn; of advantages the difference is read, so
    that what a baseline adds to both cancels."""

    requires: ClassVar = ("company",)
    refuses: ClassVar = ("value-targets",)

    kind: Literal["p3o"] = "p3o"
    clip: Literal["joint", "separate"] = "joint"
    """``joint``: the ratio of the pair's two importance ratios is clipped; ``separate``: each sample's."""
    clip_range: float = Field(0.2, gt=0, lt=1)
    """Ratios are clipped to 1 - clip_range .. 1 + clip_range (no unit)."""

    def build(self) -> Objective:
        return Pairwise(self)


class Pairwise(BaseObjective):
    def __init__(self, settings: P3O) -> None:
        super().__init__("sequence", needs=frozenset({"old_logprob"}), skips=True)
        self.settings = settings

    def plan(self, forest: Forest, credited: Credited, updates: Sequence[Int[Tensor, " r"]]) -> StepPlan:
        mask = forest.trainable(forest.rows(), self.origins)
        advantage = of_rows(credited.advantage, mask)
        couple, label = torch.arange(forest.n_rows), torch.zeros(forest.n_rows)
        pairs = drawn_pairs(forest.group.tolist(), mask.any(1).tolist())
        differ = [(first, second) for first, second in pairs if advantage[first] != advantage[second]]
        for first, second in differ:
            couple[second] = first
            label[first], label[second] = 1, -1
        trained = label != 0
        # Pairs of equal reward have no gradient and count all the same: an easy step is a small one.
        paired = torch.zeros(forest.n_rows, dtype=torch.bool)
        paired[[row for pair in pairs for row in pair]] = True
        weight = self.weights(mask & paired[:, None], updates) * trained[:, None]
        return StepPlan(
            weight, trained, couple, label, counts={"pairs": len(differ), "pairs/equal": len(pairs) - len(differ)}
        )

    def __call__(self, batch: Batch) -> tuple[Tensor, Metrics]:
        batch = clean(batch)
        couples = Couples.of(batch, "p3o")
        first, second = couples.of_rows(of_rows(batch.advantage, batch.mask))
        ratio = couples.of_rows((batch.logprob - batch.old_logprob).sum(1))
        gain, clipped = pairwise_gain(*ratio, (first - second) / 2, self.settings.clip, self.settings.clip_range)
        pairs = torch.tensor(float(len(gain)))
        metrics = {
            "p3o/clipped": (clipped.float().sum(), pairs),
            "p3o/difference": ((first - second).abs().sum(), pairs),
        }
        return -(couples.weight.to(gain) * gain).sum(), metrics


def drawn_pairs(group: Sequence[int], written: Sequence[bool]) -> list[tuple[int, int]]:
    """Rows of one group in pairs, in order, whatever their rewards; an odd one is left out."""
    waiting: dict[int, int] = {}
    pairs: list[tuple[int, int]] = []
    for row, number in enumerate(group):
        if not written[row]:
            continue
        if number in waiting:
            pairs.append((waiting.pop(number), row))
        else:
            waiting[number] = row
    return pairs


def pairwise_gain(
    first: Float[Tensor, " P"],
    second: Float[Tensor, " P"],
    half: Float[Tensor, " P"],
    clip: Literal["joint", "separate"],
    clip_range: float,
) -> tuple[Float[Tensor, " P"], Bool[Tensor, " P"]]:
    """What each pair's surrogate gains, and whether its clip acts.

        joint:     min(d w1 / w2, d clip(w1 / w2))        d = (r1 - r2) / 2,  w = pi / pi_old
        separate:  min(d w1, d clip(w1)) + min(-d w2, -d clip(w2))

    At the first update both have the gradient d (grad log pi(y1) - grad log pi(y2)).

    Args:
        first, second: log w1 and log w2, nats, with gradient.
        half: d, in the unit of the advantages.
    Source:
        Wu et al., arXiv:2310.00212, theorem 1 (the pairwise gradient); clips as its section 4.2 names them.
    """

    def clipped(log_ratio: Tensor, gain: Tensor) -> tuple[Tensor, Tensor]:
        ratio = log_ratio.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp()
        inside = ratio.clamp(1 - clip_range, 1 + clip_range)
        return torch.minimum(gain * ratio, gain * inside), gain * inside < gain * ratio

    if clip == "joint":
        return clipped(first - second, half)
    (one, one_acts), (other, other_acts) = clipped(first, half), clipped(second, -half)
    return one + other, one_acts | other_acts
