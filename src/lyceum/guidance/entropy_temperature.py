"""Sampling temperatures that follow each token's entropy, relative to the step before (HAPO)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field

from lyceum.core.component import require_keys
from lyceum.core.entropy import EntropyRange, TemperatureByEntropy
from lyceum.core.settings import GuidanceSettings
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Context, Origin, Rollout, TaskSource
from lyceum.guidance.base import TaskGuide
from lyceum.utils.lazy_imports import torch


class EntropyTemperature(GuidanceSettings):
    """Sample at a higher temperature where the model is unsure, and at a lower one where it is sure.

    Source: HAPO, arXiv:2509.16591 (adaptive temperature sampling), and its released code. Entropies are compared with
    those of the step before; the first step has one temperature. The learner's log-probabilities stay those at the
    sampling temperature, as in the authors' code; ``objective.importance`` corrects for the difference where it is on.
    """

    requires: ClassVar = ("entropy",)

    kind: Literal["entropy-temperature"] = "entropy-temperature"
    change: float = Field(0.05, ge=0, lt=1)
    """Largest change of the temperature, as a share of it; 0.05 in the authors' scripts."""
    pivot: float = Field(0.8, ge=0, le=1)
    """Quantile of the entropies at which the temperature stays as it is (0 to 1)."""

    def build(self, source: TaskSource, *, seed: int) -> EntropyTemperatureGuide:
        return EntropyTemperatureGuide(self)


UNKNOWN = EntropyRange(0.0, 0.0, 0.0)
"""Before any token was seen: with a change of 0."""


class EntropyTemperatureGuide(TaskGuide):
    """Its state: the range of the last step's entropies."""

    def __init__(self, settings: EntropyTemperature) -> None:
        self.settings = settings
        self.last: EntropyRange | None = None

    @property
    def by(self) -> TemperatureByEntropy:
        return TemperatureByEntropy(0.0 if self.last is None else self.settings.change, self.last or UNKNOWN)

    async def roll(self, rollout: Rollout, context: Context, start: Node, n: int | None) -> list[Node]:
        return await rollout(context.tempered(self.by), start, n)

    def observe(self, trees: Sequence[Tree]) -> None:
        drawn = [
            nats
            for tree in trees
            for node in tree.nodes()
            if node.origin is Origin.POLICY and not node.grafted
            for nats in node.entropy
        ]
        if not drawn:
            self._metrics = {}
            return
        entropy = torch.tensor(drawn)
        factor = self.by.factor(entropy)
        self._metrics = {
            "hotter": (factor > 1).float().mean().item(),
            "cooler": (factor < 1).float().mean().item(),
            "change": (factor - 1).abs().mean().item(),
        }
        self.last = EntropyRange.of(entropy, self.settings.pivot)

    def state_dict(self) -> dict[str, Any]:
        last = self.last
        return {"last": None if last is None else [last.lowest, last.pivot, last.highest]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        require_keys("guidance", given=state, needed=self.state_dict())
        self.last = None if state["last"] is None else EntropyRange(*state["last"])
