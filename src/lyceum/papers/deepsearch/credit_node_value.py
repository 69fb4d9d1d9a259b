"""Advantages of tree search: the value of a token's node, minus the mean outcome of the tree's trajectories."""

from __future__ import annotations

from functools import partial
from typing import ClassVar, Literal

from jaxtyping import Float, Int
from pydantic import Field

from lyceum.core.forest import Forest, Rows
from lyceum.core.types import Credit, Credited
from lyceum.credit.base import (
    BaseCredit,
    CreditWithKL,
    above_zero,
    by_group,
    group_centred,
    kl_cost,
    lay,
)
from lyceum.credit.shares import token_shares
from lyceum.utils.lazy_imports import Tensor, torch


class NodeValue(CreditWithKL):
    """Each token's node value against the tree's mean outcome; where a rollout gave its nodes no values, each row's own
    outcome of 1 or -1 is used.

    Source: DeepSearch, arXiv:2509.25454, section 4.3, and its released code (advantage_fn.py).
    """

    requires: ClassVar = ("company",)

    kind: Literal["node-value"] = "node-value"
    scale: Literal["none", "std"] = "none"
    """Divisor of the difference: nothing (the paper's choice), or the standard deviation over the tree's
    trajectories."""
    temperature: float | None = Field(default=1.0, gt=0)
    """Temperature of the soft clipping of inner nodes' values, in their own unit; null does not clip."""
    largest: float = Field(default=1.0, gt=0)
    """Bound of the soft clipping, in the unit of a correct answer."""
    equal: Literal["train", "skip"] = "train"
    """Trees whose trajectories all have the same outcome: their inner nodes still differ from it, and are trained as in
    the paper's released code, or get no advantage."""
    right: float = 1.0
    """The verifier's reward for a correct answer, in the reward's unit. The rest of an outcome (such as a length
    penalty) is shaping, and is added to all of a trajectory's tokens."""
    wrong: float = 0.0
    """The verifier's reward for an incorrect answer, in the reward's unit."""
    eps: float = Field(default=1e-6, gt=0)
    """Added to the standard deviation, without unit."""

    def sources(self, outcome: tuple[str, ...]) -> tuple[str, ...]:
        return ("outcome", "shaping") if len(super().sources(outcome)) > 1 else outcome

    def build(self) -> Credit:
        return NodeValueCredit(self)


class NodeValueCredit(BaseCredit):
    """Values come from the search; the learner provides only the columns of a KL penalty."""

    def __init__(self, settings: NodeValue) -> None:
        self.settings = settings
        self.needs = settings.needs

    def __call__(self, forest: Forest) -> Credited:
        settings, rows = self.settings, forest.rows()
        outcome, shaping = terminal_values(forest.reward, forest.correct, right=settings.right, wrong=settings.wrong)
        shaping = shaping - kl_cost(forest, rows, settings.kl_in_reward).sum(1)
        value = token_values(forest, rows, outcome, temperature=settings.temperature, largest=settings.largest)
        end = forest.segment_value[last_segment(forest)]
        end = torch.where(end.isnan(), outcome, end)
        relative = partial(
            tree_advantage, outcome=end + shaping, group=forest.group, std=settings.scale == "std", eps=settings.eps
        )
        advantage = relative(value + shaping[:, None])
        metrics: dict[str, float] = {}
        if sum("/" not in name for name in forest.parts) > 1 or settings.kl_in_reward.coefficient:
            alike = shaping - group_centred(shaping, forest.group)
            unshaped = relative(value + alike[:, None])
            sources = {"outcome": unshaped, "shaping": advantage - unshaped}
            metrics |= token_shares(sources, forest.trainable(rows))
        if settings.equal == "skip":
            spread = group_centred(end + shaping, forest.group)
            advantage = advantage * by_group(spread.abs(), forest.group, "sum").bool()[:, None]
        laid = lay(advantage, forest, rows)
        metrics["all_wrong_groups_trained"] = float(all_wrong_trained(forest, laid))
        return Credited(laid, metrics=metrics)


def all_wrong_trained(forest: Forest, advantage: Float[Tensor, "R L"]) -> int:
    """Groups without a correct row, some token of which has an advantage."""
    wrong = by_group((forest.correct != 0).float(), forest.group, "sum") == 0
    return len(forest.group[wrong & (advantage != 0).any(1)].unique())


def terminal_values(
    reward: Float[Tensor, " R"], correct: Float[Tensor, " R"], *, right: float = 1.0, wrong: float = 0.0
) -> tuple[Float[Tensor, " R"], Float[Tensor, " R"]]:
    """(z, s): each row's outcome on the search's scale, and the shaping part of its reward.

        z = 1 correct, -1 incorrect;  s = r - right, r - wrong        where no grader judges: z = r, s = 0

    Args:
        reward: r, in the verifier's unit.
        correct: 1 correct, 0 incorrect, nan where no grader judges.
        right, wrong: the verifier's reward for each.
    """
    known = ~correct.isnan()
    z = torch.where(known, 2 * correct - 1, reward)
    return z, torch.where(known, reward - torch.where(correct == 1, right, wrong), 0)


def token_values(
    forest: Forest, rows: Rows, outcome: Float[Tensor, " R"], *, temperature: float | None, largest: float
) -> Float[Tensor, "R L"]:
    """The value of the node that each token of each row belongs to.

        v = largest * tanh(q / temperature)        inner nodes
        v = q                                      the row's last node

    A node without a value gets the row's outcome.

    Args:
        outcome: of each row, on the scale of correct 1 and incorrect -1.
        temperature: in the unit of q; None leaves inner nodes' values unclipped.
        largest: the bound on inner nodes' values.
    Source:
        DeepSearch, arXiv:2509.25454, section 4.3 (soft clipping).
    """
    own = forest.segment_value
    inner = own if temperature is None else soft_clip(own, temperature=temperature, largest=largest)
    # By node and not by segment: a judged step may split the last node in two.
    is_last = forest.segment_node == forest.segment_node[last_segment(forest)][forest.segment_row]
    value = torch.where(is_last, own, inner)
    value = torch.where(value.isnan(), outcome[forest.segment_row], value)
    length = forest.segment_end - forest.segment_start
    row = forest.segment_row.repeat_interleave(length)
    before = (length.cumsum(0) - length).repeat_interleave(length)
    at = forest.segment_start.repeat_interleave(length) + torch.arange(len(row)) - before
    return value.new_zeros(rows.index.shape).index_put((row, at), value.repeat_interleave(length))


def soft_clip(q: Float[Tensor, " n"], *, temperature: float, largest: float) -> Float[Tensor, " n"]:
    """largest * tanh(q / temperature): nearly q where it is small (at temperature 1), never beyond the bound.

    Source:
        DeepSearch, arXiv:2509.25454, section 4.3; both 1 there.
    """
    return largest * torch.tanh(q / temperature)


def last_segment(forest: Forest) -> Int[Tensor, " R"]:
    """The segment in which each row ends: its last, as segments are in order."""
    last = torch.zeros(forest.n_rows, dtype=torch.long)
    return last.scatter_reduce(0, forest.segment_row, torch.arange(len(forest.segment_row)), "amax")


def tree_advantage(
    value: Float[Tensor, "R L"],
    outcome: Float[Tensor, " R"],
    group: Int[Tensor, " R"],
    *,
    std: bool = False,
    eps: float = 1e-6,
) -> Float[Tensor, "R L"]:
    """A token's value against the mean outcome of its tree.

        A_it = v_it - mean_g        or, with std, divided by std_g + eps; std_g divides by n

    Args:
        value: v_it, of the node of token t of row i, shaping included.
        outcome: of each row, on the same scale, shaping included.
        group: tree of each row.
        eps: added to std_g.
    Returns:
        Advantages in the unit of value. All 0 in a tree of one row (which remains if the others are ungraded or
        unfinished): there is nothing to compare. (The released code takes a mean of 0 there.)
    Source:
        DeepSearch, arXiv:2509.25454, section 4.3 (mean-only normalisation); released code, advantage_fn.py: the mean
        is over the trajectories' last values, whatever the depth of the token.
    """
    centred = group_centred(outcome, group)
    advantage = value - (outcome - centred)[:, None]  # the mean, and exactly the outcome where all are equal
    count = by_group(torch.ones_like(outcome), group, "sum")
    if std:
        deviation = by_group(centred.square(), group, "mean").sqrt()
        advantage = advantage / above_zero(deviation + eps)[:, None]
    return advantage * (count > 1)[:, None]
