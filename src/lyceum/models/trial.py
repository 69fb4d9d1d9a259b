"""Which way a model runs, tested once at load time: over token trees where that is exact, else over rows."""

from __future__ import annotations

import inspect
import itertools
import logging
import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Unpack, cast

import torch
from jaxtyping import Float, Int
from peft import PeftModel
from torch import Tensor, nn
from transformers import AttentionMaskInterface, AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerBase

from lyceum.models.context import BY_POSITION, UNLIMITED, context_of_config, unknown_rotary
from lyceum.models.in_float32 import can_compute_in_float32, in_float32
from lyceum.models.load import UNTRAINED, ModelSettings, read_config
from lyceum.models.model_cache import KeptCache, ModelCache
from lyceum.models.policy import Policy, backbone_of, logit_transform, redirect_attention
from lyceum.models.rows import ByRows, RowCache
from lyceum.models.states_trial import UNFIT, KeptTree, sampled_states
from lyceum.models.tree_attention import IMPLEMENTATION, NotOverTrees, Scoring, TreePlan, packed_hidden, take_over
from lyceum.models.tree_states import SHORT, branch_states, unbranch_states
from lyceum.utils.library_messages import quiet

log = logging.getLogger(__name__)

TRUNK, BRANCH = 6, 3
"""Tokens of the test tree: a trunk with two branches."""
TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.05, torch.float16: 0.05}
"""Maximum |difference| / |logits| that counts as rounding: attention sums in another order."""

SAME = TOLERANCE | {torch.float32: 1e-5}
"""The same where it is nothing but the last sum: of the output layer for the hidden states that it was called with."""

CACHE_TOLERANCE = TOLERANCE | {torch.float32: 1e-4}
"""The same of a model's cache: what it rounds off is carried along."""

Logits = Float[Tensor, "2 path V"]


@dataclass(frozen=True)
class _Trial:
    """What a model is compared with, and how close it must be.

    A model in 16 bits is computed in float32: there a wrong model, such as one that numbers a branch's tokens on from
    the other branch, is told apart from rounding, and a right one whose rounding sends a token to another expert is not
    refused.
    """

    causal: PreTrainedModel
    alone: Logits
    """By transformers' own forward, as precisely as the trial computes."""
    widened: bool
    """Whether that is in float32, with weights of 16 bits."""

    @staticmethod
    def of(causal: PreTrainedModel, alone: Logits) -> _Trial:
        """``alone``: in the model's own precision, for one that does not run in float32."""
        if can_compute_in_float32(causal):
            try:
                with in_float32(causal):
                    return _Trial(causal, logits_alone(causal), widened=True)
            except UNFIT as error:
                log.debug("%s does not run in float32: %s", type(causal).__name__, error)
        return _Trial(causal, alone, widened=False)

    def precisely(self) -> AbstractContextManager[None]:
        """In which the model is compared."""
        return in_float32(self.causal) if self.widened else nullcontext()

    @property
    def dtype(self) -> torch.dtype:
        """Whose tolerance counts."""
        return torch.float32 if self.widened else self.causal.dtype


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
    trial, context = _Trial.of(causal, alone), context_of_config(causal.config.get_text_config())
    with trial.precisely():
        apart, bent = _by_reach(causal, trial.alone), _by_output(causal, trial.alone)
    try:
        policy = Policy(module, tokenizer)
        with trial.precisely():
            check_trees(policy, trial.alone, TOLERANCE[trial.dtype])
        if trial.widened:
            check_trees(policy, alone, math.inf)  # that it runs
    except NotOverTrees as why:
        causal.set_attn_implementation(own)
        policy = Policy(module, tokenizer, by_rows=ByRows(str(why)))
        with trial.precisely():
            check_rows(policy, trial.alone, trial.dtype)
            train_over_trees(policy, CACHE_TOLERANCE[trial.dtype])
        if policy.trains_over_trees:
            with trial.precisely():
                found = sampled_states(policy, CACHE_TOLERANCE[trial.dtype])
            if found is not None and trial.widened:  # what is kept has the dtype that the model runs in
                found = sampled_states(policy, math.inf)
            if found is not None:
                policy.keep_states(*found)
        if policy.by_rows is not None:
            log.warning("%s", over_rows(policy.by_rows))
    if not bent <= SAME[trial.dtype]:
        raise NotImplementedError(
            f"the logits of a {type(causal).__name__} are not those of its output layer (they differ by {bent:.2%}): "
            "its forward does something to them that lyceum does not know"
        )
    if not apart <= TOLERANCE[trial.dtype]:
        raise NotImplementedError(
            f"the logits of a {type(causal).__name__}'s first tokens depend on how long its row is (they differ by "
            f"{apart:.1%} where the last position is {context - 1:,}), so that sampling and training would disagree; "
            "allowed: a max_position_embeddings up to which they do not"
        )
    return policy


@torch.no_grad()
def _by_reach(module: PreTrainedModel, alone: Logits) -> float:
    """By how much the first tokens' logits differ where the row's last positions are those at the end of the context.

    A few tokens show whether frequencies are taken from the farthest position: those between may be left out.
    """
    context = context_of_config(module.config.get_text_config())
    if context == UNLIMITED or "position_ids" not in inspect.signature(module.forward).parameters:
        return 0.0
    position = torch.arange(TRUNK + BRANCH)
    position[TRUNK:] += max(0, context - len(position))
    tokens = _tokens(module)[_PATHS[:1]].to(module.device)
    try:
        reaching = module(input_ids=tokens, position_ids=position[None].to(module.device), use_cache=False).logits
    except UNFIT:  # it numbers its tokens in another way
        return 0.0
    return _apart(reaching[:, :TRUNK].float(), alone[:1, :TRUNK])


@torch.no_grad()
def _by_output(module: PreTrainedModel, alone: Logits) -> float:
    """By how much the logits differ from those that ``Policy.head`` makes of the same forward's hidden states.

    A small share of them, such as of a cap far above the logits of these tokens, may be a large one of others.
    """
    taken: list[Any] = []
    hook = backbone_of(module).register_forward_hook(lambda _, __, given: taken.append(given[0]))
    try:
        module(input_ids=_tokens(module)[_PATHS].to(module.device), use_cache=False)
    finally:
        hook.remove()
    if len(taken) != 1 or taken[0].shape[:-1] != alone.shape[:-1]:  # it calls a part of it; see check_rows
        return 0.0
    output = cast(nn.Linear, module.get_output_embeddings())
    return _apart(logit_transform(module)(output(taken[0].to(output.weight.dtype))).float(), alone)


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
    if settings.path in UNTRAINED or settings.path.endswith(".gguf"):
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
        return None if _states_ahead(module) else ByRows(str(why), caches=True)
    except Exception:
        return None
    return None


def _states_ahead(module: PreTrainedModel) -> bool:
    """Whether states of a model without weights branch, as far as shapes show it."""
    if not branch_states(module):
        return False
    _attend_over_trees(module)
    plan = _branching_plan()
    tokens = torch.arange(_size_of(plan), device="meta")
    try:
        packed_hidden(getattr(module, module.base_model_prefix), tokens, tokens, plan.to(tokens.device))
    except Exception:
        return False
    return True


@torch.no_grad()
def check_rows(policy: Policy, alone: Logits, dtype: torch.dtype) -> None:
    """Compare rows, alone and beside others, whole and token by token, with transformers' own forward.

    Args:
        dtype: what is computed in.
    Raises:
        NotImplementedError: a token's logits depend on those after it or on other rows, or are not made by the output
            layer of the last hidden states.
    """
    what, limit = type(policy.causal).__name__, TOLERANCE[dtype]
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
    except UNFIT as error:
        raise NotImplementedError(f"the layers of a {what} cannot be run without its head: {error}") from error
    if not apart <= limit:
        raise NotImplementedError(f"the logits of a {what} are not its output layer's of its last hidden states")
    assert policy.by_rows is not None
    cached, padded = replace(policy.by_rows, caches=True), replace(policy.by_rows, caches=True, pads=True)
    limit = CACHE_TOLERANCE[dtype]
    if _feeds(policy, cached, (TRUNK, TRUNK), alone, limit) and _feeds(policy, cached, (0, 0), alone, limit):
        pads = _feeds(policy, padded, (TRUNK, 2), alone, limit)
        policy.run_by_rows(padded if pads else cached)


@torch.no_grad()
def train_over_trees(policy: Policy, tolerance: float) -> None:
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
        exact = _apart(got, expected) <= tolerance
    except UNFIT:
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
    except UNFIT:
        return False
    return True


def _apart(a: Tensor, b: Tensor) -> float:
    return float((a - b).norm() / b.norm())


@torch.no_grad()
def check_trees(policy: Policy, alone: Logits, tolerance: float = TOLERANCE[torch.float32]) -> None:
    """Compare with the logits over the packed tree, in which both branches follow one trunk.

    A model whose layers carry a state along the sequence, or whose attention has a feature that lyceum's lacks, would
    be trained on wrong probabilities. Where layers attend to other keys than the configuration says, such as those made
    of DeepSeek's latents, the engine keeps what the model caches, if that is all that later tokens need.

    Raises:
        NotOverTrees: they differ, or the model cannot be called over token trees.
    """
    what = type(policy.causal).__name__
    tokens, paths = _tokens(policy.causal).to(policy.device), _PATHS.to(policy.device)
    position = torch.empty_like(tokens).scatter_(0, paths.flatten(), torch.arange(paths.shape[1]).repeat(2).to(paths))
    plan = _Keys(list(_PATHS), [0, TRUNK])
    try:
        with _masks(policy) as limits:
            hidden = policy.hidden(tokens, position, plan.to(policy.device))
        if untold := sorted(limit for limit in limits - plan.limits if limit < policy.context_length):
            raise NotOverTrees(f"{what} has a window of {untold[0]} tokens in its masks alone")
        _require(policy, policy.head(hidden)[paths], alone, tolerance, "over a token tree than over plain sequences")
        if plan.twice or plan.shapes != _configured(policy):
            _check_cache(policy, tokens, position, alone, tolerance)
    except NotOverTrees:
        raise
    except UNFIT as error:
        raise NotOverTrees(f"{what} cannot be called over token trees ({type(error).__name__})") from error


@contextmanager
def _masks(policy: Policy) -> Iterator[set[int]]:
    """The windows and chunks of the masks that a model asks transformers for, which may be longer than the tree.

    None where the configuration says which layers have them: see ``_limits`` of the tree attention.
    """
    limits = set[int]()
    if getattr(policy.causal.config.get_text_config(), "layer_types", None):
        yield limits
        return

    def recorded(*_: Any, local_size: int | None = None, **__: Any) -> None:
        if local_size is not None:
            limits.add(local_size)

    AttentionMaskInterface.register(IMPLEMENTATION, recorded)
    try:
        yield limits
    finally:
        del AttentionMaskInterface._global_mapping[IMPLEMENTATION]


def _require(policy: Policy, got: Tensor, alone: Tensor, tolerance: float, where: str) -> None:
    difference = _apart(got, alone)
    if not difference <= tolerance:
        raise NotOverTrees(
            f"{type(policy.causal).__name__} gives other logits {where} (they differ by {difference:.1%}): "
            "its attention, or a state along the sequence, is not one that branches can share"
        )


def _configured(policy: Policy) -> dict[int, tuple[int, ...]] | None:
    """Heads and width of each layer's keys and values, as the engine's cache is made by the configuration."""
    try:
        layers, heads, dim = policy.cache_shape
    except UNFIT:  # where layers differ in it
        return None
    return dict.fromkeys(range(layers), (heads, dim, heads, dim))


def _check_cache(policy: Policy, tokens: Tensor, position: Tensor, alone: Logits, tolerance: float) -> None:
    """Let the engine keep what the model caches: the branches, computed from that of the trunk, must be the same.

    Raises:
        NotOverTrees: they are not, or layers cache something else than two tensors of tokens.
    """

    def computed(part: slice, plan: KeptTree) -> Tensor:
        cache = KeptCache(plan, position[part])
        return policy.head(policy.hidden(tokens[part], position[part], plan, past_key_values=cache))

    what = type(policy.causal).__name__
    trunk = KeptTree([torch.arange(TRUNK)], [0], {}, by_cache=True)
    begun = computed(slice(TRUNK), trunk.to(policy.device))
    if not trunk.cached:
        raise NotOverTrees(f"{what} hands nothing to a cache")
    for first, second in trunk.cached.values():
        if not all(x.dim() == 4 and x.shape[0] == 1 and x.shape[2] == TRUNK for x in (first, second)):
            raise NotOverTrees(f"{what} caches tensors of {tuple(first.shape)} and {tuple(second.shape)} of a row")
    # The new tokens are numbered before the cached ones.
    kept = 2 * BRANCH + torch.arange(TRUNK)
    ends = [torch.cat([kept, own]) for own in torch.arange(2 * BRANCH).split(BRANCH)]
    branches = KeptTree(ends, [TRUNK, TRUNK], trunk.cached, by_cache=True)
    grown = computed(slice(TRUNK, None), branches.to(policy.device)).view(2, BRANCH, -1)
    both = torch.cat([begun.expand(2, -1, -1), grown], 1)
    _require(policy, both, alone, tolerance, "from its cache than without")
    shapes = {n: (a.shape[1], a.shape[3], b.shape[1], b.shape[3]) for n, (a, b) in sorted(trunk.cached.items())}
    policy.keep_model_cache(ModelCache(shapes))


class _Keys(TreePlan):
    """Records the heads and width of each layer's keys and values."""

    def __init__(self, paths: Sequence[Tensor], owned_from: Sequence[int]) -> None:
        super().__init__(paths, owned_from)
        self.shapes: dict[int, tuple[int, ...]] = {}
        self.twice = False
        """Whether a layer attends more than once."""
        self.limits = set[int | None]()
        """Windows and chunks that layers are told of."""

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, **how: Unpack[Scoring]) -> Tensor:
        self.twice |= layer in self.shapes
        self.shapes[layer] = (*key.shape[1:], *value.shape[1:])
        self.limits |= {how["window"], how.get("chunk")}
        return super().attend(layer, query, key, value, **how)


_SIZE = TRUNK + 2 * BRANCH
_PATHS = torch.tensor([[*range(TRUNK + BRANCH)], [*range(TRUNK), *range(TRUNK + BRANCH, _SIZE)]])


def _tokens(module: PreTrainedModel) -> Int[Tensor, " T"]:
    """Tokens of the packed tree: the trunk, one branch, the other."""
    return _spread(module, _SIZE)


def _spread(module: PreTrainedModel, size: int) -> Int[Tensor, " T"]:
    """Tokens spread over the vocabulary, all different where it is large enough."""
    vocabulary = cast(nn.Linear, module.get_output_embeddings()).weight.shape[0]
    return (torch.arange(size) + 1) * (vocabulary - 1) // (size + 1)
