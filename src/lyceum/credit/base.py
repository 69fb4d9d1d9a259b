"""What every credit shares: comparing rows of a group, laying advantages on tokens, the KL penalty in the reward."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from jaxtyping import Bool, Float, Int

from lyceum.core.built import described
from lyceum.core.component import Stateless
from lyceum.core.forest import Forest, Rows
from lyceum.core.group import AGE
from lyceum.core.settings import CreditSettings
from lyceum.core.types import Credit, Credited, Origin
from lyceum.objective.kl import Estimator, KLPenalty, kl_estimate
from lyceum.utils.errors import Diverged, RunError
from lyceum.utils.lazy_imports import Tensor, torch


class KLInReward(KLPenalty):
    """KL penalty against a reference policy, subtracted from the reward."""

    # A separate class for this default. In a reward no gradient passes through the estimate; what k1 loses by that is
    # 0 in expectation, so that the policy gradient is that of the divergence, while k2 and k3 are biased.
    estimator: Estimator = "k1"
    """Estimator of the divergence on the sampled tokens (arXiv:2402.14740, section 2, takes k1)."""


class CreditWithKL(CreditSettings):
    """Settings of credits that may subtract a KL penalty from the reward."""

    kl_in_reward: KLInReward = KLInReward()
    """Subtracts coefficient * KL(old || reference) from each token's reward; outcome credits subtract its sum over the
    row."""

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({"old_logprob", self.kl_in_reward.column} if self.kl_in_reward.coefficient else ())

    def sources(self, outcome: tuple[str, ...]) -> tuple[str, ...]:
        return (*super().sources(outcome), *(("kl",) if self.kl_in_reward.coefficient else ()))


def by_group(
    value: Float[Tensor, " R"], group: Int[Tensor, " R"], reduce: Literal["amin", "amax", "mean", "sum"]
) -> Float[Tensor, " R"]:
    """Each row's value replaced by its group's extreme, mean or sum. Groups may be ragged, numbers may be missing."""
    n_groups = int(group.max()) + 1 if len(group) else 0
    return value.new_zeros(n_groups).scatter_reduce(0, group, value, reduce, include_self=False)[group]


def group_centred(reward: Float[Tensor, " R"], group: Int[Tensor, " R"]) -> Float[Tensor, " R"]:
    """reward - mean of the row's group; exactly 0 where a group's rewards are equal, so also in a group of one.

    The minimum is subtracted first: eight rewards of 0.9 have a float32 mean one ulp off, and dividing by a standard
    deviation of one ulp would give a non-zero advantage.
    """
    above = reward - by_group(reward, group, "amin")
    return above - by_group(above, group, "mean")


def above_zero(divisor: Tensor) -> Tensor:
    """At least the smallest normal number: an eps may be 0 in float32, and 0 / 0 is nan where nothing differs."""
    return divisor.clamp(min=torch.finfo(divisor.dtype).tiny)


def whiten(value: Float[Tensor, "R L"], mask: Bool[Tensor, "R L"], *, eps: float = 1e-8) -> Float[Tensor, "R L"]:
    """Mean 0 and standard deviation 1 over the tokens of the mask; 0 elsewhere.

        (x - mean) / (std + eps)        std divides by the number of tokens

    Args:
        value: in any unit.
        mask: tokens that count.
        eps: added to std, in the unit of value.
    Returns:
        Without unit; exactly 0 where all values are equal.
    """
    chosen = value[mask]
    if not len(chosen):
        return torch.zeros_like(value)
    above = chosen - chosen.min()  # from the minimum first, as in group_centred
    centred = above - above.mean()
    scaled = centred / above_zero(centred.square().mean().sqrt() + eps)
    return torch.zeros_like(value).masked_scatter(mask, scaled)


def lay(advantage: Float[Tensor, "R L"], forest: Forest, rows: Rows) -> Float[Tensor, "R L"]:
    """Final per-token advantages on tokens of the policy or a teacher, times the curriculum's weight; 0 elsewhere.

    A teacher's tokens have one too, for objectives that learn from both; the others never train on them. Only this
    function reads ``forest.weight``: every credit's result passes here once.

    Raises:
        Diverged: an advantage is not finite in float32.
    """
    weighted = advantage * forest.weight[:, None].to(advantage)
    written = forest.trainable(rows, (Origin.POLICY, Origin.TEACHER))
    return in_float32(weighted.masked_fill(~written, 0), forest, "an advantage")


def in_float32(value: Float[Tensor, "R L"], forest: Forest, what: str) -> Float[Tensor, "R L"]:
    """Credit's result in float32, the learner's precision.

    Raises:
        Diverged: it is not finite.
    """
    value = value.float()
    if not bool(value.isfinite().all()):
        low, high = forest.reward.min(), forest.reward.max()
        raise Diverged(
            f"credit: {what} is {'nan' if bool(value.isnan().any()) else 'infinite'}, of outcomes between {low:g} and "
            f"{high:g}; look for a division by 0, a logarithm of 0 or a mean of nothing in what it computes, or lower "
            "credit.kl_in_reward.coefficient"
        )
    return value


def spread(row_advantage: Float[Tensor, " R"], forest: Forest, rows: Rows) -> Float[Tensor, "R L"]:
    """A row's advantage on each token that the policy or a teacher wrote in it, times the curriculum's weight."""
    return lay(row_advantage[:, None].expand(rows.index.shape), forest, rows)


def last_token(mask: Bool[Tensor, "R L"]) -> Bool[Tensor, "R L"]:
    """True on the last token of each row's mask, nowhere in a row without any."""
    after = mask.flip(1).cumsum(1).flip(1)  # tokens of the mask from here on
    return mask & (after == 1)


def kl_cost(forest: Forest, rows: Rows, penalty: KLPenalty) -> Float[Tensor, "R L"]:
    """KL penalty of each trained token against the reference, in the reward's unit; 0 where the penalty is off."""
    if not penalty.coefficient:
        return torch.zeros(rows.index.shape)
    drift = kl_estimate(forest.columns["old_logprob"], forest.columns[penalty.column], penalty.estimator)
    return penalty.coefficient * rows.gather(drift).masked_fill(~forest.trainable(rows), 0)


def row_reward(forest: Forest, rows: Rows, penalty: KLPenalty) -> Float[Tensor, " R"]:
    """Outcome of each row minus the KL cost of all tokens of its episode, in the reward's unit."""
    return forest.reward - forest.over_episode(kl_cost(forest, rows, penalty).sum(1))


def token_reward(forest: Forest, rows: Rows, penalty: KLPenalty) -> Float[Tensor, "R L"]:
    """The outcome on each row's last trained token, minus every token's KL cost, in the reward's unit.

    Source:
        Ziegler et al., arXiv:1909.08593, section 2, as is standard in PPO of language models.
    """
    end = last_token(forest.trainable(rows))
    return forest.reward[:, None] * end - kl_cost(forest, rows, penalty)


def recorded_rows(forest: Forest) -> Bool[Tensor, " R"]:
    """The rows of trees that an earlier step sampled (``replay``)."""
    if AGE not in forest.columns:
        return torch.zeros(forest.n_rows, dtype=torch.bool)
    return forest.columns[AGE][forest.leaf] > 0


class BaseCredit(Stateless):
    """A credit without state."""

    measures: frozenset[str] = frozenset()

    def observe(self, forest: Forest, metrics: Mapping[str, float]) -> None:
        """There is no state to change."""


@dataclass
class OutcomeCredit(BaseCredit):
    """A credit that is a function of each episode's reward and group alone: all rows of an episode have its advantage.

    Attributes:
        advantage: (reward (R,), group (R,)) -> advantage (R,), a row for each episode.
    """

    needs: frozenset[str]
    penalty: KLPenalty
    advantage: Callable[[Tensor, Tensor], Tensor]

    def __call__(self, forest: Forest) -> Credited:
        rows = forest.rows()
        last = forest.episode_rows
        reward = row_reward(forest, rows, self.penalty)[last]
        advantage: Any = self.advantage(reward, forest.group[last])
        if not torch.is_tensor(advantage) or advantage.shape != reward.shape:
            raise RunError(
                f"credit: its function of (reward, group) returned {described(advantage)}; allowed: a tensor of shape "
                f"{tuple(reward.shape)}, one advantage for each row"
            )
        if forest.episode is not None:
            advantage = advantage[forest.episode]
        return Credited(spread(advantage, forest, rows))


@dataclass
class ForestCredit(BaseCredit):
    """A credit without state that reads more of a forest than its rows' rewards and groups.

    Attributes:
        credited: its advantages have the curriculum's weight in them.
    """

    needs: frozenset[str]
    credited: Callable[[Forest], Credited]

    def __call__(self, forest: Forest) -> Credited:
        return self.credited(forest)


class ForestCreditSettings(CreditWithKL):
    """Settings of a credit without state that compares a task's rows, and reads more of a forest than their rewards."""

    requires: ClassVar = ("company",)

    @abstractmethod
    def credited(self, forest: Forest) -> Credited: ...

    def build(self) -> Credit:
        return ForestCredit(self.needs, self.credited)
