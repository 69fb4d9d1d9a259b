"""Sampling a model on tasks and grading its completions, here or in several processes: the basis of every accuracy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

from lyceum.core.settings import RolloutSettings
from lyceum.core.tree import Tree, details_ungraded, reasons_ungraded
from lyceum.core.types import Engine, Grade, Sampling, State, Task, TaskSource, verdict_reader
from lyceum.core.waves import Done, Grown, Runtime, Ticket, Wave
from lyceum.evaluation.statistics import TaskResult, summarise
from lyceum.models.load import load_policy
from lyceum.models.policy import Policy
from lyceum.models.weights import load_trained, trained_weights
from lyceum.recipe.schema import Recipe
from lyceum.reward.base import Combined, allow_code, combine, to_judge
from lyceum.reward.extract import vote
from lyceum.rollout.flat import Flat
from lyceum.runtime.in_process import InProcess, counted
from lyceum.runtime.processes import Processes, Workers
from lyceum.utils.lazy_imports import torch
from lyceum.utils.seeds import SeedKey

EVALUATE, GREEDY = "evaluate", "greedy"
MAX_REASONS = 8
"""Maximum number of reasons for ungraded trajectories that a run lists; others are only counted."""


def first_tasks(source: TaskSource, n: int) -> list[Task]:
    """The first n tasks of a source (all where it has fewer): a fixed set, the same in every run and process."""
    return [source[i] for i in range(min(n, len(source)))]


@dataclass(frozen=True)
class Draws:
    """How held-out tasks are sampled.

    Attributes:
        rollout: independent samples, by turns or by an agent.
        samples: of a task.
    """

    rollout: RolloutSettings
    sampling: Sampling
    samples: int

    def settings(self, key: SeedKey) -> RolloutSettings:
        """Of a wave: with the key GREEDY one completion, each of its tokens the most likely one."""
        how: dict[str, Any] = {"samples": self.samples, "sampling": self.sampling}
        if key == GREEDY:
            how = {"samples": 1, "sampling": self.sampling.model_copy(update={"temperature": 0.0})}
        return self.rollout.model_copy(update=how)


class HeldOut:
    """Samples and grades waves of held-out tasks over one engine, in any process. Implements ``Grows``.

    Seeds do not depend on a step: differences come from the model.
    """

    constant = frozenset[str]()
    grades_apart = False
    """Its waves are asked for one after another."""

    def __init__(self, policy: Policy, engine: Engine, grader: Combined, draws: Draws, *, seed: int) -> None:
        self.policy, self.engine, self.grader, self.draws = policy, engine, grader, draws
        with allow_code():
            tools = draws.rollout.tools
        self.runtime = InProcess(policy, engine, grader, seed=seed, grader_asks=grader.asks_model, tools=tools)

    async def grow(self, wave: Wave, done: Done, drawn: Done | None = None) -> Grown:
        with allow_code():  # the user allowed the recipe's code when it was loaded
            rollout = self.draws.settings(wave.key).build()
        before, waits = self.engine.tokens_computed, self.engine.may_step
        tasks, numbers = [ticket.task for ticket in wave.tickets], [ticket.number for ticket in wave.tickets]
        try:
            trees = await self.runtime.run(
                tasks, rollout, key=wave.key, numbers=numbers, done=lambda _: done(), drawn=drawn
            )
        finally:
            # The runtime's is a cycle, in which an engine of this evaluation's own would outlive it, packed weights and
            # all, until garbage is collected.
            self.engine.may_step = waits
        return Grown(trees, self.engine.tokens_computed - before)

    def publish(self, version: int) -> None:
        """Its engine has the weights."""

    def close(self) -> None:
        """Nothing of it runs elsewhere."""

    def models(self) -> dict[str, State]:
        return {"policy": {"of": trained_weights(self.policy.module)}}

    def load_model(self, name: str, state: State) -> None:
        """One of ``models``, as another process has it."""
        load_trained(self.policy.module, state["of"])

    def states(self) -> dict[str, Any]:
        return {"grader": self.grader.state_dict()}

    def load_states(self, state: State) -> None:
        self.grader.load_state_dict(state["grader"])


def held_out_wave(tasks: Sequence[Task], key: SeedKey) -> Wave:
    tickets = (Ticket(task, number) for task, number in zip(tasks, counted(tasks), strict=True))
    return Wave(key, 0, 0.0, 0, tuple(tickets))


def results_of(trees: Sequence[Tree], read: Callable[[Grade | None], bool | None]) -> list[TaskResult]:
    """Graded trees as input of the statistics. Votes are counted by the completion's last line after any marker.

    Args:
        read: how grades are read as verdicts (``verdict_reader``).
    """
    results = []
    for tree in trees:
        leaves = tree.trajectories
        verdicts = [read(leaf.grade) for leaf in leaves]
        level = tree.task.columns.get("level")
        answers = [vote(leaf.completion) for leaf in leaves]
        tokens = [leaf.episode_tokens for leaf in leaves]
        rewards = [None if leaf.grade is None else leaf.grade.outcome for leaf in leaves]
        results.append(TaskResult(tree.task.id, level, verdicts, answers, tokens, rewards))
    return results


def why_ungraded(
    trajectories: int, ungraded: int, reasons: Mapping[str, int], failures: Mapping[str, str]
) -> list[str]:
    """Lines with how many could not be graded, the most frequent reason and its origin; empty if all were graded."""
    if not ungraded:
        return []
    most = max(reasons, key=lambda reason: reasons[reason])
    number = "none" if ungraded == trajectories else f"{ungraded}"
    could = "could be" if ungraded == trajectories else "could not be"
    return [f"{number} of {trajectories} completions {could} graded: {most}", *failures.get(most, "").splitlines()]


def why_nothing_graded(trees: Sequence[Tree]) -> list[str]:
    """Lines that say why no trajectory could be graded; empty where one could, or there is no trajectory."""
    trajectories = sum(len(tree.trajectories) for tree in trees)
    reasons = reasons_ungraded(trees)
    ungraded = sum(reasons.values())
    return why_ungraded(trajectories, ungraded, reasons, details_ungraded(trees)) if ungraded == trajectories else []


@dataclass
class Evaluator:
    """A fixed set of held-out tasks, and how they are sampled."""

    tasks: Sequence[Task]
    grader: Combined
    sampling: Sampling
    samples: int
    ks: tuple[int, ...]
    greedy: bool = True
    every: int = 0
    rollout: RolloutSettings = field(default_factory=Flat)
    begun: Callable[[HeldOut], AbstractContextManager[Runtime]] = nullcontext
    """Where its tasks grow, until it is left: in this process, or in others."""

    @property
    def completions(self) -> int:
        """How many an evaluation samples, the greedy ones included."""
        return len(self.tasks) * (self.samples + self.greedy)

    async def evaluate(self, policy: Policy, engine: Engine, seed: int, done: Done = lambda: None) -> EvaluationResult:
        """
        Args:
            done: called as each tree is finished; what it raises ends the evaluation.
        """
        here = HeldOut(policy, engine, self.grader, Draws(self.rollout, self.sampling, self.samples), seed=seed)
        greedy = None
        with self.begun(here) as runtime:
            sampled = (await runtime.grow(held_out_wave(self.tasks, EVALUATE), done)).trees
            if self.greedy:
                greedy = (await runtime.grow(held_out_wave(self.tasks, GREEDY), done)).trees
        return EvaluationResult(sampled, greedy, self.ks, to_judge(list(self.grader.parts.values())))


@dataclass
class EvaluationResult:
    """The result of one evaluation."""

    trees: list[Tree]
    greedy: list[Tree] | None
    ks: tuple[int, ...]
    to_judge: str | None = None
    """The key that says which rewards are correct answers (:func:`lyceum.reward.base.to_judge`)."""

    @cached_property
    def _read(self) -> Callable[[Grade | None], bool | None]:
        return verdict_reader(leaf.grade for tree in [*self.trees, *(self.greedy or ())] for leaf in tree.trajectories)

    @property
    def results(self) -> list[TaskResult]:
        return results_of(self.trees, self._read)

    @property
    def greedy_results(self) -> list[TaskResult] | None:
        return None if self.greedy is None else results_of(self.greedy, self._read)

    def metrics(self) -> dict[str, Any]:
        reasons = dict(list(reasons_ungraded(self.trees).items())[:MAX_REASONS])
        summary = summarise(self.results, self.ks, greedy=self.greedy_results)
        judge = {"to_judge": self.to_judge} if summary["unjudged"] and self.to_judge else {}
        return {**summary, **judge, "reasons_ungraded": reasons}


def begun(recipe: Recipe) -> Callable[[HeldOut], AbstractContextManager[Runtime]]:
    """Where a recipe's held-out tasks grow, as ``evaluate.workers`` says: its processes end with what is entered."""
    return nullcontext if recipe.evaluate.workers == 1 else partial(_workers, recipe)


@contextmanager
def _workers(recipe: Recipe, here: HeldOut) -> Iterator[Runtime]:
    workers = recipe.evaluate.workers
    start = {
        "recipe": recipe.resolved(),
        "held_out": {"sampling": here.draws.sampling.model_dump(mode="json"), "samples": here.draws.samples},
        "seed": here.runtime.seed,
        "threads": max(1, torch.get_num_threads() // workers),
    }
    with closing(Workers(Processes(workers=workers), here, start, key="evaluate")) as runtime:
        runtime.publish(0)
        yield runtime


def held_out_elsewhere(told: Mapping[str, Any]) -> HeldOut:
    """In another process than the run's, from what it is told: with the weights of no snapshot yet."""
    recipe = Recipe.model_validate(told["recipe"])
    policy, how = load_policy(recipe.model), told["held_out"]
    source = (recipe.evaluate.tasks or recipe.tasks).build("heldout", recipe.seed)
    with allow_code():  # the user allowed the recipe's code when it was loaded
        grader = combine(recipe.reward, source)
    draws = Draws(recipe.evaluation_rollout, Sampling.model_validate(how["sampling"]), how["samples"])
    return HeldOut(policy, recipe.evaluation_engine.build(policy), grader, draws, seed=told["seed"])
