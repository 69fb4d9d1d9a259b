"""A stage's credit and objective, and what they need of the learner."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from lyceum.core.built import described, named, require_built
from lyceum.core.component import Component, kinds
from lyceum.core.forest import Forest
from lyceum.core.group import AGE
from lyceum.core.needs import Gift, able
from lyceum.core.own_components import is_own
from lyceum.core.settings import RewardSettings
from lyceum.core.types import Batch, Credit, Credited, Learner, Objective, Origin, StepMetrics
from lyceum.credit.base import CreditWithKL, kl_cost
from lyceum.credit.shares import row_shares
from lyceum.data.buffer.base import ratio_metrics
from lyceum.reward.base import part_names
from lyceum.reward.terms import terms
from lyceum.utils.errors import Diverged, RunError, nearest
from lyceum.utils.lazy_imports import Tensor, torch

if TYPE_CHECKING:
    from lyceum.training.stages.offline import Offline
    from lyceum.training.stages.online import Online


@dataclass(frozen=True)
class Method:
    """What turns a forest into a loss.

    Attributes:
        reward: the parts that have a weight, by name; none where shares of the advantages are not asked for.
    """

    stage: Online | Offline
    credit: Credit
    objective: Objective
    reward: Mapping[str, RewardSettings] = field(default_factory=dict)

    @classmethod
    def of(cls, stage: Online | Offline, reward: Sequence[RewardSettings] = ()) -> Method:
        """
        Args:
            reward: the recipe's, for a stage without one of its own.
        Raises:
            RecipeError: a component of the user's own built something else.
        """
        objective = require_built(stage.objective, stage.objective.build(), Objective)
        if is_own(type(stage.objective)):
            objective = cast(Objective, CheckedObjective(named(stage.objective), objective))
        given = reward if stage.reward is None else stage.reward
        parts = {name: part for name, part in zip(part_names(given), given, strict=True) if part.weight}
        return cls(stage, require_built(stage.credit, stage.credit.build(), Credit), objective, parts)

    @property
    def columns(self) -> frozenset[str]:
        """Token columns that are added to the forest before credit."""
        return self.objective.columns | self.credit.needs

    @property
    def needs(self) -> frozenset[str]:
        """All that the learner is built for, frozen models among it."""
        frozen = frozenset(name for reduction in self.objective.reductions for name in reduction.models)
        return self.columns | self.objective.needs | self.credit.measures | frozen

    def reads_reference(self, stage: Online | Offline) -> bool:
        """Whether something of the stage reads the reference."""
        names = self.needs.union(*(part.needed for part in stage.composition().components()))
        return bool(names & {"reference", "reference_logprob"})

    @cached_property
    def own_credit(self) -> bool:
        """Whether the credit is the user's own, so that what it returns is checked."""
        return is_own(type(self.stage.credit))

    @cached_property
    def sources(self) -> tuple[str, ...]:
        """What the advantages are added up from; empty where it is one thing."""
        found = self.stage.credit.sources(tuple(self.reward) if len(self.reward) > 1 else ("outcome",))
        return found if len(found) > 1 else ()

    def credited(self, forest: Forest) -> Credited:
        """A step's advantages, and each source's share of their variance among its metrics.

        Raises:
            RunError: some episode has several rows, and credit or objective takes each row for a trajectory.
        """
        if forest.episode is not None:
            self._require_episodes()
        credited = self._advantages(forest)
        found = credited.metrics
        own = [name for name in self.sources if f"{name}/share" not in found]
        if len(own) < 2 or not bool(credited.advantage.any()):
            return credited
        rows, penalty = forest.rows(), self.stage.credit
        outcome = terms(self.reward, forest.parts, forest.reward) if "outcome" not in own else {}
        sources = outcome or {"outcome": forest.reward}
        if "kl" in own and isinstance(penalty, CreditWithKL):
            sources["kl"] = -kl_cost(forest, rows, penalty.kl_in_reward).sum(1)
        mask = forest.trainable(rows)
        of_row = (credited.advantage * mask).sum(1) / mask.sum(1).clamp(min=1)
        known = mask.any(1) & forest.reward.isfinite()
        if forest.episode is not None:
            known &= torch.zeros_like(known).index_fill(0, forest.episode_rows, True)
        # Against a value head no rows are compared: shares are those before its values are subtracted.
        group = torch.zeros_like(forest.group) if "value-targets" in self.stage.credit.offers else forest.group
        whole = found.get("outcome/share", 1.0)
        shares = row_shares(of_row[known], {name: of[known] for name, of in sources.items()}, group[known])
        kept = {name: value for name, value in found.items() if name != "outcome/share" or not shares}
        return replace(credited, metrics=kept | {name: whole * share for name, share in shares.items()})

    def prepared(self, learner: Learner, forest: Forest) -> tuple[Forest, Credited]:
        """A step's forest with the columns that its loss reads, and its advantages; where the stage masks truncated
        rows, they have been compared with the others, and are not trained."""
        forest = learner.annotate(forest, self.columns | self._of_start(forest))
        credited = self.credited(forest)
        forest = self.stage.with_ratios(forest)
        return forest.without_truncated() if self.stage.mask_truncated else forest, credited

    def _of_start(self, forest: Forest) -> frozenset[str]:
        """Log-probabilities under the step's first weights, where those that drew the tokens do not replace all."""
        taught = bool((forest.origin == int(Origin.TEACHER)).any())
        read = self.stage.off_policy and (taught or "drift" in self.needs)
        return frozenset({"old_logprob"}) if AGE in forest.columns or read else frozenset()

    def update(self, learner: Learner, forest: Forest) -> tuple[Credited, StepMetrics]:
        """A step's advantages, and the metrics of its updates."""
        with self.learning():
            forest, credited = self.prepared(learner, forest)
            metrics: StepMetrics = learner.step(forest, credited, self.objective)
            if AGE in forest.columns:
                metrics |= ratio_metrics(forest)
            self.credit.observe(forest, metrics)
            self.objective.observe(metrics)
        if forest.untrained is not None:
            metrics |= {"rows/masked": float(forest.untrained.sum())}
        return credited, metrics | {f"credit/{name}": value for name, value in credited.metrics.items()}

    def _require_episodes(self) -> None:
        """Here for recorded trees, whose episodes no recipe tells of."""
        asked: tuple[tuple[Component, Gift], ...] = (
            (self.stage.credit, "episode-advantages"),
            (self.stage.objective, "episode-weights"),
        )
        for part, gift in asked:
            if gift not in part.offers:
                raise RunError(
                    f"{part.slot}.kind: got {part.kind!r}, which takes each row for a trajectory, and some episodes of "
                    "the step have several; "
                    f"allowed: {part.slot}.kind {' or '.join(map(repr, able(kinds(part.slot), gift)))}"
                )

    def _advantages(self, forest: Forest) -> Credited:
        """Those of a credit of the user's own are checked.

        Raises:
            Diverged: one is not finite.
            RunError: they are not laid out as the forest's rows.
        """
        if not self.own_credit:
            return self.credit(forest)
        settings = self.stage.credit
        try:
            credited = self.credit(forest)
        except RunError as error:  # of lyceum's own helpers, which do not know for whom they work
            first, *rest = error.lines
            raise type(error)([f"{named(settings)}: {first.removeprefix('credit: ')}", *rest]) from error
        if not isinstance(credited, Credited):
            raise RunError(
                f"{named(settings)} returned {described(credited)}; allowed: lyceum.core.types.Credited(advantage)"
            )
        shape = forest.rows().index.shape
        tensors = {"advantage": credited.advantage, "value_target": credited.value_target, **credited.columns}
        for name, value in tensors.items():
            if value is None and name == "value_target":
                continue
            if not isinstance(value, Tensor) or value.shape != shape or not value.is_floating_point():
                raise RunError(
                    f"{named(settings)} returned {name}: {described(value)}; allowed: a tensor of floats of shape "
                    f"{tuple(shape)}, laid out as forest.rows()"
                )
        if not bool(credited.advantage.isfinite().all()):
            raise Diverged(f"{named(settings)} returned an advantage that is nan or infinite; allowed: finite ones")
        return credited

    @contextmanager
    def learning(self) -> Iterator[None]:
        """Say of a loss that was not finite whose it is, where it is of the user's own."""
        try:
            yield
        except Diverged as error:
            if isinstance(self.objective, CheckedObjective) and self.objective.not_finite:
                raise Diverged([*error.lines, self.objective.not_finite]) from error
            raise


class CheckedObjective:
    """An objective of the user's own, whose loss is looked at before its gradient is taken.

    Attributes:
        not_finite: what to say of a loss that was not finite, of log-probabilities that were; empty without one.
    """

    def __init__(self, name: str, objective: Objective) -> None:
        self.name, self.objective = name, objective
        self.not_finite = ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.objective, name)

    def __call__(self, batch: Batch) -> tuple[Tensor, Mapping[str, Any]]:
        try:
            given: Any = self.objective(batch)
        except RunError as error:  # of lyceum's own helpers, which do not know for whom they work
            first, *rest = error.lines
            raise type(error)([f"{self.name}: {first.removeprefix('objective: ')}", *rest]) from error
        except AttributeError as error:
            if not isinstance(error.obj, Batch):
                raise
            name, names = str(error.name), [field.name for field in fields(Batch)]
            raise RunError(
                f"{self.name} reads batch.{name}{nearest(name, names)}; allowed: {', '.join(names)}"
            ) from error
        if not isinstance(given, tuple) or len(given) != 2 or not isinstance(given[1], Mapping):
            raise RunError(
                f"{self.name} returned {described(given)}; allowed: (loss, metrics), metrics a dict, such as "
                "(loss, {})"
            )
        loss, metrics = given
        if not isinstance(loss, Tensor) or loss.dim():
            raise RunError(
                f"{self.name} returned {described(loss)} as its loss; allowed: one number, such as "
                "(batch.weight * token_loss).sum()"
            )
        if not loss.requires_grad:
            raise RunError(
                f"{self.name} returned a loss without a gradient; allowed: one that is computed from batch.logprob"
            )
        for name, value in metrics.items():
            if not isinstance(value, tuple) or len(value) != 2:
                raise RunError(
                    f"{self.name} returned metric {name!r}: {described(value)}; allowed: (sum, weight), logged as "
                    "their ratio"
                )
        if not self.not_finite and not bool(loss.detach().isfinite()) and bool(batch.logprob.detach().isfinite().all()):
            self.not_finite = (
                f"the first loss that was not finite is {float(loss.detach()):g}, which {self.name} computed from "
                "log-probabilities that are: look there for a division by 0, a logarithm of 0 or a large exponential"
            )
        return loss, metrics
