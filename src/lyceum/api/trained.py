"""A finished run, as a notebook holds it."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lyceum.run.reader import read_examples, read_run_folder
from lyceum.utils.errors import RecipeError

if TYPE_CHECKING:
    from lyceum.evaluation.measure import Accuracy


class Trained:
    """The results of a run.

    Attributes:
        path: the run's folder.
        model: its Hugging Face model folder.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.model = self.path / "model"

    @property
    def summary(self) -> dict[str, Any]:
        """summary.json: accuracy ``before`` and ``after``, and the cost."""
        return dict(read_run_folder(self.path).summary)

    @property
    def learnt(self) -> bool | None:
        """Whether rewards had a learning signal; ``summary["nothing_learnt"]`` says why not. None if no stage
        sampled."""
        return self.summary.get("learnt")

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """One mapping per step; ``pandas.DataFrame(run.metrics)`` makes a table of them."""
        return read_run_folder(self.path).metrics

    @property
    def examples(self) -> list[dict[str, Any]]:
        """The same held-out tasks answered before and after training; those that were learnt first."""
        return read_examples(self.path)

    @property
    def report(self) -> Path:
        """report.html: one self-contained file for a browser."""
        return self.path / "report.html"

    def evaluate(self, tasks: Any = None, *, k: Sequence[int] = (1, 8), **keys: Any) -> Accuracy:
        """:func:`lyceum.evaluate` of the trained model; by default on the run's own held-out tasks."""
        from lyceum.api import evaluate

        if not self.model.is_dir():
            raise RecipeError(f"{self.path}: has no model yet; allowed: a run that has finished")
        return evaluate(self.path, tasks, k=k, **keys)

    def __repr__(self) -> str:
        return f"Trained({str(self.path)!r}, {_headline(self.summary)})"

    def _repr_html_(self) -> str:
        return (
            f"<b>{escape(self.path.name)}</b> {escape(_headline(self.summary))} (<code>{escape(str(self.path))}</code>)"
        )


def _headline(summary: dict[str, Any]) -> str:
    idle = "nothing learnt, " if summary.get("learnt") is False else ""
    before, after = ((summary.get(when) or {}).get("overall") for when in ("before", "after"))
    if not before or not after:
        return f"{idle}not evaluated"
    return f"{idle}held-out {100 * before['mean']:.1f} -> {100 * after['mean']:.1f} %"
