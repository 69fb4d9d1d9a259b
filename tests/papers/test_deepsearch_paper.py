import math
from random import Random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from random_trees import letters, random_trees
from tiny_models import plain_model, policy_like

from lyceum.core.forest import build_forest
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Continuation, Grade, JudgedStep, Origin, Task
from lyceum.learner._forward import row_outputs
from lyceum.papers.deepsearch.credit_node_value import NodeValue, soft_clip, terminal_values
from lyceum.recipe.schema import load_recipe
from lyceum.utils.errors import RecipeError


def drawn(above, tokens, value=None, grade=None):
    n = len(tokens)
    node = above.add_drawn(Continuation(tokens, [-1.0] * n, [-1.0] * n, [0] * n, "stop"), letters(tokens))
    node.value, node.grade = value, grade
    return node


def searched(penalty=0.0, steps=()):
    """Prompt; a node of two tokens worth q = 0.5; below it a right and a wrong end; a second wrong way of one token."""
    root = Node(None, [1], Origin.PROMPT)
    inner = drawn(root, [10, 11], 0.5)
    drawn(inner, [12, 13], 1.0, Grade(1.0, True, steps=steps))
    drawn(inner, [14], -1.0, Grade(0.0 + penalty, False))
    drawn(root, [15], -1.0, Grade(0.0, False))
    return build_forest([Tree(Task("t", ()), [root])], decode=letters)


def test_a_tokens_advantage_is_its_nodes_value_less_the_mean_outcome():
    # Outcomes 1, -1, -1: mean -1/3. Inner: tanh(0.5) = 0.46212. Ends are not clipped: tanh(1) would be 0.76.
    advantage = NodeValue().build()(searched()).advantage
    inner = math.tanh(0.5) + 1 / 3
    expected = [[0, inner, inner, 4 / 3, 4 / 3], [0, inner, inner, -2 / 3, 0], [0, -2 / 3, 0, 0, 0]]
    torch.testing.assert_close(advantage, torch.tensor(expected))


def test_an_overlong_penalty_is_on_all_tokens_of_its_trajectory_and_in_the_mean():
    # Outcomes 1, -1.3, -1: mean -1.3 / 3. The shared node's tokens carry the penalty in the second row alone.
    advantage = NodeValue().build()(searched(penalty=-0.3)).advantage
    mean, inner = -1.3 / 3, math.tanh(0.5)
    torch.testing.assert_close(advantage[0, 1], torch.tensor(inner - mean))
    torch.testing.assert_close(advantage[1, 1], torch.tensor(inner - 0.3 - mean))
    torch.testing.assert_close(advantage[1, 3], torch.tensor(-1.3 - mean))


def test_the_standard_deviation_is_over_the_trees_outcomes():
    # Deviations 4/3, -2/3, -2/3: squares 16/9 + 4/9 + 4/9 = 24/9, a third of it, root: sqrt(8/9).
    plain, scaled = NodeValue().build()(searched()).advantage, NodeValue(scale="std").build()(searched()).advantage
    torch.testing.assert_close(scaled, plain / (math.sqrt(8 / 9) + 1e-6))


def test_soft_clipping_by_hand_and_without():
    got = soft_clip(torch.tensor([0.0, 1.0, -40.0]), temperature=2.0, largest=0.5)
    torch.testing.assert_close(got, torch.tensor([0.0, 0.5 * math.tanh(0.5), -0.5]))
    advantage = NodeValue(temperature=None).build()(searched()).advantage
    torch.testing.assert_close(advantage[0, 1], torch.tensor(0.5 + 1 / 3))


def test_judged_steps_inside_the_last_node_do_not_make_its_first_part_an_inner_one():
    plain, judged = searched(), searched(steps=(JudgedStep(0, 3, 0.5), JudgedStep(3, 4, 0.5)))
    assert len(judged.segment_row) == len(plain.segment_row) + 1
    torch.testing.assert_close(NodeValue().build()(judged).advantage, NodeValue().build()(plain).advantage)


def test_a_flat_group_has_its_outcomes_against_their_mean(forest_of):
    # Rewards 1, 0, 0, 0 of right and wrong: 1, -1, -1, -1, mean -1/2.
    forest = forest_of([(1.0, 2), (0.0, 1), (0.0, 1), (0.0, 2)])
    advantage = NodeValue().build()(forest).advantage
    assert advantage[:, 1].tolist() == [1.5, -0.5, -0.5, -0.5]


def test_equal_outcomes_leave_ends_nothing_and_inner_nodes_what_they_differ():
    root = Node(None, [1], Origin.PROMPT)
    inner = drawn(root, [10], -0.5)
    for token in (11, 12, 13):
        drawn(inner, [token], -1.0, Grade(-0.1, False))
    forest = build_forest([Tree(Task("t", ()), [root])])
    advantage = NodeValue().build()(forest).advantage
    assert (advantage[:, 2] == 0).all(), "exactly: rewards of -0.1 have a float32 mean one ulp off"
    torch.testing.assert_close(advantage[:, 1], torch.full((3,), 1 - math.tanh(0.5)))
    assert (NodeValue(equal="skip").build()(forest).advantage == 0).all()
    assert (NodeValue(equal="skip").build()(searched()).advantage != 0).any()
    # Only the first of the three trains a tree without a correct answer.
    credited = [NodeValue(equal=equal).build()(of) for equal, of in (("train", forest), ("skip", forest))]
    credited.append(NodeValue().build()(searched()))
    assert [of.metrics["all_wrong_groups_trained"] for of in credited] == [1, 0, 0]


def test_one_trajectory_alone_has_nothing_to_be_compared_with():
    root = Node(None, [1], Origin.PROMPT)
    drawn(drawn(root, [10], 0.5), [11], 1.0, Grade(1.0, True))
    assert (NodeValue().build()(build_forest([Tree(Task("t", ()), [root])])).advantage == 0).all()
    with pytest.raises(RecipeError, match=r"rollout.trajectories: got 1, but credit.kind 'node-value'"):
        load_recipe("deepsearch", ["rollout.trajectories=1"])


def test_shaping_is_what_a_reward_has_beyond_its_verdict():
    z, s = terminal_values(torch.tensor([0.9, -0.2, 0.4]), torch.tensor([1.0, 0.0, math.nan]))
    torch.testing.assert_close(z, torch.tensor([1.0, -1.0, 0.4]))
    torch.testing.assert_close(s, torch.tensor([-0.1, -0.2, 0.0]))
    _, s = terminal_values(torch.tensor([1.0, -1.0]), torch.tensor([1.0, 0.0]), wrong=-1.0)
    assert s.tolist() == [0, 0], "a verifier that pays -1"


def test_the_curriculums_weight_multiplies():
    forest = searched()
    weighted = build_forest_weighted(0.5)
    torch.testing.assert_close(NodeValue().build()(weighted).advantage, 0.5 * NodeValue().build()(forest).advantage)


def build_forest_weighted(weight):
    from dataclasses import replace

    forest = searched()
    return replace(forest, weight=torch.full_like(forest.weight, weight))


def with_values(seed):
    trees, rng = random_trees(seed, most=2, longest=3), Random(seed)
    for tree in trees:
        for node in tree.nodes():
            node.value = rng.choice((None, rng.uniform(-3, 3)))
    return trees


def plain_values(trees):
    """The oracle: each trajectory's node values, token by token, walking the nodes."""
    return [[node.value for node in leaf.path() for _ in node.tokens] for tree in trees for leaf in tree.graded]


@given(st.integers(0, 2**32), st.data())
def test_segments_carry_the_values_of_their_nodes_through_selection(seed, data):
    trees = with_values(seed)
    forest = build_forest(trees, decode=letters)
    forest = forest.with_columns(place=torch.arange(forest.n_tokens).float())
    expected = plain_values(trees)
    chosen = data.draw(st.permutations(range(forest.n_rows)))
    chosen = chosen[: data.draw(st.integers(0, len(chosen)))]
    part = forest.select(torch.tensor(chosen, dtype=torch.long))
    for of, rows in ((forest, range(forest.n_rows)), (part, chosen)):
        got = [[] for _ in rows]
        for row, start, end, value in zip(
            of.segment_row.tolist(),
            of.segment_start.tolist(),
            of.segment_end.tolist(),
            of.segment_value.tolist(),
            strict=True,
        ):
            got[row] += [value] * (end - start)
        for found, r in zip(got, rows, strict=True):
            assert found == pytest.approx([math.nan if v is None else v for v in expected[r]], nan_ok=True)


POLICY = policy_like(plain_model("llama"))


@settings(max_examples=12)
@given(st.integers(0, 2**32))
def test_both_layouts_give_the_same_gradient_of_a_searched_tree(seed):
    # A token through which several trajectories pass counts once for each of them, in either layout.
    forest = build_forest(with_values(seed), decode=letters)
    mask = forest.trainable(forest.rows())
    advantage = NodeValue().build()(forest).advantage
    assert (advantage[~forest.rows().present] == 0).all()
    if not bool(mask.any()):
        return
    found = {}
    for layout in ("tree", "rows"):
        out = row_outputs(POLICY, forest, mask, layout=layout)
        loss = -((out.logprob - out.logprob.detach()).exp() * advantage * mask).sum() / mask.sum()
        gradient = torch.autograd.grad(loss, list(POLICY.module.parameters()), allow_unused=True)
        found[layout] = torch.cat([g.flatten() for g in gradient if g is not None])
    scale = float(found["rows"].abs().max()) or 1.0
    assert float((found["tree"] - found["rows"]).abs().max()) <= 1e-5 * scale


def test_a_kl_penalty_is_shaping(forest_of):
    # Rewards 1 and 0 of 2 and 1 tokens; each token costs 0.1 * (-0.5 + 1): rows 0.1 and 0.05, outcomes 0.9 and -1.05.
    forest = forest_of([(1.0, 2), (0.0, 1)], old_logprob=-0.5, reference_logprob=-1.0)
    credit = NodeValue.model_validate({"kl_in_reward": {"coefficient": 0.1}}).build()
    assert credit.needs == {"old_logprob", "reference_logprob"}
    torch.testing.assert_close(credit(forest).advantage[:, 1], torch.tensor([0.975, -0.975]))
