"""Which way a model runs, tested once at load time: over token trees where that is exact, else over rows."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import torch
from jaxtyping import Float, Int
from peft import PeftModel
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerBase

from lyceum.models.context import BY_POSITION, unknown_rotary
from lyceum.models.load import SCRATCH, ModelSettings, read_config
from lyceum.models.policy import Policy, redirect_attention
from lyceum.models.rows import ByRows, RowCache
from lyceum.models.tree_attention import IMPLEMENTATION, NotOverTrees, TreePlan, packed_hidden, take_over
from lyceum.models.tree_states import SHORT, branch_states, unbranch_states
from lyceum.utils.library_messages import quiet

log = logging.getLogger(__name__)

TRUNK, BRANCH = 6, 3
"""Tokens of the test tree: a trunk with two branches."""
TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.05, torch.float16: 0.05}
"""Maximum |difference| / |logits| that counts as rounding: attention sums in another order."""

CACHE_TOLERANCE = TOLERANCE | {torch.float32: 1e-4}
"""The same of a model's cache: what it rounds off is carried along."""
_UNFIT = (TypeError, ValueError, RuntimeError, AttributeError, IndexError, KeyError, AssertionError)
"""What a model raises that cannot be called in some way; NotImplementedError is a RuntimeError."""

Logits = Float[Tensor, "2 path V"]


@torch.no_grad()
def logits_alone(module: PreTrainedModel) -> Logits:
    """Logits of both paths of the tree, by transformers' own forward: computed before attention is redirected."""
    return module(input_ids=_tokens(module)[_PATHS].to(module.device), use_cache=False).logits.float()


def policy_of(module: nn.Module, tokenizer: PreTrainedTokenizerBase, alone: Logits) -> Policy:
    """The model over token trees, where its logits are the same over a tree as over plain sequences; else over rows.

    Args:
        alone: of the model before this, by transformers' own forward.
    Raises:
        NotImplementedError: neither is right.
    """
    causal = cast(PreTrainedModel, module.get_base_model() if isinstance(module, PeftModel) else module)
    own = cast(str, causal.config._attn_implementation)
    if kind := unknown_rotary(causal.config.get_text_config()):
        raise NotImplementedError(
            f"its rotary embedding (rope_type {kind!r}) may depend on the longest sequence of a batch, so that "
            f"sampling and training would disagree; allowed: {', '.join(sorted(BY_POSITION))}, longrope"
        )
    try:
        policy = Policy(module, tokenizer)
        check_trees(policy, alone)
    except NotOverTrees as why:
        causal.set_attn_implementation(own)
        policy = Policy(module, tokenizer, by_rows=ByRows(str(why)))
        check_rows(policy, alone)
        train_over_trees(policy)
        assert policy.by_rows is not None
        log.warning("%s", over_rows(policy.by_rows))
    return policy


def over_rows(how: ByRows) -> str:
    """What it costs that a model runs over rows, for a line of the terminal."""
    slow = "" if how.caches else " Its cache is not exact, so that sampling computes the whole row for each token."
    if how.attention is not None:
        return (
            f"model: samples over rows, not over token trees: {how.why}. What continues a completion (turns, searches) "
            f"computes it again. Training is over trees: its states branch, and a prompt is computed once.{slow}"
        )
    return (
        f"model: runs over rows, not over token trees: {how.why}. Training computes a prompt once for each of its "
        f"completions, and what continues a completion (turns, searches) computes it again.{slow}"
    )


@torch.no_grad()
def rows_ahead(settings: ModelSettings) -> ByRows | None:
    """How a model will run over rows, as far as its configuration shows it; no weight is read."""
    if settings.path == SCRATCH or settings.path.endswith(".gguf"):
        return None
    plan = TreePlan(list(_PATHS), [0, TRUNK])
    try:
        with quiet(), torch.device("meta"):
            config = read_config(settings)
            module = AutoModelForCausalLM.from_config(config, trust_remote_code=settings.trust_remote_code)
    except Exception:  # what has no shapes without values; the model itself is tried when it is loaded
        return None
    try:
        with quiet(), torch.device("meta"):
            redirect_attention(module)
            tokens = torch.arange(_SIZE)
            packed_hidden(getattr(module, module.base_model_prefix), tokens, tokens, plan)
    except NotOverTrees as why:
        return ByRows(str(why), caches=True, attention=_states_ahead(module))
    except Exception:
        return None
    return None


def _states_ahead(module: PreTrainedModel) -> str | None:
    """:attr:`ByRows.attention` of a model without weights, as far as shapes show it."""
    config = module.config.get_text_config()
    own = cast(str, config._attn_implementation)
    if not branch_states(module):
        return None
    _attend_over_trees(module)
    plan = _branching_plan()
    tokens = torch.arange(_size_of(plan), device="meta")
    try:
        packed_hidden(getattr(module, module.base_model_prefix), tokens, tokens, plan.to(tokens.device))
    except Exception:
        return None
    return own


@torch.no_grad()
def check_rows(policy: Policy, alone: Logits) -> None:
    """Compare rows, alone and beside others, whole and token by token, with transformers' own forward.

    Raises:
        NotImplementedError: a token's logits depend on those after it or on other rows, or are not made by the output
            layer of the last hidden states.
    """
    what, limit = type(policy.causal).__name__, TOLERANCE[policy.causal.dtype]
    tokens = _tokens(policy.causal).to(policy.device)
    paths = _PATHS.to(policy.device)
    begun = policy.causal(input_ids=tokens[paths][:1, :TRUNK], use_cache=False).logits.float()
    if not _apart(begun, alone[:1, :TRUNK]) <= limit:
        raise NotImplementedError(
            f"the logits of a {what} depend on later tokens, or on the other rows of a batch: it is no causal language "
            "model"
        )
    try:
        packed = policy.hidden(tokens, tokens, TreePlan(list(_PATHS), [0, TRUNK]))
        apart = _apart(policy.head(packed)[paths], alone)
    except _UNFIT as error:
        raise NotImplementedError(f"the layers of a {what} cannot be run without its head: {error}") from error
    if not apart <= limit:
        raise NotImplementedError(f"the logits of a {what} are not its output layer's of its last hidden states")
    assert policy.by_rows is not None
    cached, padded = replace(policy.by_rows, caches=True), replace(policy.by_rows, caches=True, pads=True)
    limit = CACHE_TOLERANCE[policy.causal.dtype]
    if _feeds(policy, cached, (TRUNK, TRUNK), alone, limit) and _feeds(policy, cached, (0, 0), alone, limit):
        pads = _feeds(policy, padded, (TRUNK, 2), alone, limit)
        policy.run_by_rows(padded if pads else cached)


@torch.no_grad()
def train_over_trees(policy: Policy) -> None:
    """Let a model over rows be trained over token trees, where it is its states alone that branches cannot share.

    Its logits over a tree that branches in many ways, once its states begin each branch where that leaves, are compared
    with those over rows.
    """
    if not branch_states(policy.causal):
        return
    assert policy.by_rows is not None
    how, config = policy.by_rows, policy.causal.config.get_text_config()
    own = cast(str, config._attn_implementation)
    plan = _branching_plan()
    tokens = _spread(policy.causal, _size_of(plan)).to(policy.device)
    position = torch.zeros_like(tokens)
    for path in plan.paths:
        position[path] = torch.arange(len(path)).to(position)
    expected = policy.head(policy.hidden(tokens, position, plan))
    _attend_over_trees(policy.causal)
    policy.run_by_rows(replace(how, attention=own))
    try:
        got = policy.head(policy.hidden(tokens, position, plan.to(policy.device)))
        exact = _apart(got, expected) <= CACHE_TOLERANCE[policy.causal.dtype]
    except _UNFIT:
        exact = False
    if not exact:
        unbranch_states(policy.causal)
        with quiet():
            policy.causal.set_attn_implementation(own)
        config._attn_implementation = own
        policy.run_by_rows(how)


def _attend_over_trees(module: PreTrainedModel) -> None:
    with quiet():  # about a model without attention, which does not take one
        take_over(module)
    module.config.get_text_config()._attn_implementation = IMPLEMENTATION


def _branching_plan() -> TreePlan:
    """Of a tree with runs both longer and shorter than those whose states are kept, and of another root."""
    ends = itertools.count()

    def some(count: int) -> list[int]:
        return list(itertools.islice(ends, count))

    trunk, middle, few = some(SHORT + 4), some(SHORT), some(3)
    paths = [trunk + middle + few + some(5), trunk + middle + few + some(1), trunk + some(9), trunk + middle + some(20)]
    root = some(2)
    paths += [root + some(3), root + some(1)]
    shared = (0, len(trunk + middle + few), len(trunk), len(trunk + middle), 0, len(root))
    return TreePlan([torch.tensor(path) for path in paths], shared)


def _size_of(plan: TreePlan) -> int:
    return 1 + max(int(path.max()) for path in plan.paths)


def _feeds(policy: Policy, how: ByRows, given: tuple[int, int], alone: Logits, limit: float) -> bool:
    """Whether a cache gives the same where each row begins with so many tokens and is fed the others."""
    rows = _tokens(policy.causal)[_PATHS]
    begun = [row[:length].tolist() for row, length in zip(rows, given, strict=True)]
    # More rows than there were, in another order: of one row alone a part of the cache that stays behind would spread.
    taken = torch.tensor([1, 0, 1])
    try:
        cache = RowCache(policy.backbone, begun, how, policy.device)
        cache.select(taken.to(policy.device))
        for after in range(rows.shape[1] - max(given)):
            at = torch.tensor(given)[taken] + after
            logits = policy.head(cache.feed(rows[taken, at].to(policy.device)))
            if not _apart(logits, alone[taken, at].to(logits)) <= limit:
                return False
    except _UNFIT:
        return False
    return True


def _apart(a: Tensor, b: Tensor) -> float:
    return float((a - b).norm() / b.norm())


@torch.no_grad()
def check_trees(policy: Policy, alone: Logits) -> None:
    """Compare with the logits over the packed tree, in which both branches follow one trunk.

    A model whose layers carry a state along the sequence, or whose attention has a feature that lyceum's lacks, would
    be trained on wrong probabilities. One whose layers attend differently from its configuration (DeepSeek's latent
    attention) has keys that the engine's cache could not hold.

    Raises:
        NotOverTrees: they differ, or the model cannot be called over token trees.
    """
    what = type(policy.causal).__name__
    tokens, paths = _tokens(policy.causal).to(policy.device), _PATHS.to(policy.device)
    position = torch.empty_like(tokens).scatter_(0, paths.flatten(), torch.arange(paths.shape[1]).repeat(2).to(paths))
    plan = _Keys(list(_PATHS), [0, TRUNK])
    try:
        layers, heads, dim = policy.cache_shape
        hidden = policy.hidden(tokens, position, plan.to(policy.device))
    except NotOverTrees:
        raise
    except _UNFIT as error:
        raise NotOverTrees(f"{what} cannot be called over token trees ({type(error).__name__})") from error
    if plan.shapes != dict.fromkeys(range(layers), (heads, dim)):
        shapes = ", ".join(f"{h} of width {d}" for h, d in sorted(set(plan.shapes.values())))
        raise NotOverTrees(
            f"{what} has {len(plan.shapes)} layers with key heads {shapes}; the engine's cache is made for what its "
            f"configuration says: {layers} layers with {heads} of width {dim}"
        )
    difference = _apart(policy.head(hidden)[paths], alone)
    if not difference <= TOLERANCE[policy.causal.dtype]:
        raise NotOverTrees(
            f"{what} gives other logits over a token tree than over plain sequences (they differ by {difference:.1%}): "
            "its attention, or a state along the sequence, is not one that branches can share"
        )


class _Keys(TreePlan):
    """Records the key heads of each layer and their width."""

    def __init__(self, paths: Sequence[Tensor], owned_from: Sequence[int]) -> None:
        super().__init__(paths, owned_from)
        self.shapes: dict[int, tuple[int, int]] = {}

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, *, scale: float, window: int | None
    ) -> Tensor:
        if layer in self.shapes or value.shape != key.shape:
            raise NotOverTrees(f"layer {layer} attends more than once, or to values of another shape than its keys")
        self.shapes[layer] = (key.shape[1], key.shape[2])
        return super().attend(layer, query, key, value, scale=scale, window=window)


_SIZE = TRUNK + 2 * BRANCH
_PATHS = torch.tensor([[*range(TRUNK + BRANCH)], [*range(TRUNK), *range(TRUNK + BRANCH, _SIZE)]])


def _tokens(module: PreTrainedModel) -> Int[Tensor, " T"]:
    """Tokens of the packed tree: the trunk, one branch, the other."""
    return _spread(module, _SIZE)


def _spread(module: PreTrainedModel, size: int) -> Int[Tensor, " T"]:
    """Tokens spread over the vocabulary, all different where it is large enough."""
    vocabulary = cast(nn.Linear, module.get_output_embeddings()).weight.shape[0]
    return (torch.arange(size) + 1) * (vocabulary - 1) // (size + 1)
