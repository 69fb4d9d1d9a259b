"""Visual consistency learning (ViCO): answers under compressed pictures as under whole ones, then a router of rates.

    consistency:  mean_i KL(reference(y_i | y_<i, full) || policy(y_i | y_<i, rate)), each picture at a random rate
    router:       r = that KL at the compressed rate / at the full one, of a task's answer; the router alone is trained
                  label = full where r >= tau, the k-th percentile of the latest r; binary cross-entropy

Source: InternVL3.5, arXiv:2508.18265, section on ViCO; ViCO, arXiv:2510.12793.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from jaxtyping import Bool, Float
from pydantic import Field, model_validator

from lyceum.core.component import of_kind, require_keys, slot
from lyceum.core.forest import build_forest
from lyceum.core.pictures import COMPRESSED, FULL, pictures_among
from lyceum.core.settings import Composition, ObjectiveSettings
from lyceum.core.tree import Tree
from lyceum.core.types import Origin, Task
from lyceum.learner._forward import micro_batches, row_outputs
from lyceum.learner.local import LocalLearner
from lyceum.models.sight import Sight
from lyceum.papers.cascade_rl.objective_consistency import KL
from lyceum.training.stages.session import Session
from lyceum.training.stages.sft import SupervisedRun, SupervisedStage
from lyceum.utils.errors import RecipeError
from lyceum.utils.lazy_imports import F, Tensor, torch
from lyceum.utils.seeds import counter_seed

SMALLEST_KL = 1e-8
"""Nats. A smaller one at the full rate divides as this."""


class VisualConsistency(SupervisedStage):
    """Consistency training of a model with two rates of pictures, on demonstrations, then training of the router that
    chooses between the rates."""

    kind: Literal["vico"] = "vico"  # pyright: ignore[reportIncompatibleVariableOverride]
    router_steps: int = Field(default=50, ge=1)
    """How many of its steps, the last ones, train the router; the others train the model."""
    router_lr: float = Field(default=1e-3, gt=0)
    """Learning rate of the router (AdamW)."""
    compressed: float = Field(default=0.5, gt=0, lt=1)
    """Share of the latest loss ratios that lie below the threshold: of pictures whose label is the compressed rate."""
    window: int = Field(default=512, ge=1)
    """Number of the latest loss ratios, one for each task, of which the threshold is a percentile."""
    objective: Annotated[ObjectiveSettings, slot("objective", "consistency")] = of_kind("consistency")
    """The loss of consistency training."""

    @model_validator(mode="after")
    def _trains_both(self) -> VisualConsistency:
        if self.router_steps >= self.steps:
            raise ValueError(
                f"router_steps: got {self.router_steps} of {self.steps} steps; allowed: fewer, since the others come "
                "first: without consistency training every ratio has 0 below it"
            )
        return self

    def check(self, stage: Composition) -> list[str]:
        lines = super().check(stage)
        for name, kind, allowed in (
            ("objective", self.objective.kind, "consistency"),
            ("learner", self.learner.kind, "local"),
        ):
            if kind != allowed:
                lines.append(f"{name}.kind: got '{kind}' in stage 'vico'; allowed: {allowed}")
        return lines

    def build(self, session: Session) -> VisualConsistencyRun:
        return VisualConsistencyRun(self, session)


class VisualConsistencyRun(SupervisedRun):
    """The state of fine-tuning, and the router's: its optimiser, and the latest ratios."""

    settings: VisualConsistency

    def __init__(self, settings: VisualConsistency, session: Session) -> None:
        sight = session.policy.sight
        if sight is None or sight.rates is None:
            raise RecipeError("model.rate: got none, but stage 'vico' trains two rates; allowed: routed")
        if not all(weight.requires_grad for weight in sight.rates.router.parameters()):
            raise RecipeError("model.freeze: got 'projector', which stage 'vico' trains; allowed: vision, language")
        super().__init__(settings, session)
        assert isinstance(self.learner, LocalLearner)
        self.frozen, self.budget = self.learner.frozen, self.learner.config.micro_batch_tokens
        with self.frozen["reference"].loaded() as reference:
            reference.shown = lambda tokens: sight.pictures.all_at(tokens, FULL)
        self.sight: Sight = sight
        self.router = sight.rates.router
        self.optimizer = torch.optim.AdamW(self.router.parameters(), lr=settings.router_lr)
        self.ratios: list[float] = []

    def learn(self, tasks: list[Task]) -> tuple[list[Tree], dict[str, Any]]:
        if self.step >= self.steps - self.settings.router_steps:
            return self.train_router(tasks)
        key = self.session.stage_seed, self.step
        with self.sight.pictures.rated(lambda id: counter_seed("rate", *key, id) % 2):
            return super().learn(tasks)

    def train_router(self, tasks: list[Task]) -> tuple[list[Tree], dict[str, Any]]:
        trees: dict[int, list[Tree]] = {}
        kl: dict[int, Tensor] = {}
        with self.session.training(self.learner):
            for rate in (FULL, COMPRESSED):
                with self.sight.pictures.rated(lambda id, rate=rate: rate):
                    trees[rate] = self.demonstrations(tasks)
                kl[rate] = self.kl(trees[rate])
            ratio = kl[COMPRESSED] / kl[FULL].clamp(min=SMALLEST_KL)
            self.ratios = [*self.ratios, *ratio.tolist()][-self.settings.window :]
            threshold = float(torch.tensor(self.ratios).quantile(self.settings.compressed))
            metrics = self.update_router(trees[FULL], ratio >= threshold)
        tokens = sum(len(leaf.tokens) for tree in trees[FULL] for leaf in tree.trajectories)
        of_rates = {"rate/kl_full": kl[FULL], "rate/kl_compressed": kl[COMPRESSED], "rate/ratio": ratio}
        metrics |= {name: float(each.mean()) for name, each in of_rates.items()}
        return trees[FULL], {**metrics, "rate/threshold": threshold, "tokens_trained": tokens}

    def kl(self, trees: Sequence[Tree]) -> Float[Tensor, " task"]:
        """Mean KL(reference || policy) over the tokens of each task's answer, in nats."""
        forest = build_forest(trees, graded=False)
        found = torch.zeros(forest.n_rows)
        for rows in micro_batches(forest, torch.arange(forest.n_rows), self.budget):
            part = forest.select(rows)
            wanted = part.trainable(part.rows(), (Origin.TEACHER,))
            with torch.no_grad():
                out = row_outputs(
                    self.session.policy,
                    part,
                    wanted,
                    layout="tree",
                    reductions=self.objective.reductions,
                    frozen=self.frozen,
                )
            found[rows] = (out.columns[KL].sum(1) / wanted.sum(1)).cpu()
        return found

    def update_router(self, trees: Sequence[Tree], full: Bool[Tensor, " task"]) -> dict[str, float]:
        """One update towards these labels, of every picture of a task alike."""
        assert self.sight.rates is not None
        labels = zip(trees, full.tolist(), strict=True)
        shown = [(id, label) for tree, label in labels for id in pictures_among(tree.root.tokens)]
        with torch.no_grad():
            patches = self.sight.patches([id for id, _ in shown])
        logit = torch.stack([self.sight.rates.logit(each) for each in patches]).float()
        label = torch.tensor([label for _, label in shown], dtype=torch.float, device=logit.device)
        loss = F.binary_cross_entropy_with_logits(logit, label)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return {
            "loss": loss.item(),
            "rate/router_loss": loss.item(),
            "rate/router_accuracy": float(((logit > 0) == label.bool()).float().mean()),
            "rate/routed_compressed": float((logit <= 0).float().mean()),
        }

    def own_state(self) -> dict[str, Any]:
        return {"router": {"optimizer": self.optimizer.state_dict(), "ratios": self.ratios}}

    def load_own_state(self, state: Mapping[str, Any]) -> None:
        of_router = state["router"]
        require_keys("stage.router", given=of_router, needed=("optimizer", "ratios"))
        self.optimizer.load_state_dict(of_router["optimizer"])
        self.ratios = list(of_router["ratios"])
