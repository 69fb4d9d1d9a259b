"""Search only where direct samples fail, and only until it finds a solution: pass@K filter and solution cache."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from lyceum.core.component import of_kind, require_keys, slot
from lyceum.core.notes import Note
from lyceum.core.settings import Composition, GuidanceSettings, RolloutSettings
from lyceum.core.steps import write_texts
from lyceum.core.tree import Node, Tree, is_correct, solved
from lyceum.core.types import Context, Continuation, Origin, Rollout, TaskSource
from lyceum.guidance.base import TaskGuide, notes_of
from lyceum.papers.deepsearch.curriculum_hard_filter import DirectSamples

Solution = dict[str, Any]
"""A correct trajectory as plain lists: the fields of a ``Continuation``."""


@dataclass(frozen=True)
class SearchNote(Note):
    """How a task was sampled, and how many of its trajectories are cached solutions."""

    kind: ClassVar[str] = "search-where-hard"
    by: Literal["search", "cache", "direct", "dropped"]
    cached: int


class SearchWhereHard(GuidanceSettings):
    """Direct samples first; the rollout (a search) for tasks where these mostly fail, and cached solutions among direct
    samples for tasks that a search has solved.

    Source: DeepSearch, arXiv:2509.25454, sections 4.1 and 4.2, and its released code (register_replay_buffer.py).
    """

    kind: Literal["search-where-hard"] = "search-where-hard"
    direct: Annotated[RolloutSettings, slot("rollout", "flat")] = of_kind("flat")
    """Rollout of a task without a search; its number of samples is the group size."""
    tests: int = Field(default=4, ge=0)
    """Direct samples that decide whether a task is hard; 0 searches every task that has no cached solution."""
    hard: float = Field(default=0.25, ge=0, lt=1)
    """Maximum accuracy of a hard task's direct samples; the solutions of a search are kept where its accuracy is above
    0 and at most this (no unit)."""
    easy: Literal["train", "drop"] = "drop"
    """Treatment of other tasks: train on their direct samples, filled up to a group, or drop the task from
    the step, as in the paper."""
    cached_tasks: int = Field(default=1024, ge=0)
    """Maximum tasks with cached solutions, the oldest evicted first; 0 caches none: every hard task is searched."""

    def check(self, stage: Composition) -> list[str]:
        lines: list[str] = []
        wanted, given = None if stage.rollout is None else stage.rollout.sampling, self.direct.sampling
        if wanted is not None and wanted != given:
            differs = [name for name in type(wanted).model_fields if getattr(wanted, name) != getattr(given, name)]
            lines += [
                f"guidance.search-where-hard.direct.sampling.{name}: got {getattr(given, name)!r}, but "
                f"rollout.sampling.{name} is {getattr(wanted, name)!r}; allowed: the same in both, as both are trained "
                "as one policy's"
                for name in differs
            ]
        return lines

    def build(self, source: TaskSource, *, seed: int) -> SolutionCache:
        return SolutionCache(self)


class SolutionCache(TaskGuide):
    """Its state: the cached solutions, by task."""

    def __init__(self, settings: SearchWhereHard) -> None:
        self.settings = settings
        self.direct: Rollout = settings.direct.build()
        self.solutions: dict[str, list[Solution]] = {}

    async def roll(self, rollout: Rollout, context: Context, start: Node, n: int | None) -> list[Node]:
        # Read here and changed in ``observe`` alone: results do not depend on which task finishes first.
        if solutions := self.solutions.get(context.task.id):
            return await self.replay(solutions, context, start, n)
        if not self.settings.tests:
            note(context, None, "search")
            return await rollout(context, start, n)
        before = len(start.children)
        test = await self.direct(context, start, self.settings.tests)
        await context.grade(test)
        accuracy = solved(test)
        if accuracy is None or accuracy <= self.settings.hard:
            note(context, accuracy, "search")
            del start.children[before:]  # the tree is the search's
            return await rollout(context, start, n)
        if self.settings.easy == "drop":
            note(context, accuracy, "dropped")
            return []
        note(context, accuracy, "direct")
        missing = self.group(n) - self.settings.tests
        if missing > 0 and context.budget_left > 0:
            test += await self.direct(context, start, missing)
        return test

    async def replay(self, solutions: Sequence[Solution], context: Context, start: Node, n: int | None) -> list[Node]:
        """A group of direct samples, the first of which are replaced by the cached solutions."""
        own = await self.direct(context, start, self.group(n))
        await context.grade(own)
        restored = [restore(start, solution, context) for solution in solutions[: len(own)]]
        note(context, solved(own), "cache", len(restored))
        return [*restored, *own[len(restored) :]]

    def group(self, n: int | None) -> int:
        return n or Composition(rollout=self.settings.direct).trajectories or 8

    def observe(self, trees: Sequence[Tree]) -> None:
        notes = notes_of(trees, SearchNote)
        direct = [None if (found := tree.note(DirectSamples)) is None else found.accuracy for tree, _ in notes]
        for (tree, note), accuracy in zip(notes, direct, strict=True):
            if note.by == "search" and self.settings.cached_tasks:
                self.keep(tree)
            elif note.by == "cache" and accuracy is not None and accuracy > self.settings.hard:
                self.solutions.pop(tree.task.id, None)  # it is no longer hard
        while len(self.solutions) > self.settings.cached_tasks:
            del self.solutions[next(iter(self.solutions))]
        by = Counter(note.by for _, note in notes)
        metrics: dict[str, float] = {
            "searched/tasks": by["search"],
            "easy/tasks": by["direct"] + by["dropped"],
            "dropped/tasks": by["dropped"],
            "used/hits": by["cache"],
            "used/solutions": sum(note.cached for _, note in notes),
            "cached/tasks": len(self.solutions),
            "cached/solutions": sum(map(len, self.solutions.values())),
        }
        if known := [accuracy for accuracy in direct if accuracy is not None]:
            metrics["solved/direct"] = fmean(known)
        self._metrics = metrics

    def keep(self, tree: Tree) -> None:
        """Cache a search's correct trajectories, each once, where few are correct."""
        if tree.solved is None or not 0 < tree.solved <= self.settings.hard:
            return
        found: dict[tuple[int, ...], Solution] = {}
        for leaf in tree.graded:
            if is_correct(leaf) and leaf.path()[0] is tree.root and (solution := flattened(leaf)) is not None:
                found.setdefault(tuple(solution["tokens"]), solution)
        self.solutions.pop(tree.task.id, None)
        if found:
            self.solutions[tree.task.id] = list(found.values())[: self.group(tree.task.samples)]

    def state_dict(self) -> dict[str, Any]:
        return {"solutions": {id: [dict(one) for one in found] for id, found in self.solutions.items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        require_keys("guidance.search-where-hard", given=state, needed=self.state_dict())
        self.solutions = {id: [dict(one) for one in found] for id, found in state["solutions"].items()}


def note(
    context: Context, direct: float | None, by: Literal["search", "cache", "direct", "dropped"], cached: int = 0
) -> None:
    context.tree.add_note(DirectSamples(direct))
    context.tree.add_note(SearchNote(by, cached))


def flattened(leaf: Node) -> Solution | None:
    """A trajectory below its prompt as one continuation; None where the policy did not write all of it."""
    below = leaf.path()[1:]
    if any(node.origin is not Origin.POLICY or node.grafted for node in below):
        return None
    return {
        "tokens": [token for node in below for token in node.tokens],
        # From sampling time: corrections for a stale policy need them, PPO's ratio does not read them.
        "behaviour_logprob": [value for node in below for value in node.behaviour_logprob],
        "model_logprob": [value for node in below for value in node.model_logprob],
        "version": [version for node in below for version in node.version],
        "finish": leaf.finish,
    }


def restore(start: Node, solution: Solution, context: Context) -> Node:
    """A cached solution as a trajectory below ``start``, written by the policy as it was then."""
    runs = (list(solution[name]) for name in ("tokens", "behaviour_logprob", "model_logprob", "version"))
    drawn = Continuation(*runs, finish=solution["finish"])
    leaf = start.add_drawn(drawn)
    write_texts([leaf], context.decode, terminal=True)
    leaf.stats["cached"] = drawn.version[-1]
    return leaf
