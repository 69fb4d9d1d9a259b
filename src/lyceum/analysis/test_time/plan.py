"""A search that can be run: strategies, sizes, values and folder checked before any model is loaded."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lyceum.analysis.measure import Measurement
from lyceum.analysis.test_time.request import SearchRequest
from lyceum.analysis.test_time.result import SearchResult
from lyceum.analysis.test_time.run import GrownTrees, Valued, grow, measure
from lyceum.analysis.test_time.strategy import Strategy
from lyceum.analysis.test_time.strategy_result import REQUEST, Folder, StrategyResult
from lyceum.core.settings import Composition
from lyceum.core.tree import Tree
from lyceum.core.types import Grader, Task
from lyceum.models.policy import Policy
from lyceum.recipe.schema import Overrides
from lyceum.run.files import check_output, input_paths
from lyceum.utils.aio import run_async
from lyceum.utils.errors import Interrupted, RecipeError
from lyceum.utils.garbage_collection import only_new
from lyceum.utils.paths import local_path
from lyceum.utils.progress import Progress


@dataclass(frozen=True)
class PlannedSearch:
    """A strategy at a size: to be measured, or done already."""

    strategy: Strategy
    size: int
    rollout: Any
    done: StrategyResult | None

    @property
    def name(self) -> str:
        return f"{self.strategy.label}-{self.size}"

    @property
    def settings(self) -> dict[str, Any]:
        return {"rollout": self.rollout.model_dump(mode="json"), "choose": self.strategy.choose}


@dataclass(frozen=True)
class SearchPlan:
    """A validated search; made by :meth:`of`."""

    measurement: Measurement
    request: SearchRequest
    planned: list[PlannedSearch]
    folder: Folder | None

    @classmethod
    def of(
        cls,
        model: Any,
        tasks: Any,
        overrides: Overrides,
        *,
        strategies: Sequence[Any],
        sizes: Sequence[int],
        value: Any,
        tokens: Sequence[float],
        n: int,
        seed: int,
        output: Path | str | None,
        loaded: Policy | None = None,
    ) -> SearchPlan:
        request, rest = SearchRequest.of(strategies, sizes, value, tokens, overrides)
        one = {"k": (1,), "samples": 1, "greedy": False}
        measurement = Measurement.of(model, tasks, rest, **one, n=n, seed=seed, loaded=loaded, command="search")
        engine = measurement.recipe.evaluation_engine
        composition = Composition(value=request.value, engine=engine)
        if lines := request.check(composition):
            raise RecipeError(lines)
        folder = None
        if output is not None:
            # Only settings that trees and answers depend on; the budgets to compare at may change.
            told = measurement.request | {
                "n": n,
                "reward": [part.model_dump(mode="json") for part in measurement.recipe.reward],
                "value": None if request.value is None else request.value.model_dump(mode="json"),
            }
            inputs = input_paths(measurement.recipe) | input_paths(request.value, "value")
            place = check_output("output", local_path(output), folder=True, inputs=inputs)
            if place.is_dir() and any(place.iterdir()) and not (place / REQUEST).exists():
                raise RecipeError(
                    f"output: {str(output)!r} holds other files than a search's; allowed: a new or empty folder, or "
                    "one that an earlier search wrote"
                )
            folder = Folder(place, told)
        planned: list[PlannedSearch] = []
        for size, strategy in [
            (size, strategy)
            for size in request.sizes
            for strategy in request.strategy
            if strategy.size is None or size == request.sizes[0]
        ]:
            size = strategy.size or size
            try:
                rollout = strategy.sized(size, measurement.sampling)
            except RecipeError as error:
                lines += error.lines
                continue
            lines += [f"{strategy.label}: {line}" for line in rollout.conflicts(composition)]
            lines += engine.conflicts(replace(composition, rollout=rollout))
            each = PlannedSearch(strategy, size, rollout, None)
            done = None if folder is None else folder.done(each.name, each.settings)
            planned.append(replace(each, done=done))
        if lines:
            raise RecipeError(list(dict.fromkeys(lines)))
        if folder is not None:
            folder.refuse_others(each.name for each in planned)
        return cls(measurement, request, planned, folder)

    def run(self, interrupted: Callable[[], bool]) -> SearchResult:
        """Measure what is missing, and report on all.

        Args:
            interrupted: called between two sizes of a strategy.
        Raises:
            Interrupted: what is finished stays in the folder.
        """
        at = time.perf_counter()
        results = [planned.done for planned in self.planned if planned.done is not None]
        if len(results) < len(self.planned):
            policy, grader, tasks = self.measurement.opened()
            results = run_async(self._search(policy, grader, tasks, interrupted))
        told = self.measurement.request | {
            "value": None if self.request.value is None else self.request.value.model_dump(mode="json")
        }
        found = SearchResult.of(told, results, self.request.tokens, seconds=time.perf_counter() - at)
        if self.folder is not None:
            found.write(self.folder.path)
        return found

    async def _search(
        self, policy: Policy, grader: Grader, tasks: list[Task], interrupted: Callable[[], bool]
    ) -> list[StrategyResult]:
        results: list[StrategyResult] = []
        grown: dict[tuple[int, str], GrownTrees] = {}
        missing = [planned for planned in self.planned if planned.done is None]
        settings = self.request.value
        values = None if settings is None else settings.build(policy, seed=self.measurement.recipe.seed)
        with Progress(len(missing) * len(tasks), title="searching", unit="task") as progress, only_new():
            progress.stops_after = "size"
            for planned in self.planned:
                if planned.done is not None:
                    results.append(planned.done)
                    continue
                before = sum(each.done is None for each in self.planned[: len(results)])
                if interrupted():
                    raise Interrupted(before)
                key = (planned.size, planned.rollout.model_dump_json())
                if key not in grown:
                    # Cells are ordered by size; trees of other sizes are not needed again.
                    grown = {known: of for known, of in grown.items() if known[0] == planned.size}
                    value = Valued(values, reads=settings is None or settings.reads)
                    done = counter(progress, planned.name, before * len(tasks), len(tasks))
                    seed = self.measurement.recipe.seed
                    engine = self.measurement.recipe.evaluation_engine.build(policy)
                    grown[key] = await grow(planned.rollout, policy, engine, tasks, value, seed=seed, done=done)
                progress.phase(f"grading {planned.name}")
                result, answers = await measure(planned.strategy, planned.size, grown[key], grader, planned.settings)
                if note := planned.rollout.note(grown[key].trees):
                    result.notes.append(note)
                if self.folder is not None:
                    self.folder.write(result, answers)
                results.append(result)
                progress.step((before + 1) * len(tasks))
        return results


def counter(progress: Progress, name: str, before: int, total: int) -> Callable[[Tree], None]:
    """A progress callback for each finished tree, after ``before`` others."""
    finished = 0

    def done(_: Tree) -> None:
        nonlocal finished
        finished += 1
        progress.phase(name, finished, total)
        progress.step(before + finished)

    progress.phase(name, 0, total)
    return done
