"""Attention over trees by torch's flex_attention: what the chains' attention computes, and no block too many."""

from random import Random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from random_trees import letters, random_trees
from tiny_models import plain_model, policy_like
from torch.nn.attention.flex_attention import create_block_mask

from lyceum.core.forest import build_forest
from lyceum.learner.local import LocalConfig, LocalLearner
from lyceum.models.flex import BLOCK, FlexPlan, depth_first, padded
from lyceum.models.policy import forest_plan
from lyceum.models.tree_attention import TreePlan
from lyceum.utils.errors import RecipeError


def both(paths, owned, how, *, heads=(4, 2), dim=8, seed=0):
    """Of the same keys and values: by chains, and by flex_attention."""
    generator = torch.Generator().manual_seed(seed)
    tokens = 1 + max(int(path.max()) for path in paths)
    query, key, value = (torch.randn(tokens, h, dim, generator=generator) for h in (heads[0], heads[1], heads[1]))
    return [plan(paths, owned).attend(0, query, key, value, **how) for plan in (TreePlan, FlexPlan)]


pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")


@settings(max_examples=25)
@given(
    st.integers(0, 2**32),
    st.sampled_from([(4, 4), (4, 2), (6, 1)]),
    st.sampled_from([{}, {"window": 2}, {"chunk": 3}, {"softcap": 1.5}, {"sinks": 0.7}]),
)
def test_flex_attends_as_chains_do(seed, heads, own):
    forest = build_forest(random_trees(seed), decode=letters)
    if not forest.n_tokens:
        return
    how = {"scale": 0.4, "window": None, **own}
    if "sinks" in own:
        how["sinks"] = torch.linspace(-1, own["sinks"], heads[0])
    plan = forest_plan(forest)
    chains, flex = both(plan.paths, plan.owned_from, how, heads=heads, seed=seed)
    torch.testing.assert_close(flex, chains, rtol=1e-5, atol=1e-6)


def grown(rng, prompt=90, branch=(3, 2), longest=150):
    """Rows of a tree whose chains branch off in the middle of others, and how much of each an earlier row has."""
    paths = [torch.arange(prompt)]
    count = prompt
    for width in branch:
        for above in [*paths]:
            for _ in range(width):
                cut, length = rng.randint(1, len(above)), rng.randint(1, longest)
                paths.append(torch.cat((above[:cut], torch.arange(count, count + length))))
                count += length
    owned, seen = [], torch.zeros(count, dtype=torch.bool)
    for path in paths:
        owned.append(int(seen[path].sum()))
        seen[path] = True
    return paths, owned


@pytest.mark.parametrize("own", [{}, {"window": 40}, {"chunk": 64}], ids=["whole", "window", "chunk"])
def test_the_blocks_are_those_of_the_mask_itself(own):
    paths, owned = grown(Random(3))
    plan = FlexPlan(paths, owned)
    how = {"window": None, "chunk": None, **own}
    mask = plan.mask(**how)
    assert plan.size >= 6 * BLOCK, "a few blocks, of which some are empty"
    real = create_block_mask(mask.mask_mod, None, None, plan.size, plan.size, device="cpu", BLOCK_SIZE=BLOCK)
    computed, needed = mask.to_dense().bool(), real.to_dense().bool()
    assert 0 < needed.sum() <= computed.sum() < computed.numel() / 2
    assert (computed | ~needed).all()
    if not own:  # with a window or chunks, a block's extremes say less than its pairs
        assert torch.equal(computed, needed)
        assert torch.equal(mask.full_kv_num_blocks, real.full_kv_num_blocks)
        assert torch.equal(mask.q_num_blocks, real.q_num_blocks), "those of the backward pass"
    chains, flex = both(paths, owned, {"scale": 0.3, "window": None, **own})
    torch.testing.assert_close(flex, chains, rtol=1e-5, atol=1e-6)


def test_tokens_are_numbered_depth_first_whatever_the_order_of_the_rows():
    # 0 1 2 3 and below 1: 4 5, and 6; another root 7.
    paths = [torch.tensor(path) for path in ([0, 1, 2, 3], [0, 1, 4, 5], [0, 1, 6], [7])]
    order, end, depth = depth_first(paths, [0, 2, 2, 0])
    assert order.tolist() == [0, 1, 2, 3, 6, 4, 5, 7]
    assert end.tolist() == [7, 7, 4, 4, 5, 7, 7, 8]
    assert depth.tolist() == [0, 1, 2, 3, 2, 2, 3, 0]


def test_sizes_are_few_and_waste_little():
    sizes = [padded(tokens) for tokens in range(1, 40_000)]
    assert len(set(sizes)) < 45
    assert all(tokens <= size < tokens + max(BLOCK, tokens / 4) for tokens, size in enumerate(sizes, 1))


def test_flex_is_refused_where_it_cannot_train():
    policy = policy_like(plain_model())
    config = LocalConfig.model_validate({"attention": "flex"})
    with pytest.raises(RecipeError, match=r"learner\.attention: got 'flex' on a CPU.*allowed: chains"):
        LocalLearner(policy, config, total_steps=1, needs=frozenset())


def test_gradients_are_those_of_chains(monkeypatch):
    # torch refuses them on a CPU for speed's sake; what it computes there is its plain mathematics.
    monkeypatch.setattr("torch.nn.attention.flex_attention._validate_device", lambda *_: None)
    paths, owned = grown(Random(1), prompt=40, branch=(2, 2), longest=60)
    generator = torch.Generator().manual_seed(0)
    tokens = 1 + max(int(path.max()) for path in paths)
    found = []
    for plan in (TreePlan, FlexPlan):
        generator.manual_seed(0)
        of = [torch.randn(tokens, h, 8, generator=generator).requires_grad_() for h in (4, 2, 2)]
        out = plan(paths, owned).attend(0, *of, scale=0.4, window=None)
        (out * torch.randn(out.shape, generator=generator)).sum().backward()
        found.append([x.grad for x in of])
    for chains, flex in zip(*found, strict=True):
        torch.testing.assert_close(flex, chains, rtol=1e-4, atol=1e-5)
