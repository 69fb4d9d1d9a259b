"""What every objective shares: loss aggregation over tokens, terms beside the policy loss, and metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal

from jaxtyping import Bool, Float, Int
from pydantic import Field, model_validator

from lyceum.core.built import described
from lyceum.core.component import Stateless
from lyceum.core.forest import Forest, sum_over
from lyceum.core.needs import Gives
from lyceum.core.settings import Composition, ObjectiveSettings
from lyceum.core.types import Batch, Credited, GradientsOf, Metrics, Origin, Reduction, StepPlan
from lyceum.objective._importance import ImportanceCorrection, importance_weight
from lyceum.objective.kl import LOG_RATIO_LIMIT, KLPenalty, kl_estimate
from lyceum.utils.errors import RecipeError, RunError
from lyceum.utils.lazy_imports import Tensor, torch

Aggregate = Literal["token", "sequence", "constant"]

MISMATCH = "importance/mismatch"
"""Metric of every objective: the learner adds it where the objective itself does not."""

Surrogate = Callable[[Batch], tuple[Tensor, Metrics]]
"""Takes a clean batch; returns each token's policy loss (R, L) and metrics."""


class Aggregation(ObjectiveSettings):
    """Aggregation of the loss over tokens."""

    aggregate: Aggregate = "token"
    """``token``: every token of the step counts the same; ``sequence``: every row; ``constant``: every token counts
    1 / (rows * constant), whatever the lengths (Dr. GRPO)."""
    constant: int | None = Field(None, ge=1)
    """Divisor of each row, in tokens, where aggregate is ``constant``; usually the maximum completion length."""

    @model_validator(mode="after")
    def _constant_where_used(self) -> Aggregation:
        if (self.aggregate == "constant") != (self.constant is not None):
            raise ValueError(
                f"constant: got {self.constant} with aggregate '{self.aggregate}'; allowed: "
                "a number of tokens with aggregate 'constant', none with the others"
            )
        return self


class Terms(Aggregation):
    """Terms that may be added to any policy loss."""

    gives: ClassVar = (Gives("value-head", when=lambda own: own.value_coefficient != 0),)

    kl: KLPenalty = KLPenalty()
    """KL(policy || reference) added to each token's loss."""
    entropy_coefficient: float = 0.0
    """Entropy bonus per token, in loss units per nat."""
    value_coefficient: float = Field(0.0, ge=0)
    """Weight of the value head's loss; 0 trains no value head."""
    value_clip: float | None = Field(None, gt=0)
    """Maximum change of a value in one step, in the reward's unit; None for no limit."""
    importance: ImportanceCorrection = ImportanceCorrection()
    """Correction for an engine whose probabilities differ from the learner's."""

    def corrected(self, batch: Batch) -> Bool[Tensor, "R L"]:
        """The tokens that ``importance`` corrects: those that the engine drew."""
        return batch.mask & (batch.origin == int(Origin.POLICY))

    @property
    def columns(self) -> frozenset[str]:
        wanted = {self.kl.column: self.kl.coefficient != 0, "old_value": self.value_coefficient != 0}
        return frozenset(name for name, is_wanted in wanted.items() if is_wanted)

    @property
    def needs(self) -> frozenset[str]:
        wanted = {"entropy": self.entropy_coefficient != 0, "value": self.value_coefficient != 0}
        return frozenset(name for name, is_wanted in wanted.items() if is_wanted)

    def check(self, stage: Composition) -> list[str]:
        credit = stage.credit
        if credit is None or ("value-targets" in credit.offers) == bool(self.value_coefficient):
            return []
        if not self.value_coefficient:
            return [
                f"objective.value_coefficient: got 0, but credit.kind '{credit.kind}' reads a value head that nothing "
                "else trains; allowed: more than 0"
            ]
        return [
            f"objective.value_coefficient: got {self.value_coefficient}, but credit.kind '{credit.kind}' gives a value "
            "head no target; allowed: 0, or credit.kind 'gae' or 'egae'"
        ]


class BaseObjective(Stateless):
    """An objective without state, whose weights aggregate its loss over tokens.

    Args:
        aggregate, constant: as in :func:`aggregate_weights`.
        skips: a row whose advantages are all 0 adds neither loss nor gradient, and is not computed.
    """

    def __init__(
        self,
        aggregate: Aggregate,
        constant: int | None = None,
        *,
        columns: frozenset[str] = frozenset(),
        needs: frozenset[str] = frozenset(),
        reductions: tuple[Reduction, ...] = (),
        origins: tuple[Origin, ...] = (Origin.POLICY,),
        skips: bool,
    ) -> None:
        self.aggregate: Aggregate = aggregate
        self.constant = constant
        self.columns, self.needs, self.reductions = columns, needs, reductions
        self.origins, self.skips = origins, skips

    def plan(self, forest: Forest, credited: Credited, updates: Sequence[Int[Tensor, " r"]]) -> StepPlan:
        mask = forest.trainable(forest.rows(), self.origins)
        trained = (credited.advantage != 0).any(1) if self.skips else torch.ones(forest.n_rows, dtype=torch.bool)
        if forest.untrained is not None:
            trained &= ~forest.untrained
        return StepPlan(self.weights(mask, updates, forest.episode), trained)

    def weights(
        self,
        mask: Bool[Tensor, "R L"],
        updates: Sequence[Int[Tensor, " r"]],
        episode: Int[Tensor, " R"] | None = None,
    ) -> Float[Tensor, "R L"]:
        """Each token's weight in the loss of its update."""
        weight = torch.zeros(mask.shape)
        for rows in updates:
            weight[rows] = self.update_weights(mask[rows], None if episode is None else episode[rows])
        return weight

    def update_weights(
        self, mask: Bool[Tensor, "r L"], episode: Int[Tensor, " r"] | None = None
    ) -> Float[Tensor, "r L"]:
        """Each token's weight in one update: see :func:`aggregate_weights`."""
        return aggregate_weights(mask, self.aggregate, self.constant, episode)

    def look_ahead(self, gradients: GradientsOf) -> Mapping[str, float]:
        """It looks at no gradient."""
        return {}

    def observe(self, metrics: Mapping[str, float]) -> None:
        """There is no state to change."""


def loss_of_tokens(given: Any, batch: Batch) -> tuple[Float[Tensor, "R L"], Metrics]:
    """What a surrogate returned, where it is a loss for each token and metrics.

    A loss that is summed already would be broadcast, and weighted once more for each token.

    Raises:
        RunError: it is anything else.
    """
    if not isinstance(given, tuple) or len(given) != 2 or not isinstance(given[1], dict):
        raise RunError(
            f"objective: its surrogate returned {described(given)}; allowed: (loss, metrics), metrics a dict, such as "
            "(loss, {})"
        )
    loss, metrics = given
    if not torch.is_tensor(loss) or loss.shape != batch.logprob.shape:
        raise RunError(
            f"objective: its surrogate returned {described(loss)} as its loss; allowed: a tensor of shape "
            f"{tuple(batch.logprob.shape)}, one loss for each token, which objective.aggregate then sums"
        )
    return loss, metrics


class PolicyObjective(BaseObjective):
    """A surrogate for the policy plus the terms beside it, summed with the update's weights."""

    def __init__(
        self,
        terms: Terms,
        surrogate: Surrogate,
        *,
        needs: frozenset[str] = frozenset(),
        reductions: tuple[Reduction, ...] = (),
        origins: tuple[Origin, ...] = (Origin.POLICY,),
    ) -> None:
        self.terms = terms
        self.surrogate = surrogate
        corrected = terms.importance.mode != "none"
        super().__init__(
            terms.aggregate,
            terms.constant,
            columns=terms.columns,
            needs=terms.needs | needs | ({"old_logprob"} if corrected else frozenset()),
            reductions=reductions,
            origins=origins,
            # Those have a gradient whatever the row's advantage is, so that no row may be skipped.
            skips=not (terms.columns or terms.needs or reductions),
        )

    def __call__(self, batch: Batch) -> tuple[Tensor, Metrics]:
        batch = clean(batch)
        token_loss, metrics = loss_of_tokens(self.surrogate(batch), batch)
        metrics[MISMATCH] = mismatch(batch, self.terms.corrected(batch))
        token_loss = token_loss * self._correction(batch, metrics)
        token_loss = token_loss + self.beside(batch, metrics)
        return (batch.weight * token_loss).sum(), metrics

    def beside(self, batch: Batch, metrics: Metrics) -> Float[Tensor, "R L"]:
        """What each token's loss has beside the surrogate."""
        return terms_beside(self.terms, batch, metrics)

    def _correction(self, batch: Batch, metrics: Metrics) -> Tensor | float:
        how = self.terms.importance
        if how.mode == "none":
            return 1.0
        corrected = self.terms.corrected(batch)
        weight = importance_weight(
            batch.old_logprob,
            batch.behaviour_logprob,
            corrected,
            how.level,
            how.mode,
            how.low,
            how.high,
        )
        metrics["importance/weight"] = measured(weight, batch.mask)
        metrics["importance/dropped"] = measured(weight == 0, batch.mask)
        return weight


def terms_beside(terms: Terms, batch: Batch, metrics: Metrics) -> Float[Tensor, "R L"]:
    """Each token's KL penalty, entropy bonus and value loss, in loss units; adds their metrics.

    Raises:
        ValueError: a term is on and the batch lacks a column that it reads.
    """
    loss = torch.zeros_like(batch.logprob)
    against = terms.kl.against
    reference = batch.reference_logprob if against == "reference" else batch.columns.get(terms.kl.column)
    if reference is not None:
        metrics[f"kl/{against}"] = measured(kl_estimate(batch.logprob, reference, "k3"), batch.mask)
    if terms.kl.coefficient:
        reference = _given(reference, terms.kl.column, "kl.coefficient")
        loss = loss + terms.kl.coefficient * kl_estimate(batch.logprob, reference, terms.kl.estimator)
    if batch.entropy is not None:
        metrics["entropy"] = measured(batch.entropy, batch.mask)
    if terms.entropy_coefficient:
        loss = loss - terms.entropy_coefficient * _given(batch.entropy, "entropy", "entropy_coefficient")
    if terms.value_coefficient:
        value = _given(batch.value, "value", "value_coefficient")
        target = _given(batch.value_target, "value_target", "value_coefficient")
        known = ~target.isnan()
        error = value_loss(value, target.nan_to_num(), batch.old_value, terms.value_clip) * known
        metrics["value_loss"] = measured(error, batch.mask & known)
        loss = loss + terms.value_coefficient * error
    return loss


def _given(column: Tensor | None, name: str, key: str) -> Tensor:
    if column is None:
        raise ValueError(f"objective.{key} is not 0, but the batch has no {name}")
    return column


def clean(batch: Batch) -> Batch:
    """The batch with 0 outside the mask, in every (R, L) field and every column.

    Entries there are undefined and may be nan; a sum over the masked loss alone would still have a nan gradient, since
    the gradient of a product with 0 is 0 * nan.
    """

    def kept(x: Tensor | None) -> Tensor | None:
        return None if x is None else torch.where(batch.mask, x, 0)

    def all_kept(x: Tensor) -> Tensor:
        return torch.where(batch.mask.view(*batch.mask.shape, *(1 for _ in x.shape[2:])), x, 0)

    columns = ("reference_logprob", "entropy", "value", "old_value", "value_target")
    return replace(
        batch,
        weight=torch.where(batch.mask, batch.weight, 0),
        advantage=torch.where(batch.mask, batch.advantage, 0),
        logprob=torch.where(batch.mask, batch.logprob, 0),
        old_logprob=torch.where(batch.mask, batch.old_logprob, 0),
        behaviour_logprob=torch.where(batch.mask, batch.behaviour_logprob, 0),
        **{name: kept(getattr(batch, name)) for name in columns},
        columns={name: all_kept(x) for name, x in batch.columns.items()},
    )


def aggregate_weights(
    mask: Bool[Tensor, "R L"],
    how: Aggregate,
    constant: int | None = None,
    episode: Int[Tensor, " R"] | None = None,
) -> Float[Tensor, "R L"]:
    """Each token's weight in the loss of a whole update.

        token:     1 / tokens of the update
        sequence:  1 / (rows * tokens of the row)
        constant:  1 / (rows * constant)

    Args:
        mask: trained tokens of every row of the update, not of one micro-batch. Rows without any do not count as rows.
        how: as above.
        constant: divisor of each row, in tokens; for ``constant`` alone.
        episode: which rows are one episode: they count as one row, of all their tokens. None: each is its own.
    Returns:
        Weights without unit, 0 outside the mask. They sum to 1, for ``constant`` to (mean length) / constant.
    Raises:
        ValueError: ``constant`` without a constant.
    Source:
        token: DAPO, arXiv:2503.14476, equation 12; sequence: GRPO, arXiv:2402.03300, equation 3; constant: Dr. GRPO,
        arXiv:2503.20783, section 3.2.
    """
    length = mask.sum(1, keepdim=True)
    if episode is None:
        rows = (length > 0).sum()
    else:
        rows = torch.tensor(len(episode[length[:, 0] > 0].unique()))
        length = sum_over(length, episode)
    match how:
        case "token":
            share = 1 / mask.sum().clamp(min=1).float()
        case "sequence":
            share = 1 / (rows * length).clamp(min=1).float()
        case "constant":
            if constant is None:
                raise ValueError("aggregate 'constant' needs a constant: the tokens that each row is divided by")
            share = 1 / (rows * constant).clamp(min=1).float()
    return mask * share


def token_ratio(
    logprob: Float[Tensor, "R L"], old_logprob: Float[Tensor, "R L"], limit: float = LOG_RATIO_LIMIT
) -> Float[Tensor, "R L"]:
    """pi / pi_old of each token, without unit; constant where its logarithm is beyond the limit (nats)."""
    return (logprob - old_logprob).clamp(-limit, limit).exp()


def mismatch(batch: Batch, drawn: Bool[Tensor, "R L"] | None = None) -> tuple[Tensor, Tensor]:
    """|log-probability of the learner - of the engine| in nats per token, of these tokens: all that the engine drew."""
    drawn = batch.mask & (batch.origin == int(Origin.POLICY)) if drawn is None else drawn
    difference = (batch.old_logprob.detach() - batch.behaviour_logprob).abs()
    return measured(difference, drawn & difference.isfinite())


def measured(value: Tensor, mask: Bool[Tensor, "R L"]) -> tuple[Tensor, Tensor]:
    """(sum, weight) of a quantity over the tokens of the mask, so that micro-batches add up."""
    value = torch.where(mask, value.detach().float(), 0)
    return value.sum(), mask.sum().float()


def ratio_metrics(ratio: Float[Tensor, "R L"], batch: Batch) -> Metrics:
    """The ratio that the loss uses, and KL(old || current) as k3, in nats per token."""
    return {
        "ratio": measured(ratio, batch.mask),
        "kl/old": measured(kl_estimate(batch.old_logprob, batch.logprob.detach(), "k3"), batch.mask),
    }


def of_rows(advantage: Float[Tensor, "R L"], mask: Bool[Tensor, "R L"]) -> Float[Tensor, " R"]:
    """Each row's advantage, the mean over its tokens."""
    return torch.where(mask, advantage, 0).sum(1) / mask.sum(1).clamp(min=1)


def value_loss(
    value: Float[Tensor, "R L"],
    value_target: Float[Tensor, "R L"],
    old_value: Float[Tensor, "R L"] | None = None,
    clip: float | None = None,
) -> Float[Tensor, "R L"]:
    """Half the squared error of each token's value; with a clip, the larger of it and that of the clipped value.

        (V - target)^2 / 2        max(that, (V_old + clip(V - V_old, -c, c) - target)^2 / 2)

    Args:
        value: of the current weights, in the reward's unit.
        value_target: its target, in the reward's unit.
        old_value: of the weights at the start of the step; needed with ``clip``.
        clip: maximum unpenalised change of a value in one step, in the reward's unit; None for no limit.
    Returns:
        Squared reward units per token.
    Raises:
        ValueError: a clip without old values.
    Source:
        PPO2 of OpenAI baselines; arXiv:2005.12729, section 3.
    """
    loss = (value - value_target).square() / 2
    if clip is None:
        return loss
    if old_value is None:
        raise ValueError("value_clip needs old_value: the values at the start of the step")
    near = old_value + (value - old_value).clamp(-clip, clip)
    return torch.maximum(loss, (near - value_target).square() / 2)


def require_verdicts(kind: str, forest: Forest) -> None:
    """For objectives that learn from verdicts within a group, and read no advantages.

    Raises:
        RecipeError: a trajectory has none.
    """
    if bool(forest.correct.isnan().any()):
        raise RecipeError(
            f"objective.kind: got '{kind}', but the grader gave no verdict on some trajectories; allowed: rewards "
            "that say correct or incorrect"
        )
