"""GAIN-RL: tasks ordered by the angles between their hidden states, drawn by a Gaussian that moves along the order."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import ClassVar, Literal

import numpy as np
from jaxtyping import Float
from pydantic import Field, model_validator

from lyceum.core.component import BatchTokens
from lyceum.core.settings import CurriculumSettings
from lyceum.core.tree import Tree
from lyceum.core.types import Task, TaskSource
from lyceum.curriculum.base import FromSource, epoch_order, success, without_replacement
from lyceum.models.packed_paths import packed
from lyceum.models.policy import Policy
from lyceum.utils.lazy_imports import Tensor, torch
from lyceum.utils.numbers import mean


class Angles(CurriculumSettings):
    """Tasks whose hidden states point the same way first, from there on towards the others.

    Source: GAIN-RL, arXiv:2506.02281, and its released code (data_processor.py, verl/trainer/ppo/gainrl_sampler.py).
    There the states are the last layer's before its feed-forward part, and the Gaussian is 1000 tasks wide.
    """

    gives: ClassVar = ("end",)
    kind: Literal["angles"] = "angles"
    pool: int = Field(default=2048, ge=1)
    """Tasks of the source that are read and ordered, once, by the policy that enters the stage."""
    width: float = Field(default=64.0, ge=0.01)
    """Standard deviation of the Gaussian (tasks)."""
    shift: float = Field(default=32.0, ge=0)
    """Scale of the mean's move after a step, for each of its two parts (tasks)."""
    least_shift: float = Field(default=0.0, ge=0)
    """Minimum move after a step (tasks)."""
    most_shift: float = Field(default=64.0, ge=0)
    """Maximum move after a step (tasks)."""
    sensitivity: float = Field(default=2.0, gt=0)
    """Factor on accuracy and angle within the tanh (no unit)."""
    target: float = Field(default=0.5, ge=0, le=1)
    """Accuracy below which it holds the move back, and above which it adds to it (no unit)."""
    between: float = Field(default=1.0, ge=0)
    """Weight of the angles between the problem and what all prompts begin with, relative to those within it; the
    released code takes 8."""
    micro_batch_tokens: BatchTokens = 8192
    """Tokens per forward pass; affects memory, but not the result."""

    @model_validator(mode="after")
    def _shifts_fit(self) -> Angles:
        if self.least_shift > self.most_shift:
            raise ValueError(
                f"least_shift: got {self.least_shift}, but most_shift is {self.most_shift}; allowed: at most that"
            )
        return self

    def build(self, source: TaskSource, *, seed: int, policy: Policy | None = None) -> AnglesCurriculum:
        if policy is None:
            raise ValueError("the curriculum 'angles' reads prompts with the policy; give it one")
        return AnglesCurriculum(self, source, policy, seed=seed)


class AnglesCurriculum(FromSource):
    """Its state: the order of the tasks, the Gaussian's mean, and how many draws there were."""

    kept = ("order", "mean", "draws")

    def __init__(self, settings: Angles, source: TaskSource, policy: Policy, *, seed: int) -> None:
        super().__init__(source, seed=seed)
        self.settings, self.policy = settings, policy
        self.order: list[int] = []
        self.mean = 0.0
        self.draws = self._read = 0

    @property
    def done(self) -> str:
        last = len(self.order) - 1
        return f"its mean has reached the last of {last + 1} tasks" if 0 <= last <= self.mean else ""

    def draw(self, n: int) -> list[Task]:
        if not self.order:
            self.order = self.ordered()
        places: list[int] = []
        while len(places) < n:  # more than there are tasks: again from all of them
            rng = np.random.default_rng([self.seed, self.draws])
            places += around(self.mean, self.settings.width, len(self.order), n - len(places), rng)
            self.draws += 1
        return [self.source[self.order[place]] for place in places]

    def ordered(self) -> list[int]:
        """The pool, the most concentrated first; ties in the order of the source."""
        size = len(self.source)
        indices = [int(index) for index in epoch_order(self.seed, 0, size)[: self.settings.pool]]
        prompts = [self.policy.render(self.source[index].messages) for index in indices]
        before, after = shared_ends(prompts)
        found: list[float] = []
        for hidden in self._hidden(prompts):
            problem = hidden[before : len(hidden) - after]
            found.append(within(problem) + self.settings.between * between(problem, hidden[:before]))
        return [indices[i] for i in sorted(range(len(indices)), key=lambda i: -found[i])]

    def _hidden(self, paths: Sequence[Sequence[int]]) -> Iterator[Float[Tensor, "L width"]]:
        """Last hidden states of each path's tokens, as unit vectors."""
        for trie in packed(paths, self.settings.micro_batch_tokens):
            with torch.no_grad():
                states = trie.hidden(self.policy.backbone, self.policy.device).double()
            states = torch.nn.functional.normalize(states, dim=-1).cpu()
            self._read += len(trie.token)
            for row in trie.rows:
                yield states[torch.tensor(row)]

    def observe(self, trees: Sequence[Tree]) -> None:
        accuracies = [accuracy for tree in trees if (accuracy := success(tree)) is not None]
        paths = [leaf.path_tokens() for tree in trees for leaf in tree.unaided]
        self._metrics = {}
        if not accuracies:
            return
        accuracy, angle = mean(accuracies), fmean(within(hidden) for hidden in self._hidden(paths))
        settings = self.settings
        moved = moves(accuracy, angle, scale=settings.shift, sensitivity=settings.sensitivity, target=settings.target)
        moved = min(max(moved, settings.least_shift), settings.most_shift)
        self.mean = min(self.mean + moved, float(max(len(self.order) - 1, 0)))
        self._metrics = {
            "mean/place": self.mean,
            "moved/places": moved,
            "angle/step": angle,
            "accuracy/step": accuracy,
            "tokens/read": float(self._read),
        }
        self._read = 0


def within(states: Float[Tensor, "L width"]) -> float:
    """Mean cosine of all pairs of different tokens' states; 0 below two tokens.

        C_intra = sum_{i != j} cos(h_i, h_j) / (L (L - 1)) = (|sum_i u_i|^2 - L) / (L (L - 1))        u_i = h_i / |h_i|

    Args:
        states: unit vectors u_i.
    """
    count = len(states)
    return float(states.sum(0).square().sum() - count) / (count * (count - 1)) if count > 1 else 0.0


def between(states: Float[Tensor, "L width"], others: Float[Tensor, "M width"]) -> float:
    """C_inter, the mean cosine of all pairs of one of these states and one of the others; 0 where either is empty."""
    if not len(states) or not len(others):
        return 0.0
    return float(states.mean(0) @ others.mean(0))


def moves(accuracy: float, angle: float, *, scale: float, sensitivity: float, target: float) -> float:
    """How far the Gaussian's mean moves on after a step, in tasks.

        n tanh(a (accuracy - b)) + n tanh(a angle)

    Args:
        accuracy: mean over the step's tasks.
        angle: mean over its samples, prompts included, of the mean cosine of their tokens' states.
        scale, sensitivity, target: n, a and b; 500, 2 and 0.5 in the released code.
    Source:
        GAIN-RL's released code (trl_gainrl/gainrl_trainer.py, update_dataset), which halves rewards of 2 to accuracies.
    """
    return scale * (math.tanh(sensitivity * (accuracy - target)) + math.tanh(sensitivity * angle))


def around(mean: float, width: float, size: int, n: int, rng: np.random.Generator) -> list[int]:
    """Up to n different places of ``size``, in order, drawn with weights exp(-(place - mean)^2 / (2 width^2))."""
    return sorted(without_replacement(-0.5 * ((np.arange(size) - mean) / width) ** 2, n, rng))


def shared_ends(prompts: Sequence[Sequence[int]]) -> tuple[int, int]:
    """Number of tokens that all prompts begin with, and end with: the template's, a system message, examples.

    At least one token of each prompt is in neither.
    """
    room = min(map(len, prompts)) - 1
    before = _shared([prompt[:room] for prompt in prompts])
    return before, _shared([prompt[::-1][: room - before] for prompt in prompts])


def _shared(prompts: Sequence[Sequence[int]]) -> int:
    columns = list(zip(*prompts, strict=True))
    return next((place for place, column in enumerate(columns) if len(set(column)) > 1), len(columns))
