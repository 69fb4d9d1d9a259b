"""The tree attention alone, against each path attended by itself."""

from random import Random

import pytest
import torch
from forest_fixtures import is_ancestor
from hypothesis import given
from hypothesis import strategies as st
from random_trees import letters, random_trees
from tiny_models import UNFIT, plain_model, policy_like
from torch.nn import functional as F

from lyceum.core.forest import build_forest
from lyceum.models import tree_attention
from lyceum.models.policy import forest_plan
from lyceum.models.tree_attention import TreePlan


def naive(query, key, value, path, scale, window):
    """(n, H, D): plain causal attention of one path, head by head."""
    heads, kv_heads = query.shape[1], key.shape[1]
    q, k, v = query[path], key[path], value[path]
    at = torch.arange(len(path))
    visible = at[:, None] >= at
    if window is not None:
        visible &= at[:, None] - at < window
    out = []
    for h in range(heads):
        g = h * kv_heads // heads
        scores = (q[:, h] @ k[:, g].T * scale).masked_fill(~visible, float("-inf"))
        out.append(scores.softmax(-1) @ v[:, g])
    return torch.stack(out, 1)


@given(st.integers(0, 2**32), st.sampled_from([(4, 4), (4, 2), (6, 1)]), st.sampled_from([None, 1, 2, 5]))
def test_each_token_attends_to_its_own_path(seed, heads, window):
    forest = build_forest(random_trees(seed), decode=letters)
    if not forest.n_tokens:
        return
    generator = torch.Generator().manual_seed(seed)
    query, key, value = (
        torch.randn(forest.n_tokens, h, 8, generator=generator) for h in (heads[0], heads[1], heads[1])
    )
    got = forest_plan(forest).attend(0, query, key, value, scale=0.4, window=window)
    rows = forest.rows()
    for index, present in zip(rows.index, rows.present, strict=True):
        path = index[present]
        torch.testing.assert_close(got[path], naive(query, key, value, path, 0.4, window), rtol=1e-5, atol=1e-6)


def test_chains_of_very_different_lengths_are_padded_apart_and_put_back_in_place():
    # One prompt of 600 tokens, 30 short answers and a long one: several groups of chains, one of them not at the root.
    rng = Random(0)
    paths = [torch.arange(600)]
    after = 600
    for length in [3] * 30 + [500, 40]:
        paths.append(torch.cat([torch.arange(rng.choice((100, 600))), torch.arange(after, after + length)]))
        after += length
    paths.append(torch.arange(300))  # owns nothing
    owned = [0, *(int((path < 600).sum()) for path in paths[1:-1]), 300]
    plan = TreePlan(paths, owned)
    assert len(plan.buckets) >= 3
    generator = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(after, h, 4, generator=generator) for h in (2, 1, 1))
    got = plan.attend(0, query, key, value, scale=0.5, window=None)
    for path in paths:
        torch.testing.assert_close(got[path], naive(query, key, value, path, 0.5, None), rtol=1e-4, atol=1e-5)


def branches(prompt, length, count):
    """Paths of one prompt and ``count`` continuations, and how much of each an earlier path has."""
    begun = torch.arange(prompt)
    own = torch.arange(prompt, prompt + count * length).split(length)
    return [torch.cat((begun, of)) for of in own], [0] + [prompt] * (count - 1)


@pytest.mark.parametrize("ahead", [False, True], ids=["causal", "two-way"])
@pytest.mark.parametrize("window", [None, 7, 30, 1000])
def test_queries_in_blocks_attend_as_all_at_once_forward_and_backward(window, ahead, monkeypatch):
    paths, owned = branches(23, 41, 3)
    draw = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(146, h, 8, generator=draw, dtype=torch.float64) for h in (6, 2, 2))
    given = torch.randn(146, 6, 8, generator=draw, dtype=torch.float64)
    sees = torch.zeros(146, dtype=torch.long)
    sees[40:44] = torch.arange(3, -1, -1)  # a picture of four tokens, seen whole

    def found(elements):
        monkeypatch.setattr(tree_attention, "MASK_ELEMENTS", elements)
        monkeypatch.setattr(tree_attention, "BLOCK_ELEMENTS", 0)
        plan = TreePlan(paths, owned)
        if ahead:
            plan.two_way(sees)
        q, k, v = (x.clone().requires_grad_() for x in (query, key, value))
        out = plan.attend(0, q, k, v, scale=0.3, window=window)
        return [out, *torch.autograd.grad(out, (q, k, v), given)]

    for whole, blocks in zip(found(1 << 24), found(0), strict=True):
        torch.testing.assert_close(blocks, whole, rtol=1e-12, atol=1e-12)


def test_no_mask_grows_with_the_square_of_a_long_row(monkeypatch):
    # Three query heads on a key head: a whole mask had 3 * 4100 * 4100 elements (192 MiB) of the first row, and as many
    # of each other one.
    masks, of_chains = [], tree_attention._Chains.mask

    def watched(*args, **keywords):
        mask = of_chains(*args, **keywords)
        masks.append(0 if mask is None else mask.numel())
        return mask

    monkeypatch.setattr(tree_attention._Chains, "mask", watched)
    paths, owned = branches(100, 4000, 2)
    plan = TreePlan(paths, owned)
    query, key, value = (torch.randn(8100, h, 4, requires_grad=True) for h in (3, 1, 1))
    plan.attend(0, query, key, value, scale=0.5, window=None).sum().backward()
    forward = 4000 // (tree_attention.BLOCK_ELEMENTS // (3 * 4100)) + 1
    assert len(masks) == 2 * forward, "each block once, and again in the backward pass; the first row has none"
    assert 0.9 * tree_attention.BLOCK_ELEMENTS < max(masks) <= tree_attention.BLOCK_ELEMENTS
    assert not any(chains.masks for chains in plan.buckets)


def test_short_rows_keep_their_bits():
    # What they were computed with before queries were taken in blocks: heads stacked, one additive mask.
    draw = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(600, h, 8, generator=draw) for h in (4, 2, 2))
    got = TreePlan([torch.arange(600)], [0]).attend(0, query, key, value, scale=0.5, window=None)
    at = torch.arange(600)
    mask = torch.zeros(600, 600).masked_fill_(at[:, None] < at, float("-inf")).repeat(2, 1)
    q = query.view(600, 2, 2, 8).permute(1, 2, 0, 3).reshape(1, 2, 1200, 8)
    k, v = key.transpose(0, 1)[None], value.transpose(0, 1)[None]
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask[None, None], scale=0.5)
    assert torch.equal(got, out.view(2, 2, 600, 8).permute(2, 0, 1, 3).reshape(600, 4, 8))


def test_nothing_flows_between_trees_or_branches():
    # Changing one branch's tokens must leave the bits of every other path's hidden states as they were.
    policy = policy_like(plain_model())
    forest = build_forest(random_trees(13), decode=letters)
    with torch.no_grad():
        before = policy.forest_hidden(forest)
        at = int(forest.rows().index[1, 2])
        forest.token[at] += 50
        after = policy.forest_hidden(forest)
    below = is_ancestor(forest, torch.full((forest.n_tokens,), at), torch.arange(forest.n_tokens))
    assert 5 < below.sum() < forest.n_tokens - 5
    assert not torch.equal(before[at], after[at])
    torch.testing.assert_close(before[~below], after[~below], rtol=0, atol=0)


def test_layers_that_carry_a_state_along_the_sequence_are_refused_clearly():
    # Packed branches stand one behind the other: a convolution or a recurrence would run from one into the next.
    with pytest.raises(NotImplementedError, match=r"Lfm2ForCausalLM has layers of conv; .*full_attention"):
        policy_like(UNFIT["a convolution"]())


def test_a_model_called_past_the_policy_says_how_to_call_it():
    policy = policy_like(plain_model())
    with pytest.raises(ValueError, match=r"needs a plan.*models\.policy.*from_pretrained\(run\.model\)"):
        policy.module(input_ids=torch.tensor([[1, 2]]))
