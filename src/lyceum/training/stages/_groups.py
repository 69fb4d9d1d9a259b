"""Groups that an online stage samples: of tasks drawn now, and of completions that go on from earlier steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast, runtime_checkable

from lyceum.core.component import require_keys
from lyceum.core.group import Group
from lyceum.core.tree import Tree
from lyceum.core.types import GroupSource
from lyceum.core.waves import Grown, RunsAhead
from lyceum.run.folder import AHEAD
from lyceum.runtime.wire import pack, unpack
from lyceum.training.stages._collect import Oversampling
from lyceum.training.stages._sampling import Sampler
from lyceum.training.stages.session import Session

if TYPE_CHECKING:
    from lyceum.training.stages.online import Online


def source_of(stage: Online, session: Session, sampler: Sampler) -> GroupSource:
    """What gives a stage its groups."""
    if stage.runtime.as_finished:
        from lyceum.training.stages._ready import ReadyGroups  # here: it is made of this file's groups

        return ReadyGroups(stage, session.first_step, sampler, session.run.path / AHEAD)
    sampled = SampledGroups(stage, session.first_step, sampler)
    if stage.replay is None:
        return sampled
    seed, first_step = session.stage_seed, session.first_step
    return stage.replay.build(sampled, session.run.path, seed=seed, stage=session.stage, first_step=first_step)


@runtime_checkable
class DrawsAhead(Protocol):
    """A source that may have drawn groups which no step has trained yet."""

    @property
    def untrained(self) -> int:
        """How many these are."""
        ...

    def end(self) -> None:
        """The stage is over."""
        ...


def untrained(source: GroupSource) -> int:
    """Groups that were drawn ahead and are not trained."""
    return source.untrained if isinstance(source, DrawsAhead) else 0


def end(source: GroupSource, session: Session, why: str) -> None:
    """End a stage's source; say how many groups were drawn ahead and are not trained, where the stage has ended before
    its steps were done."""
    if isinstance(source, DrawsAhead):
        source.end()
    if groups := untrained(source):
        session.run.summary({"not_trained": groups})
        session.progress.say(f"{groups} groups were drawn ahead and are not trained: {why}")


def group_of(tree: Tree, stage: Online, sampler: Sampler) -> Group:
    """What becomes of a tree that was sampled."""
    if tree.unfinished and not stage.credit.reads_unfinished:
        return Group(tree, finished=False, dropped=True)
    if tree.unfinished or stage.collect.keeps(tree):
        return Group(tree, sampler.weight(tree), finished=not tree.unfinished)
    tree.mean_abs_advantage = 0.0
    return Group(tree, dropped=True)


class WaveAhead(NamedTuple):
    """A wave that was begun, and how many groups it has."""

    groups: int
    grown: Future[Grown]


class SampledGroups:
    """Groups of tasks that are drawn now, in waves until enough are kept, and of those that earlier steps began.

    Where trees grow while the stage learns, a step's first wave is begun as many steps ahead as the runtime's ``lag``
    says, under the weights of that moment: its tokens are ``lag`` updates old whatever the clock does. Further waves of
    a step, for groups that were dropped, are sampled under the step's own weights.
    """

    def __init__(self, stage: Online, first_step: int, sampler: Sampler) -> None:
        self.stage, self.first_step, self.sampler = stage, first_step, sampler
        self.oversampling = Oversampling(stage.collect.oversample)
        self.under_way: list[Group] = []
        """Those with trajectories that go on in the next step."""
        self.continued = 0
        """Trajectories of earlier steps that went on in the current one."""
        self.ahead: dict[int, WaveAhead] = {}
        """First waves that were begun, by the steps of the stage that are done before the one that trains them."""

    @property
    def untrained(self) -> int:
        """Groups that were drawn ahead and are not trained."""
        return sum(wave.groups for wave in self.ahead.values())

    def end(self) -> None:
        """Nothing of it is elsewhere."""

    def begin(self, done: int, size: int) -> None:
        """Begin the first waves that are due under the current weights."""
        if not self.stage.runtime.lag:
            return
        runtime = cast(RunsAhead, self.sampler.runtime)
        for step in range(done, min(done + self.stage.runtime.lag + 1, self.sampler.steps)):
            if step not in self.ahead and not self.sampler.spent:
                wave = self.sampler.wave(self.oversampling.tasks(size), key=(self.first_step + step, 0), step=step)
                self.ahead[step] = WaveAhead(len(wave.tickets), runtime.start(wave))

    async def take(self, done: int, size: int) -> list[Group]:
        self.begin(done, size)
        collect = self.stage.collect
        kept: list[Group] = []
        rest: list[Group] = []
        self.continued = 0
        for wave in range(1 if collect.keep == "all" else collect.max_waves):
            groups = await self.sample(self.oversampling.tasks(size - len(kept)), done, wave)
            good = [group for group in groups if group.kept]
            kept += good
            rest += [group for group in groups if not group.kept]
            self.oversampling.count(kept=len(good), sampled=sum(group.sampled for group in groups))
            if len(kept) >= size or self.sampler.all_drawn:
                break
        kept, surplus = self.oversampling.finish(kept, size)
        return [*kept, *rest, *surplus]

    async def sample(self, tasks: int, done: int, wave: int) -> list[Group]:
        """So many groups: those that earlier steps began, and further ones."""
        further, self.under_way = [group.tree for group in self.under_way[:tasks]], self.under_way[tasks:]
        self.continued += sum(len(tree.unfinished) for tree in further)
        if not wave and done in self.ahead:
            trees = await self.sampler.begun(self.ahead.pop(done).grown)
        else:
            key = (self.first_step + done, wave)
            trees = await self.sampler.sample(tasks, key=key, step=done, under_way=further)
        return [group_of(tree, self.stage, self.sampler) for tree in trees]

    def observe(self, done: int, groups: Sequence[Group]) -> None:
        self.under_way += [group for group in groups if not group.finished]
        self.sampler.observe([group.tree for group in groups if group.sampled])

    def metrics(self) -> dict[str, float]:
        metrics = self.oversampling.metrics
        if self.stage.runtime.lag and (workers := cast(RunsAhead, self.sampler.runtime).idle()) is not None:
            metrics = metrics | {"idle/workers": workers}
        if "unfinished" in self.stage.rollout.offers:
            metrics = metrics | {
                "continued/trajectories": self.continued,
                "under_way/trees": len(self.under_way),
            }
        return metrics

    def state_dict(self) -> dict[str, Any]:
        from lyceum.run.trees import dump_groups  # here: imports pyarrow

        ahead = {}
        for step, begun in self.ahead.items():  # those that are not done end first: nothing is lost or sampled twice
            grown = begun.grown.result()
            ahead[step] = pack({"computed": grown.computed, "counted": dict(grown.counted)}, grown.trees)
        of_oversampling = self.oversampling.state_dict()
        return {"oversampling": of_oversampling, "under_way": dump_groups(self.under_way), "ahead": ahead}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        from lyceum.run.trees import load_groups  # here: imports pyarrow

        require_keys("stage.source", given=state, needed=("oversampling", "under_way", "ahead"))
        self.oversampling.load_state_dict(state["oversampling"])
        self.under_way = load_groups(state["under_way"])
        for step, saved in state["ahead"].items():
            said, trees = unpack(saved)
            self.ahead[step] = WaveAhead(len(trees), Future[Grown]())
            self.ahead[step].grown.set_result(Grown(trees, said["computed"], said["counted"]))
