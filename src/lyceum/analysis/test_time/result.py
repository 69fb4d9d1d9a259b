"""Results of a search: metrics of every result, accuracy at equal tokens, notes."""

from __future__ import annotations

from collections.abc import Iterator, KeysView, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lyceum.analysis.test_time.equal_cost import at_equal_tokens, usual_budgets
from lyceum.analysis.test_time.strategy_result import StrategyResult
from lyceum.utils.atomic_files import atomic_write
from lyceum.utils.html import share, table
from lyceum.utils.numbers import to_json


@dataclass(frozen=True)
class SearchResult:
    """``metrics``: ``results`` (each strategy at each size), ``at_equal_tokens``, ``notes``, and the request."""

    metrics: dict[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.metrics[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.metrics)

    def keys(self) -> KeysView[str]:
        return self.metrics.keys()

    def __repr__(self) -> str:
        found = (f"{of['strategy']} {of['size']}: {share(of['accuracy'])}" for of in self.metrics["results"])
        return f"SearchResult({', '.join(found)})"

    def _repr_html_(self) -> str:
        rows = [
            (
                of["strategy"],
                str(of["size"]),
                share(of["accuracy"]),
                share(of["pass_oracle"]),
                f"{of['tokens_spent']:.0f}",
            )
            for of in self.metrics["results"]
        ]
        title = f"{self.metrics['model']} on {self.metrics['tasks_from']['kind']}"
        return table(("strategy", "size", "accuracy", "pass@n", "tokens per task"), rows, title=title)

    def to_json(self) -> dict[str, Any]:
        return self.metrics

    @classmethod
    def of(
        cls, request: Mapping[str, Any], results: Sequence[StrategyResult], tokens: Sequence[float], *, seconds: float
    ) -> SearchResult:
        """
        Args:
            request: model, tasks, sampling, seed, value.
            results: in the order of their sizes.
            tokens: budgets to compare at; if empty, :func:`usual_budgets`.
        """
        curves: dict[str, list[StrategyResult]] = {}
        for result in results:
            curves.setdefault(result.strategy, []).append(result)
        budgets = list(tokens) or usual_budgets(curves)
        equal = at_equal_tokens(curves, budgets)
        of_note: dict[str, list[str]] = {}
        for result in results:
            for note in result.notes:
                of_note.setdefault(note, []).append(result.strategy)
        notes = [f"{', '.join(dict.fromkeys(strategies))}: {note}" for note, strategies in of_note.items()]
        for row in equal:
            least = min(result.tokens_spent for result in results)
            if row["tokens"] < least:
                notes.append(
                    f"{row['tokens']:.0f} tokens per task are fewer than any search spent ({least:.0f} the least)"
                )
        metrics = {
            **request,
            "results": [result.metrics() for result in results],
            "at_equal_tokens": equal,
            "notes": notes,
            "seconds": round(seconds, 3),
        }
        return cls(metrics)

    def write(self, folder: Path) -> list[Path]:
        """search.json and search.png in ``folder``."""
        from lyceum.analysis.test_time.show import plot

        folder.mkdir(parents=True, exist_ok=True)
        atomic_write(folder / "search.json", to_json(self.metrics, indent=2) + "\n")
        return [folder / "search.json", plot(self.metrics, folder / "search.png")]
