"""D3S: only the rows of most varied advantages are trained, and of these the tokens of most advantage times entropy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from jaxtyping import Bool, Float, Int
from pydantic import Field

from lyceum.core.component import require_keys
from lyceum.core.forest import Forest
from lyceum.core.types import Credit, Credited, Origin, State
from lyceum.credit.base import CreditWithKL, lay, row_reward
from lyceum.credit.group import Scale, group_relative
from lyceum.utils.lazy_imports import Tensor, torch


class D3S(CreditWithKL):
    """Group-relative advantages, set to 0 but for a share of the rows and a share of their tokens.

    Both shares go to their ``end`` over the first ``steps``: few samples with a clear signal first, later all. What
    is left out counts in the loss's divisor all the same.
    """

    reads_steps: ClassVar[bool] = False
    requires: ClassVar = ("company",)

    kind: Literal["d3s"] = "d3s"
    rows: float = Field(0.75, gt=0, le=1)
    """Share of the rows that is kept in the first step: those whose advantages have the largest variance."""
    rows_end: float = Field(1.0, gt=0, le=1)
    """That share after ``steps``; a straight line between both."""
    tokens: float = Field(0.75, gt=0, le=1)
    """Share of these rows' tokens that is kept in the first step: those of the largest |advantage| times entropy."""
    tokens_end: float = Field(1.0, gt=0, le=1)
    """That share after ``steps``."""
    steps: int = Field(30, ge=1, le=10**9)
    """Steps of the stage until both shares are at their end."""
    among: Literal["step", "group"] = "step"
    """Rows are chosen among all of the step, or within each group."""
    scale: Scale = "std"
    """Divisor of a row's difference from its group's mean, as in ``credit: group``."""
    ddof: Literal[0, 1] = 0
    """The standard deviation divides by n - ddof."""
    eps: float = Field(1e-6, gt=0)
    """Added to the standard deviation, in the reward's unit."""

    @property
    def needs(self) -> frozenset[str]:
        return super().needs | {"old_entropy"}

    def build(self) -> Credit:
        return D3SCredit(self)

    def shares(self, step: int) -> tuple[float, float]:
        """Of rows and of tokens after so many steps."""
        way = min(1.0, step / self.steps)
        return (1 - way) * self.rows + way * self.rows_end, (1 - way) * self.tokens + way * self.tokens_end


class D3SCredit:
    """Counts the steps of its stage."""

    measures: frozenset[str] = frozenset()

    def __init__(self, settings: D3S) -> None:
        self.settings, self.needs, self.step = settings, settings.needs, 0

    def __call__(self, forest: Forest) -> Credited:
        of, rows = self.settings, forest.rows()
        reward = row_reward(forest, rows, of.kl_in_reward)
        of_row = group_relative(reward, forest.group, scale=of.scale, ddof=of.ddof, eps=of.eps)
        row_share, token_share = of.shares(self.step)
        among = forest.group if of.among == "group" else torch.zeros_like(forest.group)
        kept = most_varied(of_row, among, row_share)
        written = forest.trainable(rows, (Origin.POLICY, Origin.TEACHER)) & kept[:, None]
        weight = of_row.abs()[:, None] * rows.gather(forest.columns["old_entropy"])
        trained = largest(weight, written, token_share)
        metrics = {
            "rows_share": row_share,
            "tokens_share": token_share,
            "rows_left_out": float((~kept).sum()),
            "rows_left_out_with_advantage": float((~kept & (of_row != 0)).sum()),
            "tokens_left_out": float((written & ~trained).sum()),
        }
        return Credited(lay(of_row[:, None] * trained, forest, rows), metrics=metrics)

    def observe(self, forest: Forest, metrics: Mapping[str, float]) -> None:
        self.step += 1

    def state_dict(self) -> State:
        return {"step": self.step}

    def load_state_dict(self, state: State) -> None:
        require_keys("credit.d3s", given=state, needed=self.state_dict())
        self.step = int(state["step"])


def most_varied(advantage: Float[Tensor, " R"], among: Int[Tensor, " R"], share: float) -> Bool[Tensor, " R"]:
    """The rows whose advantages have the largest variance, of all sets of that many rows.

    They are the k highest and the n - k lowest ones, for the best k.

    Args:
        advantage: of each row.
        among: rows of one number are chosen from together.
        share: of them that is kept, rounded to whole rows, at least one.
    Source:
        D3S, arXiv:2509.22115 (abstract); that the set is made of both ends: arXiv:2504.13818.
    """
    kept = torch.zeros(len(advantage), dtype=torch.bool)
    for number in among.unique():
        rows = (among == number).nonzero().squeeze(1)
        value, order = advantage[rows].double().sort(stable=True)
        n = max(1, rounded(share * len(rows)))
        size = float(value.abs().max())
        value = value / size if size > 0 else value  # no square overflows
        variance = torch.stack([ends(value, n, k).var(correction=0) for k in range(n + 1)])
        kept[rows[ends(order, n, int(variance.argmax()))]] = True
    return kept


def rounded(number: float) -> int:
    """To the nearest whole number, halves up."""
    return int(number + 0.5)


def ends(ordered: Tensor, n: int, k: int) -> Tensor:
    """The first n - k and the last k."""
    return torch.cat([ordered[: n - k], ordered[len(ordered) - k :]])


def largest(value: Float[Tensor, "R L"], mask: Bool[Tensor, "R L"], share: float) -> Bool[Tensor, "R L"]:
    """The tokens of the mask with the largest values; ties go to the first.

    Args:
        share: of them that is kept, rounded to whole tokens.
    """
    found = torch.zeros_like(mask[mask])
    order = value[mask].argsort(descending=True, stable=True)
    found[order[: rounded(share * len(order))]] = True
    return torch.zeros_like(mask).masked_scatter(mask, found)
