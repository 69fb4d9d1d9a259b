"""Worlds, which begin, change in place and end, for rollouts that know an environment's states as values.

A world cannot be copied. So a state here is what was said to it since it began, and the world itself for as long as
nobody has gone on from there: whoever comes second begins another one and says the same again. One that then answers
something else cannot be repeated, and the trajectory is ungraded.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeGuard, TypeVar

from lyceum.core.tree import Node
from lyceum.core.types import Exchange, GradingContext, Message, Observation, Task, World
from lyceum.utils.aio import awaited

S = TypeVar("S")


def is_world(built: object) -> TypeGuard[World[Any]]:
    """Whether that is what an environment's ``build`` returned."""
    return hasattr(built, "begin")


class WorldError(Exception):
    """A world answers otherwise than before, or may not be begun again."""


@dataclass(eq=False)
class Life(Generic[S]):
    """A state of a world.

    Attributes:
        began: the messages with which it began; None where it has not begun yet.
        said, seen: the turns since then, and the messages that each was answered with.
        held: the world, where nobody has gone on from here.
    """

    task: Task
    began: tuple[Message, ...] | None = None
    said: tuple[str, ...] = ()
    seen: tuple[tuple[Message, ...] | None, ...] = ()
    held: list[S] = field(default_factory=list)


class Worlds(Generic[S]):
    """Implements :class:`lyceum.core.types.Environment` by the worlds of one task, and ends them.

    Args:
        repeatable: whether a world may be begun again, to go on from an earlier state.
    """

    def __init__(self, world: World[S], *, repeatable: bool) -> None:
        self.world, self.repeatable = world, repeatable
        self.held: list[list[S]] = []

    def reset(self, task: Task) -> Life[S]:
        return Life(task)

    def replay(self, task: Task, exchanges: Sequence[Exchange]) -> Life[S]:
        # The answers stand in the tree as texts, in which the chat template has written more than the messages.
        return Life(task, said=tuple(said for said, _ in exchanges), seen=(None,) * len(exchanges))

    async def begin(self, task: Task) -> Life[S]:
        state, messages = await awaited(self.world.begin(task))
        return self._life(Life(task, tuple(messages)), state)

    async def step(self, state: Life[S], turn: Node, said: str, context: GradingContext) -> Observation[Life[S]]:
        world = state.held.pop() if state.held else await self._again(state)
        try:
            observed = await awaited(self.world.step(world, said))
        except BaseException:
            await awaited(self.world.end(world))
            raise
        after = replace(state, said=(*state.said, said), seen=(*state.seen, observed.messages), held=[])
        after = self._life(after, observed.state)
        if observed.end:
            await self.end(after)
        return replace(observed, state=after)

    async def end(self, life: Life[S]) -> None:
        """End a state's world, where nobody has gone on from there."""
        while life.held:
            await awaited(self.world.end(life.held.pop()))

    async def close(self) -> None:
        """End all that are left, where a run was interrupted: each, whatever the others make of it."""
        for held in self.held:
            while held:
                with suppress(Exception):
                    await awaited(self.world.end(held.pop()))

    def _life(self, life: Life[S], state: S) -> Life[S]:
        life.held.append(state)
        self.held.append(life.held)
        return life

    async def _again(self, life: Life[S]) -> S:
        """Another world in this state."""
        if not self.repeatable and (life.said or life.began is not None):
            raise WorldError("another trajectory has gone on from here, and the environment is not repeatable")
        state, messages = await awaited(self.world.begin(life.task))
        try:
            if life.began not in (None, tuple(messages)):
                raise WorldError("it begins otherwise than before: the environment cannot be repeated")
            for turn, (said, seen) in enumerate(zip(life.said, life.seen, strict=True), 1):
                observed = await awaited(self.world.step(state, said))
                state = observed.state
                if observed.end or seen not in (None, observed.messages):
                    raise WorldError(f"replay differs after {turn} turns: the environment cannot be repeated")
        except BaseException:
            await awaited(self.world.end(state))
            raise
        return state
