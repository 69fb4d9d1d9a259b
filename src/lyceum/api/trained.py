"""A finished run, as a notebook holds it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lyceum.run.reader import read_examples, read_run_folder, require_folder
from lyceum.utils.errors import RecipeError
from lyceum.utils.html import mean_reward, share, shares, table

if TYPE_CHECKING:
    import pandas

    from lyceum.analysis.measure import Accuracy
    from lyceum.analysis.run_figure import RunFigure


def folder_of(value: Any) -> Any:
    """A run's folder in the place of the run; any other value as it is."""
    return value.path if isinstance(value, Trained) else value


class Trained:
    """The results of a run."""

    def __init__(self, path: Path | str) -> None:
        """Raises RecipeError where there is no such folder."""
        self._path, self._seen_from = require_folder(path), Path.cwd()

    @property
    def path(self) -> Path:
        """The run's folder: as it was given, or absolute where the working directory is another one by now."""
        return self._path if Path.cwd() == self._seen_from else self._seen_from / self._path

    @property
    def model(self) -> Path:
        """Its Hugging Face model folder."""
        return self.path / "model"

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
        """One mapping per step."""
        return read_run_folder(self.path).metrics

    @property
    def curves(self) -> pandas.DataFrame:
        """The metrics as a DataFrame: a row per step, which is its index."""
        import pandas  # a slow import; it comes with datasets

        return pandas.DataFrame(self.metrics, columns=None if self.metrics else ["step"]).set_index("step")

    @property
    def rollouts(self) -> pandas.DataFrame:
        """The recorded samples as a DataFrame, a row each; every ``rollouts_every``-th step has them.

        ``outcome`` is the reward, ``answer`` the task's own. ``correct`` is <NA> where nothing says whether a sample
        is: ``rollouts.query("not correct")`` leaves it out.
        """
        import pandas
        import pyarrow

        from lyceum.run.rollout_table import read_rollouts

        # As objects, which True, False and None are otherwise, a column cannot be negated.
        nullable = {pyarrow.bool_(): pandas.BooleanDtype()}
        frame = read_rollouts(self.path).to_pandas(types_mapper=nullable.get)
        frame.insert(frame.columns.get_loc("completion") + 1, "answer", [json.loads(of)["answer"] for of in frame.task])
        return frame

    def plot(self, *metrics: str) -> RunFigure:
        """A matplotlib figure of these metrics against steps, by default of held-out accuracy, reward and completion
        length, or of the loss; a notebook shows it, and ``savefig`` writes it."""
        from lyceum.analysis.run_figure import run_figure  # imports matplotlib

        return run_figure(read_run_folder(self.path), metrics)

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
        from lyceum.models.load import no_model_yet

        if not self.model.is_dir():
            raise RecipeError(f"model: {no_model_yet(self.path)}")
        return evaluate(self.path, tasks, k=k, **keys)

    def __repr__(self) -> str:
        return f"Trained({str(self.path)!r}, {_headline(self.summary)})"

    def _repr_html_(self) -> str:
        summary = self.summary
        before, after = (shares(summary.get(when) or {}) for when in ("before", "after"))
        rows = [(name, share(before.get(name)), share(after.get(name))) for name in {**before, **after}]
        rewards = [mean_reward(summary.get(when) or {}) for when in ("before", "after")]
        rows += [(name, *(of.get(name, "-") for of in rewards)) for name in {**rewards[0], **rewards[1]}]
        title = f"{self.path.name} ({self.path}): {_headline(summary)}"
        return table(("held-out", "before", "after") if rows else (), rows, title=title)


def _headline(summary: dict[str, Any]) -> str:
    idle = "nothing learnt, " if summary.get("learnt") is False else ""
    for key, unit, factor in (("overall", " %", 100), ("reward", " mean reward", 1)):
        before, after = ((summary.get(when) or {}).get(key) for when in ("before", "after"))
        if before and after:
            return f"{idle}held-out {factor * before['mean']:.1f} -> {factor * after['mean']:.1f}{unit}"
    return f"{idle}not evaluated"
