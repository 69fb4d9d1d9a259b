"""Knapsack RL: how many rollouts each task of a batch gets, to maximise the batch's total value."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Annotated, Any, Literal

import numpy as np
from jaxtyping import Float, Int
from pydantic import Field, model_validator

from lyceum.core.component import of_kind, slot
from lyceum.core.settings import Composition, CurriculumSettings
from lyceum.core.tree import Tree
from lyceum.core.types import Curriculum, Task, TaskSource
from lyceum.curriculum.base import Around, categories_of, category_of, samples_as_in
from lyceum.models.policy import Policy
from lyceum.utils.numbers import evenly, level_order


class Knapsack(CurriculumSettings):
    """The draws of another curriculum, with the batch's rollouts allocated where their value is highest.

    A task's success rate is that of its own earlier rollouts, or else of its category's; one where neither is known
    gets ``samples``.
    """

    kind: Literal["knapsack"] = "knapsack"
    samples: int = Field(8, ge=2)
    """Mean rollouts per task: the batch's total is exactly this times its tasks. ``rollout.samples``, or a search's
    ``rollout.trajectories``, must be the same."""
    least: int = Field(2, ge=2)
    """Minimum rollouts of a task that is sometimes solved."""
    most: int = Field(128, ge=2)
    """Maximum rollouts of such a task, as long as others can take the rest."""
    never_solved: int = Field(2, ge=2)
    """Rollouts of a task that was never solved, before it gets what others do not need."""
    always_solved: int = Field(2, ge=2)
    """Rollouts of a task that was always solved."""
    window: int = Field(16, ge=1)
    """Rollouts in a task's success rate: its latest groups with at least this many together."""
    category_window: int = Field(256, ge=1)
    """The same for a category."""
    known_from: int = Field(8, ge=1)
    """Minimum rollouts for a rate to count as known."""
    confidence: float = Field(0.9, gt=0, lt=1)
    """Probability of seeing both a correct and an incorrect answer, which defines a task's need: the surplus over all
    needs goes to tasks that were never solved (no unit)."""
    by: str | None = "level"
    """Column that names a task's category, or ``provenance``; null uses the tasks' own rates alone."""
    draws: Annotated[CurriculumSettings, slot("curriculum", "uniform")] = of_kind("uniform")
    """Which tasks are drawn."""

    @model_validator(mode="after")
    def _numbers_fit(self) -> Knapsack:
        for name in ("least", "never_solved", "always_solved"):
            if getattr(self, name) > self.samples:
                raise ValueError(
                    f"{name}: got {getattr(self, name)}, but samples is {self.samples}; allowed: 2 to {self.samples}"
                )
        if self.most < self.samples:
            raise ValueError(f"most: got {self.most}, but samples is {self.samples}; allowed: at least that")
        return self

    def check(self, stage: Composition) -> list[str]:
        return samples_as_in(stage, self.samples)

    def check_tasks(self, source: TaskSource) -> None:
        if self.by is not None:
            categories_of(source, self.by)
        super().check_tasks(source)

    def build(self, source: TaskSource, *, seed: int, policy: Policy | None = None) -> Curriculum:
        return KnapsackCurriculum(self, self.draws.build(source, seed=seed, policy=policy))


class KnapsackCurriculum(Around):
    """Its state: the latest outcomes of each task and of each category."""

    def __init__(self, settings: Knapsack, inner: Curriculum) -> None:
        super().__init__(inner)
        self.settings = settings
        self.of_task = Rates(settings.window)
        self.of_category = Rates(settings.category_window)
        self.granted: dict[str, list[int]] = {}
        """Rollouts allocated to each tree of the last observed step, by category."""

    def draw(self, n: int) -> list[Task]:
        settings = self.settings
        tasks = self.inner.draw(n)
        budget = allocate(
            [self.rate(task) for task in tasks],
            settings.samples * len(tasks),
            unknown=settings.samples,
            least=settings.least,
            most=settings.most,
            never_solved=settings.never_solved,
            always_solved=settings.always_solved,
            confidence=settings.confidence,
        )
        return [replace(task, samples=samples) for task, samples in zip(tasks, budget, strict=True)]

    def rate(self, task: Task) -> float | None:
        """The task's success rate; None where unknown."""
        own = self.of_task.rate(task.id, self.settings.known_from)
        if own is not None or self.settings.by is None:
            return own
        return self.of_category.rate(category_of(task, self.settings.by), self.settings.known_from)

    def observe(self, trees: Sequence[Tree]) -> None:
        granted: dict[str, list[int]] = defaultdict(list)
        for tree in trees:
            # Trajectories that a guide put in place of failures say nothing about the task's need.
            said = [leaf.grade.verdict for leaf in tree.unaided if leaf.grade is not None]
            verdicts = [verdict for verdict in said if verdict is not None]
            category = "all" if self.settings.by is None else category_of(tree.task, self.settings.by)
            granted[category].append(tree.task.samples or 0)
            if verdicts:
                self.of_task.add(tree.task.id, sum(verdicts), len(verdicts))
                self.of_category.add(category, sum(verdicts), len(verdicts))
        self.granted = {name: granted[name] for name in sorted(granted, key=level_order)}
        super().observe(trees)

    def metrics(self) -> dict[str, float]:
        metrics = {f"samples/{name}": fmean(samples) for name, samples in self.granted.items()}
        if self.granted:
            metrics["most-samples/task"] = float(max(map(max, self.granted.values())))
        for name in self.granted:
            rate = self.of_category.rate(name, self.settings.known_from)
            metrics |= {} if rate is None else {f"rate/{name}": rate}
        return metrics | super().metrics()

    def state_dict(self) -> dict[str, Any]:
        return {
            **super().state_dict(),
            "of_task": self.of_task.state_dict(),
            "of_category": self.of_category.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.of_task.load_state_dict(state["of_task"])
        self.of_category.load_state_dict(state["of_category"])


class Rates:
    """Success rates of keys, each from its latest groups of outcomes.

    Args:
        window: number of outcomes; groups older than needed for this many are dropped.
    """

    def __init__(self, window: int) -> None:
        self.window = window
        self.groups: dict[str, list[tuple[int, int]]] = {}

    def add(self, key: str, right: int, of: int) -> None:
        """Add a group of ``of`` outcomes, ``right`` of them correct."""
        groups = [*self.groups.get(key, []), (right, of)]
        while sum(count for _, count in groups[1:]) >= self.window:
            del groups[0]
        self.groups[key] = groups

    def rate(self, key: str, known_from: int) -> float | None:
        """Success rate; None below ``known_from`` outcomes."""
        groups = self.groups.get(key, [])
        total = sum(count for _, count in groups)
        return sum(right for right, _ in groups) / total if total >= known_from else None

    def state_dict(self) -> dict[str, Any]:
        return {key: [list(group) for group in groups] for key, groups in self.groups.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.groups = {key: [(int(right), int(of)) for right, of in groups] for key, groups in state.items()}


def value(n: Float[np.ndarray, " n"], p: float) -> Float[np.ndarray, " n"]:
    """Value of n rollouts of a task: the probability of a non-zero gradient, times its expected gain.

        Value(n, p) = (1 - p^n - (1 - p)^n) * p (1 - p)^2

    The first factor is the probability that not all answers are alike; the second one approximates how much an update
    raises the success rate, and is largest at p = 1/3.

    Args:
        n: rollouts.
        p: success rate, in 0 .. 1.
    Source:
        Knapsack RL, arXiv:2509.25849, and its released code (verl/trainer/ppo/exploration_utils.py, solve_by_dp).
    """
    return (1 - p**n - (1 - p) ** n) * p * (1 - p) ** 2


def need(p: float, confidence: float) -> float:
    """Rollouts needed to see both correct and incorrect answers with about this probability, for 0 < p < 1.

        n = ln(1 - confidence) / ln(max(p, 1 - p))

    Source:
        Knapsack RL's released code (cost_estimation "probability").
    """
    return math.log(1 - confidence) / math.log(max(p, 1 - p))


def allocate(
    rates: Sequence[float | None],
    total: int,
    *,
    unknown: int,
    least: int,
    most: int,
    never_solved: int,
    always_solved: int,
    confidence: float,
) -> list[int]:
    """Rollouts of each task of a batch: ``total`` together, exactly.

    Every task gets the minimum of its kind. The rest goes to tasks that are sometimes solved, by dynamic programming
    over the sum of their values; but first, where they need less than that, the surplus goes to tasks that were
    never solved (or, where there is none, to those always solved and those unknown). Without tasks in between and
    without failed ones, all get the same.

    Args:
        rates: success rate of each task; None where it is not known.
        total: at least the sum of all floors.
        unknown, never_solved, always_solved: floors of tasks whose rate is None, 0 and 1.
        least, most: bounds of tasks in between. ``most`` is exceeded where no other task can take the rest.
        confidence: see :func:`need`.
    Raises:
        ValueError: the floors are more than the total.
    Source:
        Knapsack RL's released code (verl/trainer/ppo/exploration_utils.py, sampling_budget_by_knapsack), but for:

        - Tasks whose rate is unknown. There their rate is stored as 0, so that they share in the surplus as if
          they had never been solved, beyond their own ``unknown``: with rates 0 and None, floors 2 and 8 and a total of
          16, they become 5 and 11. Here they get some of it only where no task is known to fail: 8 and 8.
        - A task that gets nothing beyond ``least``: see :func:`solve`.
        - A batch in which every task is sometimes solved. There no task can take a surplus, and it fails; here
          the dynamic program allocates all of it.
    """
    floor = {None: unknown, 0.0: never_solved, 1.0: always_solved}
    budget = [floor.get(rate, least) for rate in rates]
    left = total - sum(budget)
    if left < 0:
        raise ValueError(f"total: got {total}; the floors alone are {sum(budget)}")
    between = {i: rate for i, rate in enumerate(rates) if rate is not None and 0 < rate < 1}
    failed = [i for i, rate in enumerate(rates) if rate == 0]
    others = failed or [i for i in range(len(rates)) if i not in between]
    if not between and not failed:  # no reason to prefer one task over another
        return evenly(total, len(rates))
    if others:
        needed = sum(int(min(most, need(rate, confidence))) for rate in between.values())
        surplus = max(0, left - needed)
        for i, samples in zip(others, evenly(surplus, len(others)), strict=True):
            budget[i] += samples
        left -= surplus
    further = solve(list(between.values()), left, least=least, most=most)
    for i, samples in zip(between, further, strict=True):
        budget[i] += samples
    return budget


def solve(rates: Sequence[float], left: int, *, least: int, most: int) -> list[int]:
    """Rollouts beyond ``least`` of each task, ``left`` together, with the largest sum of values.

        best_i(w) = max_{0 <= k <= most - least} best_{i-1}(w - k) + Value(least + k, p_i)

    What does not fit below ``most`` is spread evenly above it.

    Source:
        Knapsack RL, arXiv:2509.25849: the largest sum of values over all tasks. In the released code (solve_by_dp) a
        task with k = 0 counts 0 and not Value(least, p): one rollout more has the value Value(least + 1, p) there, with
        that of the floor included, so that it goes to tasks that gain almost nothing by it. Of 5 further rollouts above
        2, tasks solved at 0.5 and 0.9 get 4 and 1 there, 5 and 0 here.
    """
    if not rates:
        return []
    room = most - least
    above = max(0, left - room * len(rates))
    left -= above
    best = np.full(left + 1, -np.inf)
    best[0] = 0.0
    chosen: list[Int[np.ndarray, " w"]] = []
    for p in rates:
        gain = value(least + np.arange(min(room, left) + 1, dtype=float), p)
        # Row k is best shifted by k: the best sum when this task takes k of the first w.
        taken = np.full((len(gain), left + 1), -np.inf)
        for k in range(len(gain)):
            taken[k, k:] = best[: left + 1 - k] + gain[k]
        chosen.append(taken.argmax(0))
        best = taken.max(0)
    further = evenly(above, len(rates))
    for i in range(len(rates) - 1, -1, -1):
        k = int(chosen[i][left])
        further[i] += k
        left -= k
    return further
