"""Sampling temperatures that follow each token's entropy, relative to the step before (HAPO)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from jaxtyping import Float
from pydantic import Field

from lyceum.core.component import require_keys
from lyceum.core.settings import GuidanceSettings
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Context, Origin, Rollout, Sampling, TaskSource
from lyceum.guidance.base import TaskGuide
from lyceum.papers.hapo._entropy import EntropyRange
from lyceum.utils.lazy_imports import Tensor, torch


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


@dataclass(frozen=True)
class TemperatureByEntropy:
    """A :class:`lyceum.core.types.TemperatureRule`: higher where the model is less sure.

        T_t = T (1 + change h_t)

    Attributes:
        usual: the sampling temperature T.
        change: at the highest and the lowest entropy, as a share of T; below 1.
        of: whose range h is relative to.
    Source:
        HAPO, arXiv:2509.16591 (adaptive temperature sampling); starriver030515/HAPO, vllm/v1/sample/sampler.py.
    """

    usual: float
    change: float
    of: EntropyRange

    def __call__(self, logits: Float[Tensor, "A V"]) -> Float[Tensor, " A"]:
        entropy = torch.special.entr(logits.softmax(-1)).sum(-1)
        return self.usual * self.factor(entropy)

    def factor(self, entropy: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """T_t / T of tokens with these entropies (nats)."""
        return 1 + self.change * self.of.relative(entropy)


UNKNOWN = EntropyRange(0.0, 0.0, 0.0)
"""Before any token was seen: with a change of 0."""


class EntropyTemperatureGuide(TaskGuide):
    """Its state: the range of the last step's entropies."""

    def __init__(self, settings: EntropyTemperature) -> None:
        self.settings = settings
        self.last: EntropyRange | None = None

    def rule(self, usual: float) -> TemperatureByEntropy:
        """This step's, for a sampling temperature."""
        return TemperatureByEntropy(usual, 0.0 if self.last is None else self.settings.change, self.last or UNKNOWN)

    def tempered(self, sampling: Sampling) -> Sampling:
        """With this step's rule as its temperature; greedy sampling stays greedy."""
        usual = sampling.usual_temperature
        return sampling.model_copy(update={"temperature": self.rule(usual)}) if usual else sampling

    async def roll(self, rollout: Rollout, context: Context, start: Node, n: int | None) -> list[Node]:
        return await rollout(context.with_sampling(self.tempered, entropy=True), start, n)

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
        factor = self.rule(1.0).factor(entropy)
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
