"""ALP-GMM: tasks generated from parameters, drawn from Gaussians where performance is changing fastest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float
from pydantic import Field, model_validator

from lyceum.core.component import require_keys
from lyceum.core.notes import Note
from lyceum.core.settings import CurriculumSettings
from lyceum.core.tree import Tree
from lyceum.core.types import Curriculum, Task, TaskSource
from lyceum.curriculum._bandit import pick
from lyceum.curriculum.base import success
from lyceum.models.policy import Policy
from lyceum.utils.errors import RecipeError

Points = Float[np.ndarray, "task parameter"]
NEIGHBOURS_FROM = 6
"""Minimum earlier outcomes for a nearest-neighbour search; with fewer, progress is 0."""


@runtime_checkable
class ParametricSource(Protocol):
    """A task source that also generates tasks from given real-valued difficulty parameters."""

    @property
    def parameters(self) -> Mapping[str, tuple[float, float]]:
        """Name -> (lowest, highest) of each parameter."""
        ...

    def at(self, values: Mapping[str, float], key: str) -> Task:
        """The task of these parameters and this key: a pure function of both, in the source's own split.

        An integer parameter is rounded stochastically: the fractional part is the probability of rounding up.
        """
        ...


@dataclass(frozen=True)
class Parameters(Note):
    """The difficulty parameters that a task was drawn with, by name; read when its outcome is known."""

    kind: ClassVar[str] = "parameters"
    values: Mapping[str, float]


class AlpGmm(CurriculumSettings):
    """Task parameters drawn from a mixture of Gaussians by its mean absolute learning progress."""

    kind: Literal["alp-gmm"] = "alp-gmm"
    fit_every: int = Field(250, ge=2)
    """Tasks between fits of the mixture, each fitted to exactly these tasks; the first ``fit_every`` are random."""
    random_share: float = Field(0.2, ge=0, le=1)
    """Share of the tasks whose parameters are drawn uniformly throughout (no unit)."""
    least_components: int = Field(2, ge=1)
    """Minimum number of Gaussians tried."""
    most_components: int = Field(10, ge=1)
    """Maximum number of Gaussians tried."""
    criterion: Literal["aic", "bic"] = "aic"
    """Model selection: Akaike's or the Bayesian information criterion."""

    @model_validator(mode="after")
    def _numbers_fit(self) -> AlpGmm:
        if not self.least_components <= self.most_components <= self.fit_every:
            raise ValueError(
                f"most_components: got {self.most_components} with least_components {self.least_components} and "
                f"fit_every {self.fit_every}; allowed: from least_components to fit_every"
            )
        return self

    def check_tasks(self, source: TaskSource) -> None:
        """Refuse tasks that cannot be generated from parameters."""
        parametric(source)

    def build(self, source: TaskSource, *, seed: int, policy: Policy | None = None) -> Curriculum:
        return AlpGmmCurriculum(self, parametric(source), seed=seed)


def parametric(source: TaskSource) -> ParametricSource:
    """The source, where it makes tasks from parameters.

    Raises:
        RecipeError: it does not, or its parameters leave nothing to choose.
    """
    if not isinstance(source, ParametricSource):
        raise RecipeError(
            f"tasks: {type(source).__name__} cannot make tasks from real-valued parameters, which curriculum 'alp-gmm' "
            "chooses; allowed: chain, countdown, or another curriculum"
        )
    if all(low == high for low, high in source.parameters.values()):
        raise RecipeError("tasks: every parameter has one value only; allowed: bounds that leave a choice")
    return source


class AlpGmmCurriculum:
    """Its state: every task's parameters and outcome, the progress of the latest, and the mixture.

    Parameters are scaled to 0 .. 1 by their bounds, so that distances are comparable along each of them.
    """

    def __init__(self, settings: AlpGmm, source: ParametricSource, *, seed: int) -> None:
        self.settings, self.source, self.seed = settings, source, seed
        self.names = [name for name, (low, high) in source.parameters.items() if low < high]
        self.fixed = {name: low for name, (low, high) in source.parameters.items() if low == high}
        self.draws = 0
        self.points: Points = np.empty((0, len(self.names)))
        self.outcomes: Float[np.ndarray, " task"] = np.empty(0)
        self.recent: Float[np.ndarray, "task parameter_and_progress"] = np.empty((0, len(self.names) + 1))
        """The latest tasks' parameters, with their absolute learning progress as the last column."""
        self.mixture: GaussianMixture | None = None
        self._metrics: dict[str, float] = {}

    def draw(self, n: int) -> list[Task]:
        tasks = [self._task(k) for k in range(self.draws, self.draws + n)]
        self.draws += n
        return tasks

    def _task(self, k: int) -> Task:
        rng = np.random.default_rng([self.seed, k, 2])
        at_random = rng.random() < self.settings.random_share
        unit = rng.random(len(self.names)) if at_random or self.mixture is None else self.mixture.draw(rng)
        values = self._values(unit)
        return self.source.at(values, f"{self.seed}/{k}").with_note(Parameters(values))

    def _values(self, unit: Float[np.ndarray, " parameter"]) -> dict[str, float]:
        bounds = [self.source.parameters[name] for name in self.names]
        scaled = [low + float(x) * (high - low) for x, (low, high) in zip(unit, bounds, strict=True)]
        return {**dict(zip(self.names, scaled, strict=True)), **self.fixed}

    def _unit(self, values: Mapping[str, float]) -> list[float]:
        bounds = {name: self.source.parameters[name] for name in self.names}
        return [(values[name] - low) / (high - low) for name, (low, high) in bounds.items()]

    def observe(self, trees: Sequence[Tree]) -> None:
        known = [
            (drawn.values, rate)
            for tree in trees
            if (rate := success(tree)) is not None and (drawn := tree.task.note(Parameters)) is not None
        ]
        points = np.array([self._unit(values) for values, _ in known]).reshape(len(known), len(self.names))
        outcomes = np.array([rate for _, rate in known])
        # A step's tasks were all sampled with the same weights, without learning between them, so that they are
        # compared with earlier steps and not with each other.
        progress = absolute_progress(points, outcomes, self.points, self.outcomes)
        for point, outcome, change in zip(points, outcomes, progress, strict=True):
            self.points = np.concatenate([self.points, point[None]])
            self.outcomes = np.append(self.outcomes, outcome)
            self.recent = np.concatenate([self.recent, [[*point, change]]])[-self.settings.fit_every :]
            if len(self.points) % self.settings.fit_every == 0:
                self.mixture = fit(self.recent, self.settings, seed=self.seed + len(self.points))
        self._metrics = {f"{name}/drawn": fmean(values[name] for values, _ in known) for name in self.names if known}
        self._metrics |= {"progress/drawn": float(progress.mean())} if known else {}

    def weight(self, tree: Tree) -> float:
        return 1.0

    def metrics(self) -> dict[str, float]:
        return self._metrics | ({"components/mixture": float(len(self.mixture.share))} if self.mixture else {})

    def state_dict(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "names": self.names,
            "draws": self.draws,
            "points": self.points.tolist(),
            "outcomes": self.outcomes.tolist(),
            "recent": self.recent.tolist(),
            "mixture": None if self.mixture is None else self.mixture.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        require_keys("curriculum.alp-gmm", given=state, needed=self.state_dict())
        if state["names"] != self.names:
            raise RecipeError(
                f"tasks: got parameters {', '.join(self.names)}, but the saved run had {', '.join(state['names'])}; "
                "allowed: the tasks that the run began with, or a new run"
            )
        width = len(self.names)
        self.seed, self.draws = int(state["seed"]), int(state["draws"])
        self.points = np.array(state["points"], dtype=float).reshape(-1, width)
        self.outcomes = np.array(state["outcomes"], dtype=float)
        self.recent = np.array(state["recent"], dtype=float).reshape(-1, width + 1)
        self.mixture = (
            None
            if state["mixture"] is None
            else GaussianMixture(**{k: np.array(v) for k, v in state["mixture"].items()})
        )


class GaussianMixture:
    """Gaussians over (parameters, progress), each drawn from in proportion to its mean progress.

    Args:
        mean: (components, parameters + 1).
        covariance: (components, parameters + 1, parameters + 1).
    """

    def __init__(self, mean: np.ndarray, covariance: np.ndarray) -> None:
        self.mean, self.covariance = mean, covariance
        self.share = shares_of(mean[:, -1])

    def draw(self, rng: np.random.Generator) -> Float[np.ndarray, " parameter"]:
        """A point in the unit box."""
        chosen = pick(self.share, float(rng.random()))
        return rng.multivariate_normal(self.mean[chosen], self.covariance[chosen])[:-1].clip(0, 1)

    def state_dict(self) -> dict[str, Any]:
        return {"mean": self.mean.tolist(), "covariance": self.covariance.tolist()}


def shares_of(progress: Float[np.ndarray, " k"]) -> Float[np.ndarray, " k"]:
    """Shares in proportion to the Gaussians' mean absolute progress; equal where all progress is 0."""
    total = progress.sum()
    return progress / total if total > 0 else np.full(len(progress), 1 / len(progress))


def absolute_progress(
    points: Points,
    outcomes: Float[np.ndarray, " task"],
    earlier: Float[np.ndarray, "old parameter"],
    earlier_outcomes: Float[np.ndarray, " old"],
) -> Float[np.ndarray, " task"]:
    """|r - r_near|: how much a task's outcome differs from that of the nearest earlier one.

    Args:
        points, outcomes: the tasks, in a space in which distance is Euclidean.
        earlier, earlier_outcomes: what they are compared with; ties go to the latest.
    Returns:
        In the outcomes' unit; 0 with fewer than ``NEIGHBOURS_FROM`` earlier ones.
    Source:
        Portelas et al., arXiv:1910.07224, section 3, and the released code (teachDeepRL, EmpiricalALPComputer).
    """
    if len(earlier) < NEIGHBOURS_FROM:
        return np.zeros(len(points))
    distance = ((points[:, None] - earlier[None, ::-1]) ** 2).sum(-1)
    return np.abs(outcomes - earlier_outcomes[::-1][distance.argmin(1)])


def fit(points: Float[np.ndarray, "task dim"], settings: AlpGmm, *, seed: int) -> GaussianMixture:
    """The mixture of Gaussians with full covariances and the number of components that is best by the criterion.

    Source:
        Portelas et al., arXiv:1910.07224, algorithm 1; the released code's defaults are those of ``AlpGmm``.
    """
    from sklearn import mixture  # here: it takes a second to import, and most runs never fit one

    counts = range(settings.least_components, settings.most_components + 1)
    fitted = [mixture.GaussianMixture(k, covariance_type="full", random_state=seed % 2**32).fit(points) for k in counts]
    best = min(fitted, key=lambda mixture: getattr(mixture, settings.criterion)(points))
    return GaussianMixture(np.asarray(best.means_), np.asarray(best.covariances_))
