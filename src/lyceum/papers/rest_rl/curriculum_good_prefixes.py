"""ReST-GRPO: tasks whose samples differ in reward, and prefixes of their best samples as further starting states."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import pstdev
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from lyceum.core.notes import Note
from lyceum.core.settings import CurriculumSettings
from lyceum.core.steps import Steps, step_ends
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Task, TaskSource
from lyceum.curriculum.base import FromSource, is_test, task_index, to_test
from lyceum.models.policy import Policy
from lyceum.utils.seeds import counter_seed

State = tuple[int, list[int]]
"""A task's index in its source, and the tokens of its prefix."""


@dataclass(frozen=True)
class GivenPrefix(Note):
    """Token ids that every completion of the task begins with, graded and not trained. Read by the guide ``prefix``."""

    kind: ClassVar[str] = "prefix"
    tokens: tuple[int, ...]


class GoodPrefixes(CurriculumSettings):
    """Rounds of testing and training: tasks are sampled, those whose rewards hardly differ are left out, and the others
    are trained on from their prompt and from prefixes of their best sample.

    Source: ReST-GRPO, arXiv:2508.19576, section 3.1, and its released code (experiment/process_gen_data.py). There the
    test is one pass over all data before the training; the whole sample, after which nothing is left to draw, is also
    a starting state there, but not here.
    """

    gives: ClassVar = ("prefix-lengths",)
    requires: ClassVar = ("prefixes",)

    kind: Literal["good-prefixes"] = "good-prefixes"
    pool: int = Field(default=128, ge=1)
    """Tasks tested per round, in whole steps; their samples are drawn and not trained on."""
    tests: int = Field(default=5, ge=2)
    """Samples per tested task."""
    spread: float = Field(default=0.05, ge=0)
    """Minimum standard deviation of a task's rewards to train on it, in the reward's unit (divided by n)."""
    accept: float = Field(default=0.9)
    """Minimum reward of a task's best sample to use its prefixes as starting states, in the reward's unit."""
    share: float = Field(default=0.5, gt=0, le=1)
    """Starting states per task, as a share of its best sample's prefixes, rounded up (no unit)."""
    decay: float = Field(default=0.95, gt=0, le=1)
    """Sampling weights of starting states are decay^i, with replacement; the shortest prefix has i = 0."""
    step: Steps = Steps(by="lines")
    """Where a prefix may end: at the end of a step."""

    def build(self, source: TaskSource, *, seed: int, policy: Policy | None = None) -> GoodPrefixesCurriculum:
        if policy is None:
            raise ValueError("the curriculum 'good-prefixes' reads samples with the policy's tokenizer; give it one")
        return GoodPrefixesCurriculum(self, source, policy, seed=seed)


class GoodPrefixesCurriculum(FromSource):
    """Its state: its position in the source, how many tests the round still has, and the tasks waiting for training."""

    kept = ("round", "position", "untested")

    def __init__(self, settings: GoodPrefixes, source: TaskSource, policy: Policy, *, seed: int) -> None:
        super().__init__(source, seed=seed)
        self.settings, self.policy = settings, policy
        self.position = self.round = 0
        self.untested = settings.pool
        self.waiting: list[State] = []
        self._testing: dict[str, int] = {}  # from a step's draw to its outcomes

    def draw(self, n: int) -> list[Task]:
        if self.untested > 0:
            return self.tests(n)
        states, self.waiting = self.waiting[:n], self.waiting[n:]
        tasks = [self.task_with_prefix(index, given) for index, given in states]
        if not self.waiting:
            self.round, self.untested = self.round + 1, self.settings.pool
        return tasks + self.tests(n - len(tasks))

    def tests(self, n: int) -> list[Task]:
        self.untested -= n
        return [self._test() for _ in range(n)]

    def _test(self) -> Task:
        index = task_index(self.seed, self.position, len(self.source))
        self.position += 1
        task = self.source[index]
        self._testing[task.id] = index
        return to_test(task, self.settings.tests)

    def task_with_prefix(self, index: int, given: list[int]) -> Task:
        task = self.source[index]
        return task.with_note(GivenPrefix(tuple(given))) if given else task

    def observe(self, trees: Sequence[Tree]) -> None:
        tested = [tree for tree in trees if is_test(tree.task)]
        found = [states for tree in tested if (states := self.states_of(tree))]
        self.waiting += [(self._testing[id], given) for id, given in (state for states in found for state in states)]
        self._testing = {}
        if tested and self.untested <= 0:
            order = np.random.default_rng([self.seed, self.round]).permutation(len(self.waiting))
            self.waiting = [self.waiting[int(i)] for i in order]
            if not self.waiting:  # nothing to train on: continue testing
                self.round, self.untested = self.round + 1, self.settings.pool
        self._metrics = {
            "round": float(self.round),
            "tested/tasks": float(len(tested)),
            "kept/tasks": float(len(found)),
            "waiting/states": float(len(self.waiting)),
        }

    def states_of(self, tree: Tree) -> list[tuple[str, list[int]]]:
        """Starting states of a tested task: none, or its prompt (no prefix tokens) and prefixes."""
        settings, graded = self.settings, list(tree.graded_with_outcome())
        if not graded or not differs([outcome for _, _, outcome in graded], settings.spread):
            return []
        states: list[tuple[str, list[int]]] = [(tree.task.id, [])]
        best, _, outcome = max(graded, key=lambda each: each[2])
        if outcome >= settings.accept:
            states += [(tree.task.id, given) for given in self.beginnings(tree.task, best)]
        return states

    def beginnings(self, task: Task, best: Node) -> list[list[int]]:
        tokens = best.completion_tokens
        logprob = [value for node in best.path()[1:] for value in node.model_logprob]
        ends = step_ends(tokens, logprob, self.settings.step, self.policy.decode)[:-1]
        seed = counter_seed("good-prefixes", self.seed, self.round, task.id)
        return [tokens[:end] for end in drawn(ends, self.settings.share, self.settings.decay, seed)]

    def weight(self, tree: Tree) -> float:
        return 0.0 if is_test(tree.task) else 1.0

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"waiting": [[index, list(given)] for index, given in self.waiting]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.waiting = [(int(index), list(given)) for index, given in state["waiting"]]


def differs(rewards: Sequence[float], spread: float) -> bool:
    """Whether a task's rewards have at least this standard deviation: sqrt(mean (r - mean r)^2) >= spread.

    Source:
        ReST-RL, arXiv:2508.19576, section 3.1 (0.05).
    """
    return pstdev(rewards) >= spread


def drawn(ends: Sequence[int], share: float, decay: float, seed: int) -> list[int]:
    """ceil(share n) of n ends, with replacement, the i-th with weight decay^i.

    Source:
        ReST-RL, arXiv:2508.19576, section 3.1; released code (utils/sample_utils.py).
    """
    if not ends:
        return []
    weights = decay ** np.arange(len(ends))
    chosen = np.random.default_rng(seed).choice(len(ends), math.ceil(share * len(ends)), p=weights / weights.sum())
    return [ends[int(i)] for i in chosen]
