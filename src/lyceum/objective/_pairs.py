"""What losses on preference pairs share: which trajectories are paired, the plan, and the metrics."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import ClassVar, Literal

from jaxtyping import Bool, Float, Int
from pydantic import Field, model_validator

from lyceum.core import keys
from lyceum.core.forest import Forest
from lyceum.core.settings import ObjectiveSettings
from lyceum.core.types import Batch, Credited, FrozenName, Metrics, Reduction, StepPlan
from lyceum.objective.base import BaseObjective, clean, measured
from lyceum.utils.lazy_imports import Tensor, torch


class Pairs(ObjectiveSettings):
    """Preference pairs of a step's own graded trajectories; advantages are not read.

    Every trajectory is in at most one pair: the best of a prompt with the worst, the second best with the second worst,
    and so on while their outcomes differ.
    """

    requires: ClassVar = ("company",)
    refuses: ClassVar = ("value-targets",)
    gives: ClassVar = ("pairs-alone",)

    pairs: int | None = Field(None, ge=1)
    """Maximum pairs per prompt; null: as many as there are."""
    margin: float = Field(0.0, ge=0)
    """Outcomes of a pair differ by more than this, in the reward's unit."""
    top_k: int | None = Field(None, ge=1, le=100_000)
    """Number of most likely tokens whose probability mass and entropy are measured, signs of over-optimisation; null
    measures neither."""


class StepPairs(Pairs):
    """Pairs of whole trajectories, or of steps: siblings where a tree branches."""

    of: Literal["trajectories", "siblings"] = "trajectories"
    """What a pair is: two trajectories of a prompt by their outcomes, or two nodes below one node of the tree by the
    mean outcome of the trajectories through each; of these only the nodes' own tokens are trained."""
    between: float | None = Field(None, ge=-1e6, le=1e6)
    """An outcome that lies strictly between the values of two siblings, such as 0.5 where a correct answer is 1; null:
    any two."""

    @model_validator(mode="after")
    def _between_where_read(self) -> StepPairs:
        if self.between is not None and self.of != "siblings":
            raise ValueError(f"between: got {self.between:g} with of '{self.of}'; allowed: null, or of 'siblings'")
        return self


@dataclass(frozen=True)
class Couples:
    """The pairs of a batch.

    Attributes:
        chosen, rejected: row of each.
        weight: in the loss.
        gap: difference of the values of a pair of siblings, in the reward's unit; of trajectories 1.
    """

    chosen: Int[Tensor, " P"]
    rejected: Int[Tensor, " P"]
    weight: Float[Tensor, " P"]
    gap: Float[Tensor, " P"]

    @classmethod
    def of(cls, batch: Batch, kind: str) -> Couples:
        if batch.couple is None or batch.label is None:
            raise ValueError(f"objective.kind {kind!r} needs pairs, which the batch does not have")
        pair = batch.couple.unique(return_inverse=True)[1]
        n_pairs, rows = len(pair) // 2, torch.arange(len(pair), device=pair.device)
        chosen, rejected = (
            rows.new_zeros(n_pairs).index_put((pair[own],), rows[own]) for own in (batch.label > 0, batch.label < 0)
        )
        of_row = batch.weight.sum(1)
        return cls(chosen, rejected, of_row[chosen] + of_row[rejected], batch.label[chosen])

    def of_rows(self, x: Float[Tensor, " R"]) -> tuple[Float[Tensor, " P"], Float[Tensor, " P"]]:
        """A number of each row, as that of the chosen and of the rejected one."""
        return x[self.chosen], x[self.rejected]


PairLoss = Callable[[Batch, Couples], tuple[Tensor, Tensor]]
"""Takes a clean batch and its pairs; returns each pair's loss and margin, (P,) each: a pair with a margin above 0 is
ordered as its outcomes are."""


class PairPlan(BaseObjective):
    """Plans pairs; a subclass has the loss."""

    def __init__(
        self, settings: Pairs, *, columns: frozenset[str] = frozenset(), needs: frozenset[str] = frozenset()
    ) -> None:
        reductions = () if settings.top_k is None else (TopMass(settings.top_k),)
        super().__init__("sequence", columns=columns, needs=needs, reductions=reductions, skips=True)
        self.settings = settings

    @property
    def of_steps(self) -> bool:
        return isinstance(self.settings, StepPairs) and self.settings.of == "siblings"

    def plan(self, forest: Forest, credited: Credited, updates: Sequence[Int[Tensor, " r"]]) -> StepPlan:
        mask = forest.trainable(forest.rows(), self.origins)
        if isinstance(self.settings, StepPairs) and self.of_steps:
            return self.plan_steps(self.settings, forest, mask, updates)
        written = mask.any(1).tolist()
        outcomes = {row: outcome for row, outcome in enumerate(forest.reward.tolist()) if written[row]}
        of = [*zip(forest.group.tolist(), keys.prompts(forest), strict=True)]
        pairs = graded_pairs(outcomes, of, margin=self.settings.margin, most=self.settings.pairs)
        couple, label = torch.arange(forest.n_rows), torch.zeros(forest.n_rows)
        for chosen, rejected in pairs:
            couple[rejected] = chosen
            label[chosen], label[rejected] = 1, -1
        trained = label != 0
        weight = self.weights(mask & trained[:, None], updates)
        return StepPlan(weight, trained, couple, label, counts={"pairs": len(pairs)})

    def plan_steps(
        self, settings: StepPairs, forest: Forest, mask: Bool[Tensor, "R L"], updates: Sequence[Int[Tensor, " r"]]
    ) -> StepPlan:
        """Pairs of siblings: their own tokens alone have weight, and labels are the gap between their values."""
        pairs = sibling_pairs(forest, mask, margin=settings.margin, between=settings.between, most=settings.pairs)
        couple, label = torch.arange(forest.n_rows), torch.zeros(forest.n_rows)
        own = torch.zeros_like(mask)
        for pair in pairs:
            couple[pair.rejected[0]] = pair.chosen[0]
            for (row, start, end), sign in ((pair.chosen, 1), (pair.rejected, -1)):
                label[row] = sign * pair.gap
                own[row, start:end] = True
        later = sum(bool(mask[row, :start].any()) for row, start, _ in (pair.chosen for pair in pairs))
        weight = self.weights(mask & own, updates)
        return StepPlan(weight, label != 0, couple, label, counts={"pairs": len(pairs), "pairs/later_steps": later})


class PairObjective(PairPlan):
    """A loss of each pair, averaged over the pairs."""

    def __init__(
        self,
        settings: Pairs,
        loss: PairLoss,
        *,
        columns: frozenset[str] = frozenset(),
        needs: frozenset[str] = frozenset(),
    ) -> None:
        super().__init__(settings, columns=columns, needs=needs)
        self.loss = loss

    def __call__(self, batch: Batch) -> tuple[Tensor, Metrics]:
        batch = clean(batch)
        if self.of_steps:
            batch = clean(replace(batch, mask=batch.mask & (batch.weight != 0)))
        couples = Couples.of(batch, self.settings.kind)
        loss, margin = self.loss(batch, couples)
        metrics = pair_metrics(self.settings.kind, batch, couples, margin)
        if self.of_steps:
            metrics[f"{self.settings.kind}/gap"] = (couples.gap.sum(), torch.tensor(float(len(couples.gap))))
        return (couples.weight.to(loss) * loss).sum(), metrics


def pair_metrics(kind: str, batch: Batch, couples: Couples, margin: Float[Tensor, " P"]) -> Metrics:
    """How far the pairs are apart and how often in the right order, and, in nats per token, how likely each side is."""
    margin, pairs = margin.detach(), torch.tensor(float(len(margin)))
    metrics = {f"{kind}/margin": (margin.sum(), pairs), f"{kind}/accuracy": ((margin > 0).sum().float(), pairs)}
    for name, rows in (("chosen", couples.chosen), ("rejected", couples.rejected)):
        metrics[f"{kind}/{name}_logprob"] = measured(batch.logprob[rows], batch.mask[rows])
    for name in (MASS, ENTROPY):
        if name in batch.columns:
            metrics[f"{kind}/{name}"] = measured(batch.columns[name], batch.mask)
    return metrics


def log_ratio(batch: Batch, kind: str) -> Float[Tensor, " R"]:
    """log pi(y | x) / pi_ref(y | x) of each row, nats, with gradient."""
    if batch.reference_logprob is None:
        raise ValueError(f"objective.kind {kind!r} needs reference_logprob, which the batch does not have")
    return (batch.logprob - batch.reference_logprob).sum(1)


def graded_pairs(
    outcome: dict[int, float], of: Sequence[Hashable], *, margin: float = 0.0, most: int | None = None
) -> list[tuple[int, int]]:
    """(chosen, rejected) rows: of each prompt the best with the worst, inwards, while their outcomes differ.

    Args:
        outcome: of the rows that may be paired, in the reward's unit; ties go to the earlier row.
        of: prompt of each row; rows of different prompts are not paired.
        margin: by how much the outcomes differ at least, exclusive.
        most: maximum pairs per prompt; None for no limit.
    """
    of_prompt: dict[Hashable, list[int]] = {}
    for row in outcome:
        of_prompt.setdefault(of[row], []).append(row)
    pairs: list[tuple[int, int]] = []
    for rows in of_prompt.values():
        rows.sort(key=lambda row: -outcome[row])
        inwards = list(zip(rows[: len(rows) // 2], reversed(rows), strict=False))[:most]
        pairs += [(best, worst) for best, worst in inwards if outcome[best] - outcome[worst] > margin]
    return pairs


MASS, ENTROPY = "top_mass", "top_entropy"


@dataclass(frozen=True)
class TopMass(Reduction):
    """Of the k most likely tokens, their probability together, and what they add to the entropy (nats).

    Both fall where a preference loss is over-optimised.

    Source:
        Shi et al., arXiv:2410.11677 (entropy over the top k tokens, top k probability mass).
    """

    k: int

    @property
    def models(self) -> frozenset[FrozenName]:
        return frozenset()

    @property
    def old(self) -> bool:
        return False

    def __call__(
        self, logits: Float[Tensor, "k V"], token: Int[Tensor, " k"], frozen: Mapping[FrozenName, Float[Tensor, "k V"]]
    ) -> dict[str, Float[Tensor, " k"]]:
        logits = logits.detach()
        logprob = logits.topk(min(self.k, logits.shape[1]), dim=-1).values - logits.logsumexp(-1, keepdim=True)
        share = logprob.exp()
        return {MASS: share.sum(-1), ENTROPY: -torch.where(share > 0, share * logprob, 0).sum(-1)}


@dataclass(frozen=True)
class StepPair:
    """Two steps below one node.

    Attributes:
        chosen, rejected: (row, start, end) of each: positions [start, end) of a row that passes it.
        gap: mean outcome below the chosen one less that below the rejected one, in the reward's unit; above 0.
    """

    chosen: tuple[int, int, int]
    rejected: tuple[int, int, int]
    gap: float


def sibling_pairs(
    forest: Forest,
    mask: Bool[Tensor, "R L"],
    *,
    margin: float = 0.0,
    between: float | None = None,
    most: int | None = None,
) -> list[StepPair]:
    """Siblings whose values differ, those with the most rows first, as long as each has a row that no other pair has.

        V(n) = mean outcome of the rows that pass n        gap(a, b) = V(a) - V(b)

    As a and b are below one node, the gap is also the difference of their advantages. A value is the better known the
    more rows pass its node: a pair counts as many as the one of its nodes that has fewer.

    Args:
        mask: tokens that may be trained; siblings without any, or with the same ones, are no pair.
        margin: by how much their values differ at least, exclusive.
        between: lies strictly between their values; None: anywhere.
        most: maximum pairs per group; None for no limit.
    Returns:
        By group, most rows first; ties by the largest gap, then in the order of the rows. No row is in two of them.
    """
    of = keys.nodes(forest)
    reward, group, parent = forest.reward.tolist(), forest.group.tolist(), forest.node_parent.tolist()
    passes: dict[int, list[tuple[int, int, int]]] = {}
    for at, node in zip(zip(of.row.tolist(), of.start.tolist(), of.end.tolist(), strict=True), of.key, strict=True):
        assert isinstance(node, int)
        passes.setdefault(node, []).append(at)
    value = {node: sum(reward[row] for row, _, _ in found) / len(found) for node, found in passes.items()}
    tokens = {node: written(forest, mask, found[0]) for node, found in passes.items()}
    children: dict[int, list[int]] = {}
    for node in passes:
        children.setdefault(parent[node], []).append(node)

    def differing() -> Iterator[tuple[float, int, int]]:
        for siblings in children.values():
            for a, b in permutations(siblings, 2):
                apart = value[a] - value[b]
                apart_by = between is None or value[a] > between > value[b]
                if apart > margin and apart_by and tokens[a] and tokens[b] and tokens[a] != tokens[b]:
                    yield apart, a, b

    def order(found: tuple[float, int, int]) -> tuple[float, ...]:
        gap, a, b = found
        return (-min(len(passes[a]), len(passes[b])), -gap, *passes[a][0], *passes[b][0])

    pairs: dict[int, list[StepPair]] = {}
    taken: set[int] = set()
    for gap, a, b in sorted(differing(), key=order):
        chosen, rejected = (next((at for at in passes[node] if at[0] not in taken), None) for node in (a, b))
        if chosen is None or rejected is None:
            continue
        of_group = pairs.setdefault(group[chosen[0]], [])
        if most is None or len(of_group) < most:
            of_group.append(StepPair(chosen, rejected, gap))
            taken |= {chosen[0], rejected[0]}
    return [pair for number in sorted(pairs) for pair in pairs[number]]


def written(forest: Forest, mask: Bool[Tensor, "R L"], at: tuple[int, int, int]) -> list[int]:
    """The tokens of a step that may be trained."""
    row, start, end = at
    kept = forest.rows().index[row, start:end][mask[row, start:end]]
    return forest.token[kept].tolist()
