"""A search that can be run: strategies, sizes, values and folder checked before any model is loaded."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lyceum.core.settings import Composition
from lyceum.core.tree import Tree
from lyceum.core.types import Grader, Task
from lyceum.evaluation.measure import Measurement
from lyceum.models.policy import Policy
from lyceum.recipe.schema import Overrides
from lyceum.run.outputs import check_output, input_paths
from lyceum.test_time.cells import ASKED, Cell, Folder
from lyceum.test_time.request import SearchRequest
from lyceum.test_time.result import SearchResult
from lyceum.test_time.run import Grown, Valued, grow, measure
from lyceum.test_time.strategy import Strategy
from lyceum.utils.aio import run_async
from lyceum.utils.errors import Interrupted, RecipeError
from lyceum.utils.garbage_collection import only_new
from lyceum.utils.progress import Progress


@dataclass(frozen=True)
class Planned:
    """A cell to be measured, or one that the folder already has."""

    strategy: Strategy
    size: int
    rollout: Any
    done: Cell | None

    @property
    def name(self) -> str:
        return f"{self.strategy.label}-{self.size}"

    @property
    def settings(self) -> dict[str, Any]:
        return {"rollout": self.rollout.model_dump(mode="json"), "choose": self.strategy.choose}


@dataclass(frozen=True)
class Plan:
    """A validated search; made by :meth:`of`."""

    measurement: Measurement
    asked: SearchRequest
    cells: list[Planned]
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
    ) -> Plan:
        asked, rest = SearchRequest.of(strategies, sizes, value, tokens, overrides)
        measurement = Measurement.of(model, tasks, rest, k=(1,), n=n, samples=1, greedy=False, seed=seed, loaded=loaded)
        engine = measurement.recipe.evaluation_engine
        composition = Composition(value=asked.value, engine=engine)
        if lines := asked.check(composition):
            raise RecipeError(lines)
        folder = None
        if output is not None:
            # Only settings that trees and answers depend on; the budgets to compare at may change.
            told = measurement.asked | {
                "n": n,
                "reward": [part.model_dump(mode="json") for part in measurement.recipe.reward],
                "value": None if asked.value is None else asked.value.model_dump(mode="json"),
            }
            inputs = input_paths(measurement.recipe) | input_paths(asked.value, "value")
            place = check_output("output", Path(output).expanduser(), folder=True, inputs=inputs)
            if place.is_dir() and any(place.iterdir()) and not (place / ASKED).exists():
                raise RecipeError(
                    f"output: {str(output)!r} holds other files than a search's; allowed: a new or empty folder, or "
                    "one that an earlier search wrote"
                )
            folder = Folder(place, told)
        cells: list[Planned] = []
        for size, strategy in [
            (size, strategy)
            for size in asked.sizes
            for strategy in asked.strategy
            if strategy.size is None or size == asked.sizes[0]
        ]:
            size = strategy.size or size
            try:
                rollout = strategy.sized(size, measurement.sampling)
            except RecipeError as error:
                lines += error.lines
                continue
            lines += [f"{strategy.label}: {line}" for line in rollout.check(composition)]
            lines += engine.check(replace(composition, rollout=rollout))
            planned = Planned(strategy, size, rollout, None)
            done = None if folder is None else folder.done(planned.name, planned.settings)
            cells.append(replace(planned, done=done))
        if lines:
            raise RecipeError(list(dict.fromkeys(lines)))
        if folder is not None:
            folder.refuse_others(cell.name for cell in cells)
        return cls(measurement, asked, cells, folder)

    def run(self, interrupted: Callable[[], bool]) -> SearchResult:
        """Measure the missing cells, and report on all.

        Args:
            interrupted: called between cells.
        Raises:
            Interrupted: after a cell; finished cells stay in the folder.
        """
        at = time.perf_counter()
        cells = [planned.done for planned in self.cells if planned.done is not None]
        if len(cells) < len(self.cells):
            policy, grader, tasks = self.measurement.opened()
            cells = run_async(self._search(policy, grader, tasks, interrupted))
        told = self.measurement.asked | {
            "value": None if self.asked.value is None else self.asked.value.model_dump(mode="json")
        }
        found = SearchResult.of(told, cells, self.asked.tokens, seconds=time.perf_counter() - at)
        if self.folder is not None:
            found.write(self.folder.path)
        return found

    async def _search(
        self, policy: Policy, grader: Grader, tasks: list[Task], interrupted: Callable[[], bool]
    ) -> list[Cell]:
        cells: list[Cell] = []
        grown: dict[tuple[int, str], Grown] = {}
        missing = [planned for planned in self.cells if planned.done is None]
        settings = self.asked.value
        values = None if settings is None else settings.build(policy, seed=self.measurement.recipe.seed)
        with Progress(len(missing) * len(tasks), title="searching", unit="task") as progress, only_new():
            for planned in self.cells:
                if planned.done is not None:
                    cells.append(planned.done)
                    continue
                before = sum(cell.done is None for cell in self.cells[: len(cells)])
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
                cell, answers = await measure(planned.strategy, planned.size, grown[key], grader, planned.settings)
                if note := planned.rollout.note(grown[key].trees):
                    cell.notes.append(note)
                if self.folder is not None:
                    self.folder.write(cell, answers)
                cells.append(cell)
                progress.step((before + 1) * len(tasks))
        return cells


def counter(progress: Progress, name: str, before: int, total: int) -> Callable[[Tree], None]:
    """A progress callback for each finished tree of a cell, after ``before`` trees of other cells."""
    finished = 0

    def done(_: Tree) -> None:
        nonlocal finished
        finished += 1
        progress.phase(name, finished, total)
        progress.step(before + finished)

    progress.phase(name, 0, total)
    return done
