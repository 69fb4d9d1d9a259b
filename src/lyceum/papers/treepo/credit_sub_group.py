"""Sub-group advantage (TreePO): a trajectory against those that share its prefix, at every depth of the tree."""

from __future__ import annotations

from typing import Literal

from jaxtyping import Float, Int

from lyceum.core import keys
from lyceum.core.forest import Forest
from lyceum.core.types import Credited
from lyceum.credit.base import ForestCreditSettings, by_group, group_centred, lay, row_reward, spread, whiten
from lyceum.utils.lazy_imports import Tensor, torch


class SubGroup(ForestCreditSettings):
    """The mean, over the depths of the tree, of a trajectory's reward against its sub-tree's there."""

    kind: Literal["sub-group"] = "sub-group"
    weight: Literal["equal", "size"] = "equal"
    """Weight of each depth of a trajectory: equal (the authors' script), or by group size (the default of their
    code)."""
    equal_sub_groups: Literal["count", "skip"] = "count"
    """Whether a sub-group whose rewards are all equal counts, with a difference of 0, or its depth is left out."""
    whiten: bool = True
    """Normalise the advantages of all tokens of the step to mean 0 and standard deviation 1, as REINFORCE++ does."""

    def credited(self, forest: Forest) -> Credited:
        rows, shared = forest.rows(), keys.nodes(forest)
        advantage = sub_group_advantage(
            row_reward(forest, rows, self.kl_in_reward),
            forest.group,
            shared.row,
            shared.number,
            by_size=self.weight == "size",
            skip_equal=self.equal_sub_groups == "skip",
        )
        metrics = {"sub_groups": float((shared.number.bincount() > 1).sum())}
        if not self.whiten:
            return Credited(spread(advantage, forest, rows), metrics=metrics)
        whitened = whiten(advantage[:, None].expand(rows.index.shape), forest.trainable(rows))
        return Credited(lay(whitened, forest, rows), metrics=metrics)


def sub_group_advantage(
    reward: Float[Tensor, " R"],
    group: Int[Tensor, " R"],
    row: Int[Tensor, " P"],
    node: Int[Tensor, " P"],
    *,
    by_size: bool = False,
    skip_equal: bool = False,
) -> Float[Tensor, " R"]:
    """Each row's reward against the rows that pass the same node, averaged over the nodes on its path.

        a_id = r_i - mean over the rows that pass row i's node at depth d (at depth 0: over its whole group)
        A_i  = sum_d w_id a_id / sum_d w_id        over depth 0 and the deeper ones with more than one row

    Args:
        reward: outcome of each row, in the verifier's unit.
        group: group of each row, numbered from 0; numbers may be missing.
        row, node: each row's passes through nodes below its prompt; no node is in two groups.
        by_size: w_id is the number of rows there instead of 1.
        skip_equal: leave out depths below 0 whose rows all have the same reward.
    Returns:
        Advantage of each row, in the unit of reward; r_i - mean in a flat group, where every row has its own node.
        0 in a group of one (the authors' code gives it its reward: a mean of 0 there).
    Source:
        TreePO, arXiv:2508.17445; its code's compute_tree_reinforce_plus_plus_baseline_outcome_advantage.
    """
    size = by_group(torch.ones_like(reward), group, "sum")
    weight = size.clone() if by_size else torch.ones_like(reward)
    total = weight * group_centred(reward, group)
    passed = by_group(torch.ones_like(reward)[row], node, "sum")
    counts = passed > 1
    centred = group_centred(reward[row], node)
    if skip_equal:
        counts &= by_group(centred.abs(), node, "sum") > 0
    of_pass = torch.where(counts, passed if by_size else torch.ones_like(passed), 0)
    total = total.index_add(0, row, of_pass * centred)
    return total / weight.index_add(0, row, of_pass)
