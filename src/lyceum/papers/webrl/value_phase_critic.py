"""WebRL's critic: how likely success is from the state before a turn, learnt from the outcomes so far."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field

from lyceum.core.tree import Tree
from lyceum.core.types import Example, Judgement, MarkedPath
from lyceum.models.policy import Policy
from lyceum.reward.model import turn_spans
from lyceum.utils.errors import RecipeError
from lyceum.utils.lazy_imports import torch
from lyceum.utils.seeds import counter_seed
from lyceum.value.model import PathModel, PathValues
from lyceum.value.training import Loss


class PhaseCritic(PathModel):
    """The probability of success from each state, by cross-entropy on the outcomes of the trajectories through it.

    It learns after each step of the stage, from states of this and earlier ones. Reward ``model`` with ``cut: turns``
    gives each turn the value of the state before it, which is no reward: credit ``state-values`` makes advantages of
    them.

    Source: WebRL, arXiv:2411.02337, and THUDM/WebRL, ``webrl/algorithms/webrl/trainer.py: critic_loss`` (two classes,
    the target is whether the return is above 0).
    """

    gives: ClassVar = ("value-online",)

    kind: Literal["phase-critic"] = "phase-critic"  # pyright: ignore[reportIncompatibleVariableOverride]
    loss: Loss = "bce"
    epochs: int = Field(default=1, ge=1)
    """Epochs over the states of a step."""
    states: int = Field(default=512, ge=1)
    """States that it learns from in a step: drawn from all that are kept."""
    history: int = Field(default=4096, ge=1)
    """States that are kept, the latest ones."""

    def build(self, policy: Policy, *, seed: int) -> PhaseValues:
        return PhaseValues(self, policy, seed=seed)


class PhaseValues(PathValues):
    """A value model of states, those that it has seen, and what it was worth in the last step."""

    def __init__(self, settings: PhaseCritic, policy: Policy, *, seed: int) -> None:
        super().__init__(settings, policy, seed=seed)
        self.phase, self.seen, self.steps = settings, list[Example](), 0
        self.measured: dict[str, float] = {}

    def judge(self, paths: Sequence[MarkedPath]) -> list[Judgement]:
        """Of each turn the value of the state before it."""
        if any(len(path.starts) != len(path.ends) for path in paths):
            raise RecipeError("reward.cut: value.kind 'phase-critic' judges turns; allowed: 'turns'")
        places = [[start - 1 for start in path.starts] or [len(path.tokens) - 1] for path in paths]
        with torch.no_grad():
            parts = self._logits([path.tokens for path in paths], places)
            values = [torch.sigmoid(logits).tolist() for part in parts for logits in part]
        return [Judgement(said[-1], said if path.starts else []) for said, path in zip(values, paths, strict=True)]

    def observe(self, trees: Sequence[Tree]) -> None:
        new = [example for tree in trees for example in states_of(tree)]
        self.seen = [*self.seen, *new][-self.phase.history :]
        draw = random.Random(counter_seed(self.phase.kind, self.seed, self.steps))
        self.steps += 1
        if not new:
            self.measured = {"paths": 0.0}
            return
        known = self._foreseen(new)
        drawn = draw.sample(self.seen, min(self.phase.states, len(self.seen)))
        self.measured = self.fit(drawn) | known | {"history": float(len(self.seen))}

    def metrics(self) -> dict[str, float]:
        """Of the step just observed: the explained variance of its states' outcomes by what was predicted before
        learning from them, how many were learnt from, and the losses."""
        return self.measured

    def state_dict(self) -> dict[str, Any]:
        seen = [[list(one.tokens), one.value, one.prompt] for one in self.seen]
        return super().state_dict() | {"seen": seen, "steps": self.steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.seen = [Example(tokens, value, prompt) for tokens, value, prompt in state["seen"]]
        self.steps = int(state["steps"])


def states_of(tree: Tree) -> list[Example]:
    """The state before each turn of each graded trajectory, worth 1 where the outcome is above 0, else 0."""
    return [
        Example(tokens[:start], float(outcome > 0), len(leaf.root.tokens))
        for leaf, _, outcome in tree.graded_with_outcome()
        for tokens in [leaf.path_tokens()]
        for _, start, _ in turn_spans(leaf)
    ]
