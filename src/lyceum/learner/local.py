"""The learner in one process: forests with advantages in, new weights out."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from typing import Annotated, Any, ClassVar, Literal, Self, cast, get_args

from jaxtyping import Float, Int
from pydantic import Field

from lyceum.core.component import BatchTokens, require_keys
from lyceum.core.forest import EXPERTS, Forest
from lyceum.core.group import START_LOGPROB
from lyceum.core.needs import Need
from lyceum.core.settings import Composition, LearnerSettings, Precision
from lyceum.core.types import (
    Batch,
    Credited,
    FrozenName,
    Gradients,
    Kept,
    Objective,
    Origin,
    Reduction,
    Scored,
    StepPlan,
)
from lyceum.learner._experts import Experts, Routed
from lyceum.learner._forward import (
    Layout,
    RowOutputs,
    choose_layout,
    coupled_micro_batches,
    joined,
    micro_batches,
    packed_hidden,
    row_outputs,
    send_back,
    still_needed,
)
from lyceum.models.frozen import FrozenModel, FrozenSettings, SlowAverage, Soup, copy_values, freeze
from lyceum.models.packed_paths import path_logprobs
from lyceum.models.policy import Policy
from lyceum.models.routers import Routers, routed
from lyceum.models.tree_states import recomputed
from lyceum.objective.base import MISMATCH, mismatch
from lyceum.utils.errors import Diverged, RecipeError
from lyceum.utils.lazy_imports import Tensor, nn, torch, transformers

log = logging.getLogger(__name__)


ADVICE = "lower learner.lr, learner.max_grad_norm or a coefficient of the loss, and resume from the last checkpoint"

AUTHORS = (Origin.POLICY, Origin.TEACHER)
"""Whose tokens have columns."""

NAMED = frozenset({"old_logprob", "reference_logprob", "old_value", "grafted", EXPERTS})
"""Columns of a forest that are fields of a batch, or the learner's alone; it has all others by name."""

EXCLUDES = 1e-4
"""Smallest probability (nearly: -log of what is left) that a constraint must exclude at a token to count as acting."""

Decay = Annotated[float, Field(ge=0, lt=1)]


class LocalConfig(LearnerSettings):
    """AdamW on one device, in this process."""

    requires: ClassVar = (Need("routing", when=lambda own: own.replay_routing),)

    kind: Literal["local"] = "local"
    optimizer: Literal["adamw", "adamw-8bit"] = "adamw"
    """``adamw-8bit`` keeps each moment in 8 bits with a scale for every 256 numbers (bitsandbytes, arXiv:2110.02861):
    2 bytes of a weight's 8 in float32."""
    betas: tuple[Decay, Decay] = (0.9, 0.999)
    """AdamW's decay rates of the first and second moment (no unit)."""
    eps: float = Field(default=1e-8, gt=0)
    """AdamW's epsilon, added to the root of the second moment."""
    weight_decay: float = Field(default=0.0, ge=0)
    """Decoupled weight decay; of matrices only, not of norms and biases."""
    schedule: Literal["constant", "cosine", "linear"] = "constant"
    """Learning-rate schedule after the warm-up, over the stage's steps."""
    warmup_steps: int = Field(default=0, ge=0)
    """Number of steps over which the learning rate rises from 0."""
    final_lr_share: float = Field(default=0.0, ge=0, le=1)
    """Final learning rate of cosine and linear schedules, as a fraction of the peak."""
    max_grad_norm: float = Field(default=1.0, gt=0)
    """Maximum gradient norm; larger gradients are scaled down to it."""
    updates_per_step: int = Field(default=1, ge=1)
    """Optimiser updates per step: its forest is split by whole trees, into at most one update per tree. 1 is
    on-policy."""
    epochs: int = Field(default=1, ge=1)
    """Number of passes over each step's forest."""
    micro_batch_tokens: BatchTokens = 4096
    """Maximum unique tokens per micro-batch; affects memory, not the gradient."""
    layout: Literal["auto", "tree", "rows"] = "auto"
    """Layout of the forward pass: ``tree`` (shared tokens once) or ``rows`` (padded); auto takes the cheaper."""
    attention: Literal["chains", "flex"] = "chains"
    """How tokens of a tree attend to their paths: ``chains``, by torch's fused attention over gathered keys, with masks
    where branches begin; ``flex``, by its ``flex_attention``, whose masks are of blocks: less memory on long rows, GPUs
    alone, and compiled at the first forward of each of a few sizes."""
    autocast: Literal["none", "bfloat16"] = "none"
    """Compute forward and backward in bfloat16; weights and optimiser keep their dtype."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass instead of storing them."""
    router_aux_loss_coef: Annotated[float, Field(ge=0)] | Literal["model"] | None = None
    """Coefficient of the load-balancing loss of a mixture of experts, over all tokens of each update's rows; ``model``:
    its configuration's. 0 only measures how the load is spread (``experts/...``); null: nobody looks."""
    replay_routing: bool = False
    """Send each token to the experts that the engine chose as it sampled (rollout routing replay, R3,
    arXiv:2510.11370); gradients go through their weights. Tokens of which nothing is recorded go where the router sends
    them. Frozen models route by themselves."""
    max_bad_steps: int = Field(default=5, ge=1)
    """Maximum consecutive updates with a loss or gradient that is not finite, after which the run stops; such an update
    is skipped. It also stops where that is all of a stage's updates, or where a weight is no longer finite."""

    @property
    def follows_steps(self) -> bool:
        return self.schedule != "constant"

    @property
    def precision(self) -> Precision | None:
        return None if self.autocast == "none" else self.autocast

    def check(self, stage: Composition) -> list[str]:
        lines = super().check(stage)
        if self.replay_routing and stage.rollout is None:
            lines.append("learner.replay_routing: got true in a stage that samples nothing; allowed: false")
        return lines

    def check_installed(self) -> None:
        if self.optimizer != "adamw" and find_spec("bitsandbytes") is None:
            raise RecipeError(
                f"learner.optimizer: got {self.optimizer!r}, which needs bitsandbytes: pip install "
                "'bitsandbytes>=0.50'; or leave it out (model.lora=true trains few weights, whose moments are small)"
            )

    def layouts(self) -> Mapping[str, Self]:
        return {layout: self.model_copy(update={"layout": layout}) for layout in get_args(Layout)}

    def build(
        self,
        policy: Policy,
        *,
        total_steps: int,
        needs: frozenset[str],
        frozen: FrozenSettings | None = None,
    ) -> LocalLearner:
        return LocalLearner(policy, self, total_steps=total_steps, needs=needs, frozen=frozen)


def learning_rate(update: int, config: LocalConfig, total_steps: int) -> float:
    """Learning rate of an update (from 0): linear warm-up, then constant, cosine or linear to the final fraction.

    Warm-up and total are in steps, of ``epochs * updates_per_step`` updates each.
    """
    of_step = config.epochs * config.updates_per_step
    warmup, total = config.warmup_steps * of_step, total_steps * of_step
    if update < warmup:
        return config.lr * (update + 1) / warmup
    if config.schedule == "constant":
        return config.lr
    done = min(1.0, (update - warmup) / max(1, total - warmup))
    left = 0.5 * (1 + math.cos(math.pi * done)) if config.schedule == "cosine" else 1 - done
    return config.lr * (config.final_lr_share + (1 - config.final_lr_share) * left)


class LocalLearner:
    """Implements the learner's side of the loop: ``annotate`` a forest, ``step`` on it.

    Args:
        policy: trained in place.
        total_steps: number of steps of the stage, for the learning-rate schedule.
        needs: what objective and credit will request; a frozen model or a value head is made only if they do, and the
            drift of each step is measured.
        frozen: the stage's settings of the frozen models; None: it has none of its own.
    """

    def __init__(
        self,
        policy: Policy,
        config: LocalConfig,
        *,
        total_steps: int,
        needs: frozenset[str],
        frozen: FrozenSettings | None = None,
    ) -> None:
        if policy.by_rows is not None and not policy.trains_over_trees and config.layout == "tree":
            raise RecipeError(
                f"learner.layout: got 'tree', but the model runs over rows, since {policy.by_rows.why}; allowed: auto, "
                "rows"
            )
        self.policy, self.config, self.total_steps = policy, config, total_steps
        if config.attention == "flex":
            _check_flex(policy)
        policy.flex = config.attention == "flex"
        self.experts = self._make_experts()
        self.measures_drift = "drift" in needs
        self.value_head = self._make_value_head() if needs & {"value", "old_value"} else None
        names: tuple[FrozenName, ...] = get_args(FrozenName)
        asked: frozenset[FrozenName] = frozenset(n for n in names if needs & {n, f"{n}_logprob"})
        self.frozen = self._freeze(asked, frozen or FrozenSettings())
        self.average = cast(SlowAverage | None, self.frozen.get("average"))
        parameters = [p for p in policy.module.parameters() if p.requires_grad]
        parameters += list(self.value_head.parameters()) if self.value_head else []
        self.parameters = parameters
        half = {p.dtype for p in parameters} & {torch.bfloat16, torch.float16}
        if half:
            log.warning(
                "model.dtype: weights are trained in %s, which rounds small updates away (lr is %g); to compute in "
                "bfloat16 and train in float32: model.dtype=float32 learner.autocast=bfloat16",
                ", ".join(sorted(str(dtype).removeprefix("torch.") for dtype in half)),
                config.lr,
            )
        self.optimizer = self._make_optimizer()
        self.updates = 0
        self.bad_steps = 0
        self.skipped_steps = 0
        if config.gradient_checkpointing:
            # Its name before transformers 5.23, which warns about it.
            old: Any = policy.causal.gradient_checkpointing_enable
            getattr(policy.causal, "activation_checkpointing_enable", old)(
                {"use_reentrant": False, "context_fn": recomputed}
            )
            policy.causal.enable_input_require_grads()

    def _make_optimizer(self) -> torch.optim.Optimizer:
        config = self.config
        decayed = [p for p in self.parameters if p.dim() >= 2]
        plain = [p for p in self.parameters if p.dim() < 2]
        groups = [{"params": decayed, "weight_decay": config.weight_decay}, {"params": plain, "weight_decay": 0.0}]
        if config.optimizer == "adamw":
            return torch.optim.AdamW(groups, lr=config.lr, betas=config.betas, eps=config.eps, fused=True)
        from bitsandbytes.optim import AdamW8bit  # pyright: ignore[reportMissingImports]

        return AdamW8bit(groups, lr=config.lr, betas=config.betas, eps=config.eps)

    def _make_experts(self) -> Experts | None:
        coefficient, replay = self.config.router_aux_loss_coef, self.config.replay_routing
        if coefficient is None and not replay:
            return None
        got = "learner.replay_routing: got true" if replay else f"learner.router_aux_loss_coef: got {coefficient!r}"
        routers = Routers.of(self.policy, got)
        if coefficient == "model":
            coefficient = routers.coefficient
            if coefficient is None:
                raise RecipeError(f"{got}, but the model's configuration has none; allowed: a number, or null")
        if coefficient and not routers.balanced:
            raise RecipeError(
                f"{got}, but the family of {type(self.policy.causal).__name__} has no load-balancing loss; allowed: 0, "
                "or null"
            )
        return Experts(routers, coefficient=coefficient or 0.0, replay=replay)

    def _make_value_head(self) -> nn.Linear:
        width = self.policy.output.weight.shape[1]
        head = nn.Linear(width, 1, device=self.policy.device)
        # Zero: the first advantages are then the rewards themselves, and no random initialisation needs a seed.
        nn.init.zeros_(head.weight)
        nn.init.zeros_(head.bias)
        return head

    def _freeze(self, names: frozenset[FrozenName], of: FrozenSettings) -> dict[FrozenName, FrozenModel]:
        return freeze(self.policy, names, of)

    # Before credit -------------------------------------------------------------------------------------------------

    def annotate(self, forest: Forest, needs: frozenset[str], reductions: Sequence[Reduction] = ()) -> Forest:
        """Add the token columns that credit or objective need, ``MODEL_NAME`` each.

        Models: ``old`` (this step's initial weights) and the frozen ones. Names: ``logprob``, ``entropy`` (nats),
        ``value`` (reward unit, ``old`` alone). Tokens that neither the policy nor a teacher wrote: 0.

        Args:
            reductions: their results under the initial weights are added too.
        Raises:
            Diverged: one of them is nan.
        """
        columns: dict[str, Tensor] = {}
        of_old = _of_model("old", needs)
        if of_old or reductions:
            found = self._columns(forest, needs=of_old, reductions=reductions)
            columns |= {f"old_{name}": column for name, column in found.items()}
        for model in self.frozen:
            if of_model := _of_model(model, needs):
                found = self._columns(forest, model, needs=of_model)
                columns |= {f"{model}_{name}": column for name, column in found.items()}
        if wrong := [name for name, column in columns.items() if bool(column.isnan().any())]:
            raise Diverged(f"diverged at step {self._step}: {', '.join(wrong)} of the weights is nan; {ADVICE}")
        return forest.with_columns(**columns)

    def _columns(
        self,
        forest: Forest,
        model: FrozenName | None = None,
        *,
        needs: frozenset[str],
        reductions: Sequence[Reduction] = (),
    ) -> dict[str, Tensor]:
        """(T,) or (T, n) of each name that is needed and of each result of the reductions.

        Args:
            model: a frozen one; None is the policy.
        """
        columns: dict[str, Tensor] = {}
        index = forest.rows().index
        computed = forest.trainable(forest.rows(), AUTHORS)
        for chosen, out in self._forwards(forest, model, needs, reductions):
            wanted = computed[chosen][:, : out.logprob.shape[1]]
            # A part's rows are at most as long as the forest's: positions agree from the left.
            places = index[chosen][:, : wanted.shape[1]][wanted]
            named = {"logprob": out.logprob, "entropy": out.entropy, "value": out.value}
            found = {name: x for name, x in named.items() if x is not None and name in needs} | dict(out.columns)
            for name, x in found.items():
                column = columns.setdefault(name, torch.zeros(forest.n_tokens, *x.shape[2:]))
                column[places] = x.cpu()[wanted]
        return columns

    def score_under(self, model: FrozenName, paths: Sequence[Scored]) -> list[list[float]]:
        if model not in self.frozen:
            raise RuntimeError(f"log-probabilities under the model {model!r} were asked for, which the stage has not")
        with self.frozen[model].loaded() as policy, self._autocast():
            return path_logprobs(policy, paths, self.config.micro_batch_tokens)

    def _forwards(
        self, forest: Forest, model: FrozenName | None, needs: frozenset[str], reductions: Sequence[Reduction]
    ) -> Iterator[tuple[Int[Tensor, " m"], RowOutputs]]:
        """All rows, some at a time, and their outputs under a model, without gradient."""
        with nullcontext(self.policy) if model is None else self.frozen[model].loaded() as policy:
            rows, budget = torch.arange(forest.n_rows), self.config.micro_batch_tokens
            for chosen in micro_batches(forest, rows, budget, shared=self._shares):
                with torch.no_grad():
                    out = self._row_outputs(policy, forest.select(chosen), AUTHORS, needs, reductions)
                yield chosen, out

    # The step ------------------------------------------------------------------------------------------------------

    def step(self, forest: Forest, credited: Credited, objective: Objective) -> dict[str, float]:
        """Update the weights on one step's forest; returns metrics by name."""
        started = time.perf_counter()
        old = [reduction for reduction in objective.reductions if reduction.old]
        several = self.config.updates_per_step > 1 or self.config.epochs > 1
        if self.measures_drift or (several and (old or "old_logprob" in objective.needs)):
            needed = frozenset({"old_logprob"}) - set(forest.columns)
            forest = self.annotate(forest, needed, old if several else ())
        ahead = objective.look_ahead(partial(self.gradients, forest, credited))
        total = MicroBatchSums()
        for epoch in range(self.config.epochs):
            updates = self._update_rows(forest, epoch)
            plan = objective.plan(forest, credited, updates)
            for rows in updates:
                self._update(forest, rows, plan, credited, objective, total)
            for name, count in plan.counts.items() if epoch == 0 else ():
                total.count(name, count)
        if self.measures_drift:
            total.add("drift", self._drift(forest), 1)
        metrics = {**total.means(), **ahead}
        if self.average is not None:
            metrics |= self.average.observe()
        if isinstance(soup := self.frozen.get("reference"), Soup):
            metrics["reference/distance"] = soup.distance
        metrics["lr"] = self.optimizer.param_groups[0]["lr"]
        metrics["seconds/train"] = time.perf_counter() - started
        return metrics

    def _drift(self, forest: Forest) -> float:
        """Mean |change| of the policy's tokens' log-probabilities since the step began, in nats."""
        now = self._columns(forest, needs=frozenset({"logprob"}))["logprob"]
        rows = forest.rows()
        start = forest.columns.get(START_LOGPROB, forest.columns["old_logprob"])
        change = rows.gather((now - start).abs())
        return float(change[forest.trainable(rows)].mean().nan_to_num())

    def _update_rows(self, forest: Forest, epoch: int) -> list[Int[Tensor, " r"]]:
        """The rows of each update: whole trees, in a counter-based random order where there are several updates."""
        if self.config.updates_per_step == 1:
            return [torch.arange(forest.n_rows)]
        tree = forest.tree[forest.leaf]
        trees = tree.unique()
        order = trees[torch.randperm(len(trees), generator=torch.Generator().manual_seed(self.updates + epoch))]
        # tensor_split, not chunk, which splits 5 trees into 3 parts where 4 are requested.
        parts = order.tensor_split(self.config.updates_per_step)
        return [torch.isin(tree, part).nonzero().squeeze(1) for part in parts if len(part)]

    def _update(
        self,
        forest: Forest,
        rows: Int[Tensor, " r"],
        plan: StepPlan,
        credited: Credited,
        objective: Objective,
        total: MicroBatchSums,
    ) -> None:
        lr = learning_rate(self.updates, self.config, self.total_steps)
        for parameter_group in self.optimizer.param_groups:
            parameter_group["lr"] = lr
        loss, learnt = self._backward(forest, rows, plan, credited, objective, total)
        norm = self._clip() if learnt else 0.0
        if math.isfinite(loss) and math.isfinite(norm):
            self.bad_steps = 0
            self._require_finite(self._apply())
        else:
            self._bad_step(loss, norm)
        self.updates += 1
        total.add("loss", loss, 1)
        total.add("grad_norm", norm, 1)
        total.add("rows_without_gradient", 1 - learnt / max(1, len(rows)), 1)

    def _clip(self) -> float:
        """Clip the gradients; returns their norm before."""
        return clip_gradients(self.parameters, self.config.max_grad_norm)

    def _apply(self) -> float:
        """Change the weights by the gradients; returns the largest magnitude; nan or inf where one of them is."""
        self.optimizer.step()
        if self.config.optimizer != "adamw":
            # Its kernels change weights without autograd's knowledge, whose versions engines look at.
            torch.autograd.graph.increment_version(self.parameters)
        return largest_weight(self.parameters)

    def gradients(self, forest: Forest, credited: Credited, objective: Objective) -> Gradients:
        """Those of the whole forest in one batch, at the current weights, which stay as they are."""
        total = MicroBatchSums(torch.zeros(credited.advantage.shape))
        rows = torch.arange(forest.n_rows)
        plan = objective.plan(forest, credited, [rows])
        loss, _ = self._backward(forest, rows, plan, credited, objective, total)
        weights = self._take_gradients()
        assert total.coefficient is not None
        return Gradients(loss, total.coefficient, weights, total.means())

    def _take_gradients(self) -> list[Tensor]:
        """Those of the policy's trained weights, which are left without any."""
        trained = [p for p in self.policy.module.parameters() if p.requires_grad]
        weights = [torch.zeros_like(p) if p.grad is None else p.grad for p in trained]
        self._zero()
        return weights

    def _zero(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)

    def _backward(
        self,
        forest: Forest,
        rows: Int[Tensor, " r"],
        plan: StepPlan,
        credited: Credited,
        objective: Objective,
        total: MicroBatchSums,
    ) -> tuple[float, int]:
        """Leave an update's gradients on the parameters; returns its loss and the number of rows that have one."""
        learnt = rows[plan.trained[rows]]
        self._zero()
        self._train_mode(True)
        batches = self._micro_batches(forest, learnt, plan)
        if self.experts is not None:
            batches = list(batches)
            parts = [forest.select(piece) for pieces in batches for piece in pieces]
            self.experts.begin(int(forest.row_length[learnt].sum()), parts, self._routed)
        losses = [self._micro_batch(forest, pieces, plan, credited, objective, total) for pieces in batches]
        self._train_mode(False)
        for name, value in {} if self.experts is None or not losses else self.experts.metrics().items():
            total.add(name, value, 1)
        return sum(read(losses), 0.0), len(learnt)

    def _routed(self, part: Forest) -> Routed:
        """A forward of some rows, for what their routers do."""
        assert self.experts is not None
        made = self.experts.of(part, self._layout(part), self.policy.device)
        with torch.no_grad(), self._autocast(), routed(made.routing):
            packed_hidden(self.policy, part, self._layout(part))
        return made

    def _micro_batches(
        self, forest: Forest, rows: Int[Tensor, " r"], plan: StepPlan
    ) -> Iterable[Sequence[Int[Tensor, " m"]]]:
        if plan.couple is not None:
            return coupled_micro_batches(forest, rows, plan.couple, self.config.micro_batch_tokens, shared=self._shares)
        return ([chosen] for chosen in micro_batches(forest, rows, self.config.micro_batch_tokens, shared=self._shares))

    def _micro_batch(
        self,
        forest: Forest,
        pieces: Sequence[Int[Tensor, " m"]],
        plan: StepPlan,
        credited: Credited,
        objective: Objective,
        total: MicroBatchSums,
    ) -> Float[Tensor, ""]:
        """Add the gradient of a micro-batch; returns its loss, which nothing has waited for."""
        chosen = torch.cat(list(pieces))
        whole = forest.select(chosen)
        out, back = self._forward(forest, whole, pieces, objective, total)
        batch = self._batch(whole, chosen, out, plan, credited, objective)
        loss, metrics = objective(batch)
        if total.coefficient is not None:
            out.logprob.retain_grad()
        (loss if out.auxiliary is None else loss + out.auxiliary).backward()
        if total.coefficient is not None and out.logprob.grad is not None:  # None where the loss does not depend on it
            gradient = torch.where(batch.mask, out.logprob.grad.float(), 0)
            total.coefficient[chosen, : gradient.shape[1]] = gradient.cpu()
        back()
        for name, (value, share) in ({MISMATCH: mismatch(batch)} | metrics).items():
            total.add(name, value, share)
        return loss.detach()

    def _forward(
        self,
        forest: Forest,
        whole: Forest,
        pieces: Sequence[Int[Tensor, " m"]],
        objective: Objective,
        total: MicroBatchSums,
    ) -> tuple[RowOutputs, Callable[[], None]]:
        """Outputs of a micro-batch, ``whole``, and what sends the gradient that a loss leaves on them to the weights.

        One of several pieces, a couple that is too large, takes two passes: the loss's gradient by the outputs of all
        pieces, computed without their graph, then goes back through one piece after another.
        """
        if len(pieces) == 1:
            return self._outputs(whole, objective, total), lambda: None
        parts = [forest.select(piece) for piece in pieces]
        with torch.no_grad():
            out = joined(self._outputs(part, objective) for part in parts)
        total.count("rows_in_two_passes", sum(map(len, pieces)))

        def back() -> None:
            first = 0
            for part in parts:
                send_back(self._outputs(part, objective, total), out, first)
                first += part.n_rows

        return out, back

    def _outputs(self, part: Forest, objective: Objective, total: MicroBatchSums | None = None) -> RowOutputs:
        """Forward some rows; ``total`` counts their tokens as trained."""
        if total is not None:
            self._count(part, total)
        reductions = still_needed(objective.reductions, part)
        out = self._row_outputs(self.policy, part, objective.origins, objective.needs, reductions)
        if out.excluded is not None and total is not None:
            row, position = part.trainable(part.rows(), objective.origins).nonzero(as_tuple=True)
            excluded = out.excluded[row.to(out.excluded.device), position.to(out.excluded.device)]
            total.add("constraint/nats", excluded.sum(), len(excluded))
            total.add("constraint/acted", (excluded > EXCLUDES).sum(), len(excluded))
        return out

    def _count(self, part: Forest, total: MicroBatchSums) -> None:
        of_rows = part.rows().index.numel()
        total.count("tokens_trained", part.n_tokens if self._layout(part) == "tree" else of_rows)
        total.count("row_tokens_trained", int(part.row_length.sum()))

    def _row_outputs(
        self,
        policy: Policy,
        part: Forest,
        origins: tuple[Origin, ...],
        needs: frozenset[str],
        reductions: Sequence[Reduction],
    ) -> RowOutputs:
        layout = self._layout(part)
        made = self.experts.of(part, layout, policy.device) if self.experts and policy is self.policy else None
        with self._autocast():
            out = row_outputs(
                policy,
                part,
                part.trainable(part.rows(), origins),
                layout=layout,
                needs=needs,
                value_head=self.value_head,
                reductions=reductions,
                frozen=self.frozen,
                routing=None if made is None else made.routing,
            )
        if self.experts is None or made is None or not torch.is_grad_enabled():
            return out
        return replace(out, auxiliary=self.experts.auxiliary(made))

    def _batch(
        self,
        part: Forest,
        chosen: Int[Tensor, " m"],
        out: RowOutputs,
        plan: StepPlan,
        credited: Credited,
        objective: Objective,
    ) -> Batch:
        """Rows ``chosen`` of the step, which ``part`` holds, as the objective sees them."""
        rows, device = part.rows(), self.policy.device
        wanted = part.trainable(rows, objective.origins)
        width = wanted.shape[1]

        def cut(x: Tensor) -> Tensor:
            return x[chosen][:, :width].to(device)

        def column(name: str) -> Tensor | None:
            return rows.gather(part.columns[name]).to(device) if name in part.columns else None

        def of_rows(x: Tensor | None) -> Tensor | None:
            return None if x is None else x[chosen].to(device)

        old_logprob = column("old_logprob")
        old = {f"old_{name}": x.detach() for name, x in out.columns.items()}  # equal in a step's first update
        others = {name: rows.gather(x).to(device) for name, x in part.columns.items() if name not in NAMED}
        return Batch(
            mask=wanted.to(device),
            weight=cut(plan.weight),
            advantage=cut(credited.advantage),
            logprob=out.logprob,
            old_logprob=out.logprob.detach() if old_logprob is None else old_logprob,
            behaviour_logprob=rows.gather(part.behaviour_logprob).to(device),
            group=part.group.to(device),
            origin=rows.gather(part.origin, fill=int(Origin.PROMPT)).to(device),
            reference_logprob=column("reference_logprob"),
            entropy=out.entropy,
            value=out.value,
            old_value=column("old_value"),
            value_target=None if credited.value_target is None else cut(credited.value_target),
            grafted=column("grafted"),
            couple=of_rows(plan.couple),
            label=of_rows(plan.label),
            thresholds=plan.thresholds,
            columns={**out.columns, **old, **others, **{name: cut(x) for name, x in credited.columns.items()}},
        )

    @property
    def _step(self) -> int:
        """The stage's current step, from 1."""
        return self.updates // (self.config.epochs * self.config.updates_per_step) + 1

    def _require_finite(self, largest: float) -> None:
        """Raise Diverged at the update after which a weight is not finite, before it is sampled under or saved."""
        if not math.isfinite(largest):
            raise Diverged(
                f"diverged at step {self._step}: a weight became {largest:g} (learner.lr is {self.config.lr:g}, "
                f"weight_decay {self.config.weight_decay:g}, eps {self.config.eps:g}); {ADVICE}"
            )

    def _bad_step(self, loss: float, norm: float) -> None:
        self.skipped_steps += 1
        self.bad_steps += 1
        if self.bad_steps >= self.config.max_bad_steps:
            raise Diverged(
                f"diverged at step {self._step}: loss or gradient was not finite in {self.bad_steps} updates in a row; "
                f"{ADVICE}. The last loss is {loss:g}, its gradient's norm {norm:g}"
            )

    def require_learnt(self) -> None:
        """Raise Diverged where every update so far was skipped: such a stage must not end as if it had trained."""
        if self.updates and self.skipped_steps == self.updates:
            raise Diverged(
                f"nothing was learnt: loss or gradient was not finite in all of the {self.updates} updates; {ADVICE}"
            )

    @property
    def _shares(self) -> bool:
        """Whether what rows share is computed once."""
        return self.policy.trains_over_trees

    def _layout(self, part: Forest) -> Layout:
        if not self._shares:
            return "rows"
        return choose_layout(part) if self.config.layout == "auto" else self.config.layout

    def _autocast(self) -> AbstractContextManager[Any]:
        if self.config.autocast == "none":
            return nullcontext()
        return torch.autocast(self.policy.device.type, dtype=torch.bfloat16)

    def _train_mode(self, on: bool) -> None:
        # transformers recomputes activations only in a layer's training mode. Modules inside the layers stay in
        # evaluation mode: with dropout, the trained policy would differ from the one that sampled.
        if self.config.gradient_checkpointing:
            for module in self.policy.module.modules():
                if isinstance(module, transformers.GradientCheckpointingLayer):
                    module.training = on

    # State ---------------------------------------------------------------------------------------------------------

    def weights(self) -> nn.Module:
        """What an engine loads: in process the module itself, so that nothing is copied."""
        return self.policy.module

    def models(self, names: Collection[Kept] = get_args(Kept)) -> dict[str, Any]:
        state: dict[str, Any] = dict.fromkeys(get_args(Kept))
        if "parameters" in names:
            state["parameters"] = [p.detach() for p in self.parameters]
        if "reference" in names and "reference" in self.frozen:
            state["reference"] = self.frozen["reference"].state()
        if "average" in names and self.average is not None:
            state["average"] = self.average.state()
        return state

    def state_dict(self) -> dict[str, Any]:
        models = self.models()
        return {
            "parameters": models["parameters"],
            "optimizer": self.optimizer.state_dict(),
            "updates": self.updates,
            "bad_steps": self.bad_steps,
            "skipped_steps": self.skipped_steps,
            "reference": models["reference"],
            "average": models["average"],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        require_keys("learner", given=state, needed=self.state_dict())
        if len(state["parameters"]) != len(self.parameters):
            raise ValueError(f"learner: {len(state['parameters'])} tensors saved, {len(self.parameters)} are trained")
        self.load_weights(state)
        self._load_optimizer(state["optimizer"])
        self.updates = int(state["updates"])
        self.bad_steps, self.skipped_steps = int(state["bad_steps"]), int(state["skipped_steps"])

    def _load_optimizer(self, state: Mapping[str, Any]) -> None:
        self.optimizer.load_state_dict(dict(state))

    def load_weights(self, state: Mapping[str, Any]) -> None:
        for parameter, saved in zip(self.parameters, state["parameters"] or (), strict=False):  # a head's are the last
            copy_values([saved], [parameter])
        if "reference" in self.frozen and state["reference"] is not None:
            self.frozen["reference"].load_state(state["reference"])
        if self.average is not None and state["average"] is not None:
            self.average.load_state(state["average"])


def _check_flex(policy: Policy) -> None:
    """
    Raises:
        RecipeError: ``flex_attention`` cannot train this model here.
    """
    got = "learner.attention: got 'flex'"
    if policy.device.type == "cpu":
        raise RecipeError(f"{got} on a CPU, where torch has no backward pass of it; allowed: chains")
    if not policy.trains_over_trees:
        raise RecipeError(f"{got} with a model that trains over rows; allowed: chains")
    if policy.sight is not None and policy.sight.two_way:
        raise RecipeError(f"{got} with a model whose pictures' tokens see those behind them; allowed: chains")


def largest_weight(parameters: Sequence[nn.Parameter]) -> float:
    """The largest magnitude; nan or inf where any of them is."""
    with torch.no_grad():
        if any(parameter.device.type != "cpu" for parameter in parameters):
            return float(nn.utils.get_total_norm(parameters, norm_type=math.inf))
        # That norm takes a CPU nine times as long: 2.9 ms of each update of a million weights.
        ends = [end.float() for parameter in parameters for end in parameter.aminmax()]
        return float(torch.stack(ends).abs().max())


def clip_gradients(
    parameters: Sequence[nn.Parameter], most: float, total_norm: Callable[..., Tensor] | None = None
) -> float:
    """Scale gradients down to a norm of ``most`` where theirs is larger; returns their norm before.

    Finite gradients whose squares overflow float32 (a norm of 1e25, from rewards as large) still get a finite norm.

    Args:
        total_norm: as ``torch.nn.utils.get_total_norm``, which it is by default, of tensors that are kept elsewhere.
    """
    total_norm = total_norm or nn.utils.get_total_norm
    gradients = [p.grad for p in parameters if p.grad is not None]
    norm = total_norm(gradients)
    if math.isfinite(found := float(norm)):
        nn.utils.clip_grads_with_norm_(parameters, most, norm)
        return found
    largest = float(total_norm(gradients, norm_type=math.inf))
    if not math.isfinite(largest):
        return largest
    for gradient in gradients:
        gradient.div_(largest)
    norm = float(total_norm(gradients))
    for gradient in gradients:
        gradient.mul_(min(largest, most / norm))
    return norm * largest


def _of_model(model: str, needs: frozenset[str]) -> frozenset[str]:
    """Names of the columns of one model among those of all: ``old_logprob`` is ``logprob`` of ``old``."""
    return frozenset(name.removeprefix(f"{model}_") for name in needs if name.startswith(f"{model}_"))


class MicroBatchSums:
    """What micro-batches leave: metrics, which add up, and each token's coefficient where those are collected.

    A device's numbers stay there until the sums are asked for: whoever reads one waits for all that it was given to do.
    """

    def __init__(self, coefficient: Float[Tensor, "R L"] | None = None) -> None:
        self.coefficient = coefficient
        self._added: list[tuple[str, float | Tensor, float | Tensor | None]] = []

    def add(self, name: str, value: float | Tensor, share: float | Tensor) -> None:
        """Part of a mean: ``value`` is already times its ``share``."""
        self._added.append((name, _kept(value), _kept(share)))

    def count(self, name: str, value: float) -> None:
        self._added.append((name, value, None))

    def means(self) -> dict[str, float]:
        sums: dict[str, float] = {}
        shares: dict[str, float] = {}
        values = read([value for _, value, _ in self._added])
        parts = read([0.0 if share is None else share for _, _, share in self._added])
        for (name, _, share), value, part in zip(self._added, values, parts, strict=True):
            sums[name] = sums.get(name, 0.0) + value
            shares[name] = 1.0 if share is None else shares.get(name, 0.0) + part
        return {name: value / shares[name] for name, value in sums.items() if shares[name]}


def _kept(number: float | Tensor) -> float | Tensor:
    return number.detach() if torch.is_tensor(number) else number


def read(numbers: Sequence[float | Tensor]) -> list[float]:
    """Numbers, those of a device fetched from it at once."""
    found = [0.0 if torch.is_tensor(number) else float(number) for number in numbers]
    together: dict[tuple[torch.device, torch.dtype], list[tuple[int, Tensor]]] = {}
    for i, number in enumerate(numbers):
        if torch.is_tensor(number):
            together.setdefault((number.device, number.dtype), []).append((i, number.reshape(())))
    for of_kind in together.values():
        values = torch.stack([number for _, number in of_kind]).tolist()
        for (i, _), value in zip(of_kind, values, strict=True):
            found[i] = float(value)
    return found
