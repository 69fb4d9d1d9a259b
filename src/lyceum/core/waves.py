"""What a stage asks its runtime for: waves of drawn tasks, whose trees grow under one version of the weights."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple, Protocol, runtime_checkable

from lyceum.core.tree import Tree
from lyceum.core.types import State, Task
from lyceum.utils.seeds import SeedKey


class Ticket(NamedTuple):
    """One group that was drawn.

    Attributes:
        number: how often its wave has the task before it: part of its seeds.
        tree: that goes on, where an earlier step has begun it.
    """

    task: Task
    number: int
    tree: Tree | None = None


@dataclass(frozen=True)
class Wave:
    """Groups that are drawn together. With the recipe and a version of the weights it determines their trees.

    Attributes:
        key: part of their seeds, different for each wave of a stage.
        step: steps of the stage that are done before the one that trains them.
        progress: share of the stage that was done when they were drawn.
        version: of the weights under which they are sampled.
    """

    key: SeedKey
    step: int
    progress: float
    version: int
    tickets: tuple[Ticket, ...]


class Grown(NamedTuple):
    """A wave's trees, in the order of its tickets; finished ones are graded.

    Attributes:
        computed: tokens that went through the model.
        counted: what graders of another process counted meanwhile (:mod:`lyceum.core.tallies`).
    """

    trees: list[Tree]
    computed: int
    counted: Mapping[str, float] = MappingProxyType({})


Done = Callable[[], None]
"""Called as each tree is finished, for the progress display."""
Begins = Callable[[int], None]
"""Called as a group's first token is about to be drawn, with the version of the weights or an older one."""


class Runtime(Protocol):
    """Where a stage's trees grow."""

    async def grow(self, wave: Wave, done: Done) -> Grown: ...

    def publish(self, version: int) -> None:
        """Let waves of this version be grown under the weights as they are now. Never waits for a worker."""
        ...

    def close(self) -> None: ...


class Grows(Runtime, Protocol):
    """What grows a stage's trees in this process.

    Attributes:
        constant: names of the models that stay as they are in the stage.
    """

    @property
    def constant(self) -> Collection[str]: ...

    def models(self) -> Mapping[str, State]:
        """The weights of all models that trees depend on, by name."""
        ...

    def states(self) -> State:
        """Of guides and graders, which may change while trees grow."""
        ...

    def load_states(self, state: State) -> None: ...


class RunsAhead(Runtime, Protocol):
    """A runtime in which trees grow while the stage learns."""

    def start(self, wave: Wave) -> Future[Grown]:
        """Begin a wave; the future may be waited for outside of the event loop."""
        ...

    def idle(self) -> float | None:
        """Share of the workers' time since the last call in which they had nothing to compute; None where no wave has
        been finished since."""
        ...


@runtime_checkable
class Starts(Protocol):
    """A runtime whose workers have to load before trees can grow."""

    async def started(self, tell: Callable[[int, int], None]) -> None:
        """Wait until they have; one that cannot tells of it with its first wave.

        Args:
            tell: called with how many have, and how many there are.
        """
        ...


class RunsBeside(RunsAhead, Protocol):
    """A runtime whose waves have one ticket each, and begin one by one under the newest weights."""

    def start(self, wave: Wave, *, begun: Begins = ...) -> Future[Grown]:
        """
        Args:
            begun: called in another thread.
        """
        ...
