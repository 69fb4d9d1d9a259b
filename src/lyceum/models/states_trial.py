"""Whether a model whose states branch in training is sampled exactly from states that are kept, tested at load time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Unpack

import torch
from torch import Tensor

from lyceum.models.model_cache import KeptCache, ModelCache, ModelStates
from lyceum.models.policy import Policy
from lyceum.models.tree_attention import NotOverTrees, Scoring, TreePlan
from lyceum.models.tree_states import SHORT, Branching, StateRuns, States, StateStep, state_runs

UNFIT = (TypeError, ValueError, RuntimeError, AttributeError, IndexError, KeyError, AssertionError)
"""What a model raises that cannot be called in some way; NotImplementedError is a RuntimeError."""


class KeptTree(TreePlan):
    """A plan whose paths begin with tokens of earlier forwards, which are numbered after the new ones.

    Args:
        before: what layers kept of those, by layer.
        by_cache: whether layers hand it to a cache; else it is their keys and values.
    """

    def __init__(
        self,
        paths: Sequence[Tensor],
        owned_from: Sequence[int],
        before: Mapping[int, tuple[Tensor, Tensor]],
        *,
        by_cache: bool,
    ) -> None:
        super().__init__(paths, owned_from)
        self._before, self._by_cache = before, by_cache
        self.cached: dict[int, tuple[Tensor, Tensor]] = {}
        """The same of all tokens, of layers that were computed."""

    def update(self, layer: int, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
        if layer in self.cached:
            raise NotOverTrees(f"layer {layer} caches more than once")
        if self._before:
            kept = self._before[layer]
            first, second = torch.cat((first, kept[0]), 2), torch.cat((second, kept[1]), 2)
        self.cached[layer] = first, second
        return first, second

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, **how: Unpack[Scoring]) -> Tensor:
        if not self._by_cache:
            whole = self.update(layer, *(x.transpose(0, 1).unsqueeze(0) for x in (key, value)))
            key, value = (x.squeeze(0).transpose(0, 1) for x in whole)
        return super().attend(layer, query, key, value, **how)


class _Grown:
    """A tree that is computed as an engine does: its trunk, then its branches from there, then a token of each."""

    def __init__(self, policy: Policy, *, by_cache: bool) -> None:
        self.policy, self.by_cache, self.apart = policy, by_cache, 0.0
        self._kept: list[int] = []
        self.cached: dict[int, tuple[Tensor, Tensor]] = {}
        self.trunk, one = list(range(SHORT + 4)), SHORT + 4
        many = list(range(one + 1, one + SHORT + 5))
        last = many[-1] + 1
        self.branches = [[*self.trunk, one], [*self.trunk, *many]]
        self.paths = [[*self.branches[0], last], [*self.branches[1], last + 1], [last + 2]]
        vocabulary = policy.output.weight.shape[0]
        self._tokens = ((torch.arange(last + 3) + 1) * (vocabulary - 1) // (last + 4)).to(policy.device)
        self._position = torch.zeros_like(self._tokens)
        for path in self.paths:
            self._position[torch.tensor(path)] = torch.arange(len(path)).to(self._position)
        plan = TreePlan([torch.tensor(path) for path in self.paths], [0, len(self.trunk), 0]).to(policy.device)
        self._expected = policy.head(policy.hidden(self._tokens, self._position, plan))

    def grow(self, paths: Sequence[Sequence[int]], given: tuple[Sequence[int], States] = ((), {})) -> States:
        """Compute paths from the states that their kept tokens, such as ``given``, ended with; returns theirs."""
        new, owned = self._new(paths)
        plan = self._plan(paths, new, owned)
        at = {token: n for n, token in enumerate([*new, *self._kept])}
        begun = [at[token] for token in given[0]], given[1]
        ends = [at[path[-1]] for path in paths]
        runs = StateRuns(plan.paths, owned, self.policy.device, begun=begun, ends=ends)
        self._compute(plan, new, runs)
        return runs.ended

    def step(self, paths: Sequence[Sequence[int]], states: States) -> None:
        """Compute the last token of each path from its states."""
        new, owned = self._new(paths)
        self._compute(self._plan(paths, new, owned), new, StateStep(states))

    def _new(self, paths: Sequence[Sequence[int]]) -> tuple[list[int], list[int]]:
        """Tokens that are not kept yet, and how many each path has before its own."""
        seen, new, owned = set(self._kept), list[int](), list[int]()
        for path in paths:
            own = [token for token in path if token not in seen]
            new += own
            seen |= set(own)
            owned.append(len(path) - len(own))
        return new, owned

    def _plan(self, paths: Sequence[Sequence[int]], new: list[int], owned: list[int]) -> KeptTree:
        at = {token: n for n, token in enumerate([*new, *self._kept])}
        local = [torch.tensor([at[token] for token in path]) for path in paths]
        return KeptTree(local, owned, self.cached, by_cache=self.by_cache).to(self.policy.device)

    def _compute(self, plan: KeptTree, new: list[int], runs: Branching) -> None:
        position = self._position[new]
        cache = {"past_key_values": KeptCache(plan, position)} if self.by_cache else {}
        with state_runs(runs):
            got = self.policy.head(self.policy.hidden(self._tokens[new], position, plan, **cache))
        expected = self._expected[new]
        # Of nan, too, the larger one is nan.
        self.apart = float(torch.tensor([self.apart, float((got - expected).norm() / expected.norm())]).max())
        self._kept, self.cached = [*new, *self._kept], plan.cached


@torch.no_grad()
def sampled_states(policy: Policy, tolerance: float) -> tuple[ModelStates, ModelCache | None] | None:
    """What the engine keeps of a model that is trained over token trees, to sample it over them; None where it cannot.

    Beside states it is the keys and values of tokens, of layers that have them in one shape, or what the model caches.

    Args:
        tolerance: maximum |difference| / |logits| that counts as rounding.
    """
    for by_cache in (False, True):
        try:
            grown = _Grown(policy, by_cache=by_cache)
            states = _grow(grown)
        except UNFIT:
            continue
        if not grown.apart <= tolerance:
            continue
        kept = {n: (a.shape[1], a.shape[3], b.shape[1], b.shape[3]) for n, (a, b) in sorted(grown.cached.items())}
        shapes = {name: (x.shape[1:], x.dtype) for name, x in states.items()}
        if by_cache:
            return ModelStates(shapes), ModelCache(kept)
        keys = {shape[:2] for shape in kept.values()} | {shape[2:] for shape in kept.values()} or {(1, 1)}
        if len(keys) == 1:
            heads, width = keys.pop()
            return ModelStates(shapes, tuple(kept), heads, width), None
    return None


def _grow(tree: _Grown) -> States:
    """Compute the whole tree, and one token from the states before any; returns states."""
    trunk = tree.grow([tree.trunk])
    ends = tree.grow(tree.branches, ([tree.trunk[-1]], trunk))
    # In another order, and what follows another number of tokens.
    states = {name: torch.cat([x[[1, 0]], torch.zeros_like(x[:1])]) for name, x in ends.items()}
    tree.step([tree.paths[1], tree.paths[0], tree.paths[2]], states)
    return states
