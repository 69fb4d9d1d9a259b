"""Engines and learners with one defect each, which the doctor has to find, as components of their own."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import torch

from lyceum.core.forest import Forest
from lyceum.core.types import Continuation, Credited, Objective, Request
from lyceum.engine.embedded import EmbeddedConfig, EmbeddedEngine
from lyceum.learner.local import LocalConfig, LocalLearner
from lyceum.models.policy import Policy


class DamagedConfig(EmbeddedConfig):
    """An embedded engine with a defect."""

    kind: Literal["damaged"] = "damaged"  # pyright: ignore[reportIncompatibleVariableOverride]
    defect: str = ""
    """Which one."""

    def build(self, policy: Policy) -> EmbeddedEngine:
        engines: Mapping[str, type[EmbeddedEngine]] = {
            "shifted": Shifted,
            "untempered": Untempered,
            "untruncated": Untruncated,
            "shifted-scores": ShiftedScores,
            "stale": Stale,
            "keeps-cache": KeepsCache,
            "no-version": NoVersion,
            "ignores-seeds": IgnoresSeeds,
            "mixes-batch": MixesBatch,
            "runs-on": RunsOn,
            "other-weights": OtherWeights,
            "raises": Raises,
        }
        return engines[self.defect](policy, self)


class Shifted(EmbeddedEngine):
    """Log-probabilities 0.01 nats too high: as an engine in another precision."""

    async def extend(self, request: Request) -> list[Continuation]:
        drawn = await super().extend(request)
        return [replace(of, model_logprob=[x + 0.01 for x in of.model_logprob]) for of in drawn]


class Untempered(EmbeddedEngine):
    """``behaviour_logprob`` of the model, not of the distribution drawn from: as vLLM's default."""

    async def extend(self, request: Request) -> list[Continuation]:
        drawn = await super().extend(request)
        return [replace(of, behaviour_logprob=of.model_logprob) for of in drawn]


class Untruncated(EmbeddedEngine):
    """Draws without top-p where top-p is asked for."""

    async def extend(self, request: Request) -> list[Continuation]:
        whole = request.sampling.model_copy(update={"top_p": 1.0})
        return await super().extend(replace(request, sampling=whole))


class ShiftedScores(EmbeddedEngine):
    """Scores each token as the one before it: off by one."""

    async def score(self, tokens: Sequence[int]) -> list[float]:
        scores = await super().score(tokens)
        return [0.0, *scores[:-1]]


class Stale(EmbeddedEngine):
    """Serves a copy of the weights it was built with, for ever."""

    def __init__(self, policy: Policy, config: EmbeddedConfig) -> None:
        super().__init__(Policy(copy.deepcopy(policy.module), policy.tokenizer), config)

    async def load(self, weights: torch.nn.Module | Mapping[str, torch.Tensor], version: int) -> None:
        self.version = version


class KeepsCache(EmbeddedEngine):
    """Takes new weights, and continues kept paths from keys and values of the old ones."""

    async def load(self, weights: torch.nn.Module | Mapping[str, torch.Tensor], version: int) -> None:
        self._packs.clear()
        self._decoder = None
        self.version = version


class NoVersion(EmbeddedEngine):
    """Does not say under which weights it drew."""

    async def load(self, weights: torch.nn.Module | Mapping[str, torch.Tensor], version: int) -> None:
        await super().load(weights, self.version)


class IgnoresSeeds(EmbeddedEngine):
    """Draws from a shared stream of random numbers."""

    drawn = 0

    async def extend(self, request: Request) -> list[Continuation]:
        self.drawn += len(request.seeds)
        seeds = [self.drawn + i for i in range(len(request.seeds))]
        return await super().extend(replace(request, seeds=seeds))


class MixesBatch(EmbeddedEngine):
    """Draws by seed and by what else is in the batch."""

    async def extend(self, request: Request) -> list[Continuation]:
        beside = len(self._waiting)
        return await super().extend(replace(request, seeds=[seed ^ (beside << 20) for seed in request.seeds]))


class RunsOn(EmbeddedEngine):
    """Knows no end of sequence."""

    def __init__(self, policy: Policy, config: EmbeddedConfig) -> None:
        deaf = copy.copy(policy)
        deaf.stop_ids = frozenset()
        super().__init__(deaf, config)


class OtherWeights(EmbeddedEngine):
    """Serves other weights than the learner's, and loads none."""

    def __init__(self, policy: Policy, config: EmbeddedConfig) -> None:
        other = copy.deepcopy(policy.module)
        with torch.no_grad(), torch.random.fork_rng():
            torch.manual_seed(0)
            for parameter in other.parameters():
                parameter.mul_(1 + 0.3 * torch.randn_like(parameter))
        super().__init__(Policy(other, policy.tokenizer), config)


class Raises(EmbeddedEngine):
    """Fails when it is asked to score."""

    async def score(self, tokens: Sequence[int]) -> list[float]:
        raise ZeroDivisionError("no scores here")


class DamagedLearnerConfig(LocalConfig):
    """A local learner with a defect."""

    kind: Literal["damaged"] = "damaged"  # pyright: ignore[reportIncompatibleVariableOverride]
    defect: str = ""
    """Which one."""

    def build(self, policy: Policy, *, total_steps: int, needs: frozenset[str]) -> LocalLearner:
        learners = {"shifted-rows": ShiftedRows, "idle": Idle, "hidden": Hidden}
        return learners[self.defect](policy, self, total_steps=total_steps, needs=needs)


class ShiftedRows(LocalLearner):
    """Other log-probabilities in one of its layouts."""

    def annotate(self, forest: Forest, needs: frozenset[str]) -> Forest:
        found = super().annotate(forest, needs)
        by = 0.01 if self.config.layout == "rows" else 0.0
        return found.with_columns(old_logprob=found.columns["old_logprob"] + by)


class Idle(LocalLearner):
    """Computes gradients and changes nothing."""

    def step(self, forest: Forest, credited: Credited, objective: Objective) -> dict[str, Any]:
        self.optimizer.step = lambda *args: None
        return super().step(forest, credited, objective)


class Hidden(LocalLearner):
    """Keeps its gradients to itself, as one in other processes."""

    def step(self, forest: Forest, credited: Credited, objective: Objective) -> dict[str, Any]:
        metrics = super().step(forest, credited, objective)
        self.optimizer.zero_grad(set_to_none=True)
        return metrics
