"""Groups that an online stage samples, of tasks drawn now and of completions that go on from earlier steps: which of
them a step trains on, and how many tasks it draws for those that it still lacks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, cast, runtime_checkable

from pydantic import Field, model_validator

from lyceum.core.component import Component, require_keys
from lyceum.core.group import Group
from lyceum.core.tree import Tree
from lyceum.core.types import GroupSource
from lyceum.core.waves import Grown, RunsAhead
from lyceum.run.folder import AHEAD
from lyceum.runtime.wire import pack, unpack
from lyceum.training.stages._metrics import has_gradient
from lyceum.training.stages._sampling import Sampler
from lyceum.training.stages.session import Session

if TYPE_CHECKING:
    from lyceum.training.stages.online import Online


class GroupFilter(Component):
    """Which finished groups are trained on."""

    keep: Literal["all", "with-gradient", "partly-solved", "solved-between"] = "all"
    """``with-gradient`` drops groups whose rewards are all equal, ``partly-solved`` those whose answers are all
    correct or all incorrect (dynamic sampling, DAPO, arXiv:2503.14476, equation 11), ``solved-between`` those whose
    accuracy is outside the bounds (balanced filtering, arXiv:2504.03380). An online stage replaces dropped groups by
    newly sampled ones, one for one unless `oversample` says more; an offline one does not."""
    solved_low: float | None = Field(default=None, ge=0, le=1)
    """Lowest accuracy of a group that ``solved-between`` keeps, inclusive; null sets no bound (0 to 1)."""
    solved_high: float | None = Field(default=None, ge=0, le=1)
    """Highest accuracy of a group that ``solved-between`` keeps, inclusive; null sets no bound (0 to 1)."""

    @model_validator(mode="after")
    def _bounds_fit(self) -> GroupFilter:
        bounded = self.solved_low is not None or self.solved_high is not None
        if bounded != (self.keep == "solved-between"):
            raise ValueError(
                f"solved_low and solved_high: got {self.solved_low} and {self.solved_high} with keep {self.keep!r}; "
                "allowed: null with every other keep, at least one of them with 'solved-between'"
            )
        if self.solved_low is not None and self.solved_high is not None and self.solved_low > self.solved_high:
            raise ValueError(
                f"solved_low: got {self.solved_low}, but solved_high is {self.solved_high}; allowed: at most that"
            )
        return self

    def keeps(self, tree: Tree) -> bool:
        """Whether a finished group is trained on."""
        return KEPT[self.keep](tree, self)

    def unjudged(self, dropped: Sequence[Tree]) -> int:
        """Number of groups dropped only because no grader says which of their answers are correct."""
        by_verdict = self.keep in ("partly-solved", "solved-between")
        return sum(by_verdict and tree.solved is None and has_gradient(tree) for tree in dropped)


class Oversample(Component):
    """Draw more tasks than groups are missing, since some will be dropped."""

    by: Literal["least", "average"] = "least"
    """From which share of kept groups the factor follows: ``least``, the smallest of an earlier step or of a wave of
    this one (adaptive DAPO, CodeV-R1, arXiv:2505.24183): groups beyond a step's size are dropped, the last ones first.
    ``average``, 1 / share as an exponential moving average over steps (RLCS, GLM-4.1V-Thinking, arXiv:2507.01006,
    section 5.3.1): the groups nearest to half solved are kept."""
    decay: float = Field(default=0.8, ge=0, lt=1)
    """Share of the moving average kept at each step under ``average`` (no unit)."""
    most: float = Field(default=4.0, ge=1, le=100)
    """Maximum tasks drawn per missing group."""


class Collect(GroupFilter):
    """Which finished groups are trained on, and how long others are sampled in the place of those dropped."""

    max_waves: int = Field(default=4, ge=1)
    """Maximum sampling waves per step, after which it trains on the groups it has."""
    oversample: Oversample | None = None
    """How many more tasks than missing groups a wave samples; none by default."""

    @model_validator(mode="after")
    def _something_is_dropped(self) -> Collect:
        if self.oversample is not None and self.keep == "all":
            raise ValueError("oversample: got it with keep 'all', which drops nothing; allowed: another keep, or null")
        return self


def is_partly_solved(tree: Tree) -> bool:
    """Whether some of a group's answers are correct and some are not, regardless of reward shaping."""
    return tree.solved is not None and 0 < tree.solved < 1


def is_solved_between(tree: Tree, low: float | None, high: float | None) -> bool:
    """Whether a group's accuracy lies within the bounds, inclusive."""
    if tree.solved is None:
        return False
    return (low is None or low <= tree.solved) and (high is None or tree.solved <= high)


KEPT: Mapping[str, Callable[[Tree, GroupFilter], bool]] = {
    "all": lambda tree, _: True,
    "with-gradient": lambda tree, _: has_gradient(tree),
    "partly-solved": lambda tree, _: is_partly_solved(tree),
    "solved-between": lambda tree, bounds: is_solved_between(tree, bounds.solved_low, bounds.solved_high),
}


class Oversampling:
    """Its state: the smallest share of kept groups, and the moving average of the inverse share.

    Source: of ``least``, CodeV-R1's released code (verl/trainer/ppo/ray_trainer.py, ``dapo_accelerate``). There no
    factor has a bound, and a step is sampled until it is full.
    """

    def __init__(self, settings: Oversample | None) -> None:
        self.settings = settings
        self.least = 1.0
        self.expansion = 1.0
        self.metrics: dict[str, float] = {}
        """Of the last step; none without settings."""
        self._begin()

    def _begin(self) -> None:
        self._kept = self._sampled = 0
        self._least_wave = 1.0

    def tasks(self, missing: int) -> int:
        """Tasks to draw for so many groups: exactly as many without settings."""
        settings = self.settings
        if settings is None:
            return missing
        share = min(self.least, self._least_wave)
        factor = self.expansion if settings.by == "average" else inverse(share)
        # 3 / 0.3 is above 10 in floating point.
        return math.ceil(round(missing * min(factor, settings.most), 6))

    def count(self, *, kept: int, sampled: int) -> None:
        """A wave's groups."""
        self._kept, self._sampled = self._kept + kept, self._sampled + sampled
        if sampled:
            self._least_wave = min(self._least_wave, kept / sampled)

    def finish(self, kept: list[Group], size: int) -> tuple[list[Group], list[Group]]:
        """End a step of this size: the groups that it trains on, in the order drawn, and the surplus, dropped."""
        settings = self.settings
        if settings is None:
            return kept, []
        if self._sampled:
            share = self._kept / self._sampled
            self.least = min(self.least, share)
            self.expansion = average(self.expansion, min(inverse(share), settings.most), settings.decay)
        first = sorted(range(len(kept)), key=lambda i: imbalance(kept[i].tree) if settings.by == "average" else i)
        chosen = set(first[:size])
        surplus = [replace(group, dropped=True) for i, group in enumerate(kept) if i not in chosen]
        self.metrics = {
            "oversample/tasks": float(self._sampled),
            "oversample/kept": float(self._kept),
            "oversample/surplus": float(len(surplus)),
        }
        self._begin()
        return [group for i, group in enumerate(kept) if i in chosen], surplus

    def state_dict(self) -> dict[str, Any]:
        return {"least": self.least, "expansion": self.expansion}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        require_keys("stage.oversampling", given=state, needed=self.state_dict())
        self.least, self.expansion = float(state["least"]), float(state["expansion"])


def inverse(share: float) -> float:
    """1 / share; infinite for 0."""
    return 1 / share if share else math.inf


def average(before: float, now: float, decay: float) -> float:
    """decay * before + (1 - decay) * now."""
    return decay * before + (1 - decay) * now


def imbalance(tree: Tree) -> float:
    """How far a group's accuracy is from one half: 0 .. 1/2; 1/2 where no grader judges."""
    return 0.5 if tree.solved is None else abs(tree.solved - 0.5)


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

    @property
    def untrained_tokens(self) -> int:
        """Tokens that were drawn for those of them that are finished."""
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
    if not isinstance(source, DrawsAhead):
        return
    source.end()
    if groups := source.untrained:
        tokens = source.untrained_tokens
        session.run.summary({"not_trained": groups, "not_trained_tokens": tokens})
        session.progress.say(
            f"{groups} groups were drawn ahead and are not trained ({tokens} tokens of those that have finished, "
            f"which are not in tokens_sampled): {why}"
        )


def group_of(tree: Tree, stage: Online, sampler: Sampler) -> Group:
    """What becomes of a tree that was sampled."""
    if tree.unfinished and not stage.credit.reads_unfinished:
        return Group(tree, finished=False, dropped=True)
    if tree.unfinished or stage.collect.keeps(tree):
        return Group(tree, sampler.weight(tree), finished=not tree.unfinished)
    tree.mean_abs_advantage = 0.0
    return Group(tree, dropped=True)


def trees_of(grown: Future[Grown]) -> Sequence[Tree]:
    """Of what has grown without an error; none of anything else."""
    return grown.result().trees if grown.done() and not grown.cancelled() and grown.exception() is None else ()


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
        self.spans_steps = "unfinished" in stage.rollout.offers

    @property
    def untrained(self) -> int:
        """Groups that were drawn ahead and are not trained."""
        return sum(wave.groups for wave in self.ahead.values())

    @property
    def untrained_tokens(self) -> int:
        return sum(tree.sampled_tokens for wave in self.ahead.values() for tree in trees_of(wave.grown))

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
        if self.spans_steps:
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
