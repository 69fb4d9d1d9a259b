"""Growing trees, choosing, and only then grading: one strategy at one size on all tasks."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from lyceum.analysis.test_time.choice import CHOICES, Candidate
from lyceum.analysis.test_time.strategy import Strategy
from lyceum.analysis.test_time.strategy_result import StrategyResult
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Engine, Grade, Grader, GradingContext, Task, ValueModel, verdict_reader
from lyceum.models.policy import Policy
from lyceum.reward.base import allow_code
from lyceum.reward.extract import vote
from lyceum.runtime.in_process import InProcess
from lyceum.utils.aio import gather

UNSEEN = "the verifier is asked after the choice"


@dataclass
class GrownTrees:
    """Trees of all tasks, grown once and shared by strategies with the same rollout; costs are totals over tasks."""

    trees: list[Tree]
    tokens_computed: int
    seconds: float
    value: Valued
    tokens_valued: int
    """Tokens that the value model read during growth; ``value`` also counts those read for the choice."""
    runtime: InProcess
    choosing_seconds: float | None = None
    """Time to compute values for the choice; None before that."""
    graded: bool = False


class Valued:
    """A value model that evaluates each path once, and counts the tokens that it read.

    Prefixes shared within one call are read once; another call reads them again, as value models keep no cache.

    Args:
        reads: False for a model that does not read the tokens.
    """

    def __init__(self, model: ValueModel | None, *, reads: bool) -> None:
        self.model, self.reads = model, reads
        self.tokens = 0
        self._known: dict[Node, float] = {}

    def __call__(self, paths: Sequence[Node]) -> list[float]:
        if self.model is None:
            raise RuntimeError("a strategy asked for values, and there is no value model")
        new = list(dict.fromkeys(path for path in paths if path not in self._known))
        if new:
            self._known.update(zip(new, self.model(new), strict=True))
            self.tokens += unique_tokens([path.path_tokens() for path in new]) if self.reads else 0
        return [self._known[path] for path in paths]

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Any) -> None:
        pass


def unique_tokens(paths: Sequence[Sequence[int]]) -> int:
    """Number of tokens of the paths, shared prefixes counted once."""
    count, before = 0, ()
    for path in sorted(map(tuple, paths)):
        shared = next((i for i, (a, b) in enumerate(zip(before, path, strict=False)) if a != b), None)
        count += len(path) - (min(len(before), len(path)) if shared is None else shared)
        before = path
    return count


async def unseen(task: Task, leaves: Sequence[Node], context: GradingContext) -> list[Grade]:
    """The grader during a search: every grade is withheld."""
    return [Grade.ungraded(UNSEEN)] * len(leaves)


async def grow(
    rollout: Any,
    policy: Policy,
    engine: Engine,
    tasks: Sequence[Task],
    value: Valued,
    *,
    seed: int,
    done: Callable[[Tree], None] | None = None,
) -> GrownTrees:
    """Every task's tree. Seeds do not depend on the strategy: strategies with the same sampling get the same samples.

    Args:
        rollout: its settings.
        engine: a new one: all that it computes is this search's cost.
    """
    runtime = InProcess(policy, engine, unseen, seed=seed, value=value, tools=rollout.tools)
    began = time.perf_counter()
    with allow_code():  # what a strategy names was typed, or allowed when it was loaded
        built = rollout.build()
    trees = await runtime.run(tasks, built, key="search", done=done)
    return GrownTrees(trees, engine.tokens_computed, time.perf_counter() - began, value, value.tokens, runtime)


async def measure(
    strategy: Strategy, size: int, grown: GrownTrees, grader: Grader, settings: dict[str, Any]
) -> tuple[StrategyResult, list[dict[str, Any]]]:
    """Choose by votes and values, then grade with the verifier.

    Returns:
        The metrics, and the candidates: one mapping per task.
    """
    began = time.perf_counter()
    candidates = candidates_of(grown.trees, grown.value if strategy.reads_values else None)
    if strategy.reads_values and grown.choosing_seconds is None:
        grown.choosing_seconds = time.perf_counter() - began
    chosen = [CHOICES[strategy.choose](of) if len(of) > 1 else 0 if of else None for of in candidates]
    if not grown.graded:
        await grade(grown, grader)
        grown.graded = True
    n = len(grown.trees)
    read = verdict_reader(leaf.grade for tree in grown.trees for leaf in tree.trajectories)
    verdicts = [[read(leaf.grade) for leaf in tree.trajectories] for tree in grown.trees]
    right = [False if at is None else of[at] for at, of in zip(chosen, verdicts, strict=True)]
    result = StrategyResult(
        strategy=strategy.label,
        size=size,
        settings=settings,
        right=right,
        any_correct=[_any(of) for of in verdicts],
        levels=[_level(tree.task) for tree in grown.trees],
        tokens_sampled=sum(tree.sampled_tokens for tree in grown.trees) / n,
        tokens_computed=grown.tokens_computed / n,
        # The cost of shared trees and values is charged in full to each strategy.
        tokens_valued=(grown.value.tokens if strategy.reads_values else grown.tokens_valued) / n,
        trajectories=sum(map(len, verdicts)) / n,
        seconds=grown.seconds + ((grown.choosing_seconds or 0.0) if strategy.reads_values else 0.0),
        unanswered=chosen.count(None),
        reasons=_reasons(grown.trees, chosen, read),
    )
    rows = zip(grown.trees, candidates, chosen, verdicts, strict=True)
    return result, [answer(tree, of, at, right) for tree, of, at, right in rows]


def candidates_of(trees: Sequence[Tree], value: ValueModel | None) -> list[list[Candidate]]:
    """Every tree's trajectories as candidates; values are computed in one call.

    A tree of one trajectory needs no choice and no value.
    """
    leaves = [leaf for tree in trees if len(tree.trajectories) > 1 for leaf in tree.trajectories]
    found = dict(zip(leaves, value(leaves), strict=True)) if value is not None else {}
    return [[Candidate(vote(leaf.completion), found.get(leaf)) for leaf in tree.trajectories] for tree in trees]


async def grade(grown: GrownTrees, grader: Grader) -> None:
    """Grade all trajectories, those of a task together."""
    runtime = InProcess(grown.runtime.policy, grown.runtime.engine, grader, seed=grown.runtime.seed)
    for leaf in (leaf for tree in grown.trees for leaf in tree.trajectories):
        leaf.grade = None  # that of ``unseen``
    await gather(runtime.grade(tree.task, tree.trajectories, key="chosen") for tree in grown.trees)


def answer(
    tree: Tree, candidates: Sequence[Candidate], chosen: int | None, verdicts: Sequence[bool | None]
) -> dict[str, Any]:
    """A task's tree as JSON: nodes by number, parents first, and every trajectory with its last node."""
    nodes = list(tree.nodes())
    number = {node: i for i, node in enumerate(nodes)}
    return {
        "task_id": tree.task.id,
        "level": _level(tree.task),
        "chosen": chosen,
        "trajectories": [
            {
                "node": number[leaf],
                "answer": candidate.answer,
                "value": candidate.value,
                "right": verdict,
                "finish": leaf.finish,
                "completion": leaf.completion,
            }
            for leaf, candidate, verdict in zip(tree.trajectories, candidates, verdicts, strict=True)
        ],
        "nodes": [
            {
                "parent": None if node.parent is None else number[node.parent],
                "tokens": len(node.tokens),
                "text": node.text,
                "value": node.value,
            }
            for node in nodes
        ],
        "metadata": tree.metadata,
    }


def _any(verdicts: Sequence[bool | None]) -> bool | None:
    graded = [verdict for verdict in verdicts if verdict is not None]
    return any(graded) if graded or not verdicts else None


def _level(task: Task) -> str | None:
    level = task.columns.get("level")
    return None if level is None else str(level)


def _reasons(
    trees: Sequence[Tree], chosen: Sequence[int | None], read: Callable[[Grade | None], bool | None]
) -> dict[str, int]:
    """Why chosen answers could not be graded, the most frequent first."""
    leaves = [tree.trajectories[at] for tree, at in zip(trees, chosen, strict=True) if at is not None]
    found = Counter(
        (leaf.grade.reason or "no verdict") if leaf.grade is not None else "not graded"
        for leaf in leaves
        if read(leaf.grade) is None
    )
    return dict(found.most_common(10))
