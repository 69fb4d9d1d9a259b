"""Shares of the advantages' variance by source: parts of the reward, process rewards, a KL cost."""

from __future__ import annotations

from collections.abc import Mapping

from jaxtyping import Bool, Float, Int

from lyceum.utils.lazy_imports import Tensor, torch

ROUNDING = 1e-12
"""A variance below this share of its terms' own is rounding: nothing differs."""


def token_shares(sources: Mapping[str, Tensor], mask: Bool[Tensor, "R L"]) -> dict[str, float]:
    """Each source's share of the variance of the sum, over tokens.

        share_s = cov(a_s, a) / var(a)        a = sum_s a_s

    The shares sum to 1, and are the same whatever the sum is shifted and scaled by afterwards, as by whitening. Below
    0: what the source adds opposes the sum, whose variance would be larger without it. Above 1: others oppose it.

    Args:
        sources: what each adds to the advantage of each token (R, L), or of all of a row's (R, 1), before the sum is
            normalised.
        mask: tokens that the policy wrote.
    Returns:
        ``NAME/share`` of each; nothing where the sum is the same everywhere.
    """
    values = torch.stack([value.expand(mask.shape)[mask].double() for value in sources.values()])
    together = torch.zeros(values.shape[1], dtype=torch.long)
    return _named(sources, _shares(_centred(values), together, torch.ones(len(together))))


def row_shares(
    advantage: Float[Tensor, " R"], sources: Mapping[str, Float[Tensor, " R"]], group: Int[Tensor, " R"]
) -> dict[str, float]:
    """Each source's share of the variance of advantages that are linear in the sources' sum within each group.

        share_s = sum_g w_g cov_g(r_s, r) / var_g(r) / sum_g w_g        r = sum_s r_s
        w_g = sum_(i in g) (A_i - mean_g)^2

    The means of the groups, each counted as often as it has rows, are one group more. This is cov(A_s, A) / var(A) over
    rows where A_i = a_g (r_i - mean_g), as in comparisons within groups, whatever they are divided by, and where
    A_i = a r_i + b.

    Args:
        advantage: of each row; weighs the groups alone.
        sources: what each adds to the reward of each row.
        group: rows that are compared with each other.
    Returns:
        ``NAME/share`` of each; nothing where no reward of a group with advantages differs.
    """
    values = torch.stack([advantage, *sources.values()]).double()
    kinds, group = group.unique(return_inverse=True)
    centred, mean, count = torch.empty_like(values), values.new_zeros(len(values), len(kinds)), torch.bincount(group)
    for g in range(len(kinds)):
        of_g = values[:, group == g]
        mean[:, g] = of_g.mean(1)
        centred[:, group == g] = _centred(of_g)
    # The means as rows of a group of their own, each as long a vector as its group's rows of it would be.
    both = torch.cat([centred, _centred(mean, count) * count.sqrt()], 1)
    return _named(sources, _shares(both[1:], torch.cat([group, torch.full_like(count, len(kinds))]), both[0]))


def _centred(values: Float[Tensor, "s n"], count: Int[Tensor, " n"] | None = None) -> Float[Tensor, "s n"]:
    """Minus their mean, each counted so often; exactly 0 where all are equal: from the minimum first."""
    if not values.numel():
        return values
    above = values - values.amin(1, keepdim=True)
    count = torch.ones_like(above[0]) if count is None else count.to(above)
    return above - (above * count).sum(1, keepdim=True) / count.sum()


def _shares(
    values: Float[Tensor, "s n"], group: Int[Tensor, " n"], weigh: Float[Tensor, " n"]
) -> Float[Tensor, " s"] | None:
    """Of each source, the mean over groups of centred values, weighted by the squares of ``weigh``."""
    if not values.numel():
        return None
    values, weigh = (x / x.abs().max().clamp(min=1e-300) for x in (values, weigh.double()))  # no square overflows
    total, nothing = values.sum(0), values.new_zeros(int(group.max()) + 1)
    covariance = nothing.expand(len(values), -1).index_add(1, group, values * total)
    variance, own, weight = (
        nothing.index_add(0, group, each) for each in (total.square(), values.square().sum(0), weigh.square())
    )
    differs = variance > ROUNDING * own
    weight = torch.where(differs, weight, 0)
    if not bool(weight.sum() > 0):
        return None
    return (weight * covariance / torch.where(differs, variance, 1)).sum(1) / weight.sum()


def _named(sources: Mapping[str, Tensor], shares: Tensor | None) -> dict[str, float]:
    if shares is None:
        return {}
    return {f"{name}/share": share for name, share in zip(sources, shares.tolist(), strict=True)}
