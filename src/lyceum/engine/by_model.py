"""Several models behind one engine, each in an engine of its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import cast

from lyceum.core.types import Continuation, Engine, GoesOn, RecordsRouting, Request, UnderWay
from lyceum.models.policy import Policy
from lyceum.utils.aio import idle
from lyceum.utils.lazy_imports import Tensor, nn


class EngineByModel:
    """Implements ``Engine``: a request goes to the model that it names, what names none to the first.

    Args:
        engines: of each model, in order.
        policies: the models; those after the first are loaded from here, as ``load`` is given the first alone.
    """

    def __init__(self, engines: Sequence[Engine], policies: Sequence[Policy]) -> None:
        self.engines, self.policies = engines, policies
        self.version = engines[0].version
        self.may_step: Callable[[], Awaitable[None]] = idle
        for engine in engines:
            engine.may_step = self._may_step

    async def _may_step(self) -> None:
        await self.may_step()

    @property
    def tokens_computed(self) -> int:
        return sum(engine.tokens_computed for engine in self.engines)

    async def extend(self, request: Request) -> list[Continuation]:
        return await self.engines[request.model].extend(request)

    def record_routing(self) -> None:
        for engine in self.engines:
            cast(RecordsRouting, engine).record_routing()

    async def score(self, tokens: Sequence[int]) -> list[float]:
        return await self.engines[0].score(tokens)

    async def load(
        self, weights: nn.Module | Mapping[str, Tensor], version: int, *, under_way: UnderWay = "refuse"
    ) -> None:
        others = [policy.module for policy in self.policies[1:]]
        for engine, of_model in zip(self.engines, [weights, *others], strict=True):
            if under_way == "refuse":
                await engine.load(of_model, version)
            else:
                await cast(GoesOn, engine).load(of_model, version, under_way=under_way)
        self.version = version
