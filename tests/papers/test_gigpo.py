import pytest
import torch
from pydantic import ValidationError
from random_trees import letters

from lyceum.core import keys
from lyceum.core.forest import build_forest
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Continuation, Grade, JudgedStep, Origin, Task
from lyceum.credit.group import GroupRelative
from lyceum.papers.gigpo.credit_gigpo import GiGPO
from lyceum.utils.errors import RecipeError


def drawn(node, tokens, key=None):
    n = len(tokens)
    child = node.add_drawn(Continuation(tokens, [-1.0] * n, [-1.0] * n, [0] * n, "stop"), letters(tokens))
    child.key = key
    return child


def tree_of(*rows):
    """(steps, reward) of each row below a prompt of one token; a step is one token, judged."""
    root = Node(None, [1], Origin.PROMPT)
    for steps, reward in rows:
        leaf = drawn(root, steps)
        leaf.grade = Grade(reward, steps=tuple(JudgedStep(end - 1, end, 1.0) for end in range(1, len(steps) + 1)))
    return Tree(Task("t", ()), [root])


TWO = (([5, 6, 7], 1.0), ([5, 8], 0.0))


def test_steps_from_the_same_state_are_compared_by_discounted_returns():
    # Episode: 1/2 and -1/2. Returns with gamma 1/2: the first row's steps 1/4, 1/2, 1; the second's 0, 0.
    # Both take their first step from the prompt: mean 1/8. Both have then taken 5: mean 1/4. The first row's third
    # step, after 5 6, has no company: 0.
    credited = GiGPO(gamma=0.5).build()(build_forest([tree_of(*TWO)], decode=letters))
    torch.testing.assert_close(credited.advantage[0], torch.tensor([0, 0.5 + 1 / 8, 0.5 + 1 / 4, 0.5]))
    torch.testing.assert_close(credited.advantage[1], torch.tensor([0, -0.5 - 1 / 8, -0.5 - 1 / 4, 0]))
    # In 8ths 5 6 4 | -5 -6: mean 4/5, squared deviations 138 - 16/5. With the outcome's, 4 4 4 | -4 -4: 104 - 16/5.
    shares = {"outcome/share": pytest.approx(100.8 / 134.8), "steps/share": pytest.approx(34 / 134.8)}
    assert credited.metrics == {"steps": 5, "steps_compared": 4, **shares}


def test_divided_by_the_samples_standard_deviation_as_in_the_authors_code():
    # Two of two: the deviations are +-d, the sample's standard deviation d sqrt(2): +-1 / sqrt(2) at both levels.
    advantage = GiGPO(scale="std").build()(build_forest([tree_of(*TWO)], decode=letters)).advantage
    torch.testing.assert_close(advantage[0, 1:], torch.tensor([2.0, 2.0, 1.0]) / 2**0.5, rtol=1e-4, atol=1e-4)


def test_a_state_is_how_many_steps_were_taken_and_the_last_of_them():
    # 5 7 | 6 7: after the second step both end in 7, which is one state for a history of 1, and not for all of it.
    rows = (([5, 7, 9], 1.0), ([6, 7, 8], 0.0))
    forest = build_forest([tree_of(*rows)], decode=letters)

    def compared(**settings):
        return GiGPO(**settings).build()(forest).metrics["steps_compared"]

    assert compared(history=1) == 4  # the first steps, and the third ones
    assert compared(history=None) == 2  # the first steps
    assert compared(history=0) == 6  # whatever was written before


def test_over_steps_a_long_trajectory_counts_more():
    # Three steps of reward 1 and two of 0: mean 3/5, so 2/5 and -3/5 instead of 1/2 and -1/2.
    forest = build_forest([tree_of(*TWO)], decode=letters)
    by_step = GiGPO(episode_mean="steps", step_weight=0).build()(forest).advantage
    torch.testing.assert_close(by_step[:, 1:], torch.tensor([[0.4, 0.4, 0.4], [-0.6, -0.6, 0.0]]))
    # Deviations 2/5 thrice and -3/5 twice: the sample's variance is (12/25 + 18/25) / 4 = 3/10.
    scaled = GiGPO(episode_mean="steps", step_weight=0, scale="std").build()(forest).advantage
    torch.testing.assert_close(scaled[:, 1], torch.tensor([0.4, -0.6]) / 0.3**0.5, rtol=1e-4, atol=0)


def test_groups_are_never_compared():
    forest = build_forest([tree_of(TWO[0]), tree_of(TWO[1])], decode=letters)
    assert not GiGPO().build()(forest).advantage.any()


def test_a_step_weight_of_0_is_the_group_relative_advantage():
    forest = build_forest([tree_of(*TWO)], decode=letters)
    plain = GroupRelative(scale="none").build()(forest).advantage
    assert GiGPO(step_weight=0).build()(forest).advantage.equal(plain)


def marked(key_of_second="door"):
    """Two rows that reach a state by steps of different lengths, and act from there."""
    root = Node(None, [1], Origin.PROMPT)
    for steps, key, reward in (([5], "door", 1.0), ([6, 7], key_of_second, 0.0)):
        leaf = drawn(drawn(root, steps, key), [8])
        leaf.grade = Grade(reward)
    return build_forest([Tree(Task("t", ()), [root])], decode=letters)


def test_an_environments_key_says_which_steps_start_in_the_same_state():
    # From the door: returns 1 and 0, +-1/2. From the prompt, where all begin: 1/2 and 0, +-1/4.
    credited = GiGPO(state="marked", gamma=0.5).build()(marked())
    assert credited.advantage.tolist() == [[0, 0.75, 1, 0], [0, -0.75, -0.75, -1]]
    assert credited.metrics["steps_compared"] == 4
    assert GiGPO(state="marked").build()(marked("key")).metrics["steps_compared"] == 2
    assert marked().node_key == {1: "door", 3: "door"}
    assert marked().select(torch.tensor([1])).node_key == {1: "door", 3: "door"}, "nodes are not renumbered"


def test_a_state_that_is_come_back_to_is_the_one_in_which_all_began():
    # Three steps of two rows from the hall, and one from the door: two first ones, and the second of one row.
    root = Node(None, [1], Origin.PROMPT, key="hall")
    for steps, reward in ((("hall", "end"), 1.0), (("door", "end"), 0.0)):
        leaf = root
        for number, key in enumerate(steps):
            leaf = drawn(leaf, [5 + number + 2 * int(reward)], key)
        leaf.grade = Grade(reward)
    credited = GiGPO(state="marked", gamma=0.5).build()(build_forest([Tree(Task("t", ()), [root])], decode=letters))
    # Returns from the hall: 1/2 and 1 of the first row, 0 of the second, mean 1/2.
    assert credited.metrics["steps_compared"] == 3
    assert credited.advantage.tolist() == [[0, 0.5, 1], [0, -1, -0.5]]


def test_an_observation_is_a_state_and_no_step():
    # Both act, see the same and act again; the judged step that ends within the second action is no door.
    root = Node(None, [1], Origin.PROMPT)
    for first, reward in ((5, 1.0), (6, 0.0)):
        seen = drawn(root, [first]).add([20, 21], Origin.TOOL)
        seen.key = "door"
        leaf = drawn(seen, [7, 8], "end")
        leaf.grade = Grade(reward, steps=(JudgedStep(0, 2, 1.0),))
    credited = GiGPO(state="marked", gamma=0.5).build()(build_forest([Tree(Task("t", ()), [root])], decode=letters))
    # Two actions each, the last one in two steps: returns at the door 1/2 and 0, +-1/4, at the prompt 1/4 and 0.
    # Squares 2 (25/64 + 9/16 + 1/4) = 77/32; with the outcome's 2 (5/16 + 3/8 + 1/4) = 60/32.
    shares = {"outcome/share": pytest.approx(60 / 77), "steps/share": pytest.approx(17 / 77)}
    assert credited.metrics == {"steps": 6, "steps_compared": 4, **shares}
    assert credited.advantage.tolist() == [[0, 0.625, 0, 0, 0.75, 0.5], [0, -0.625, 0, 0, -0.75, -0.5]]


def test_under_two_prompts_first_steps_begin_in_two_states():
    tree = Tree(Task("t", ()), [Node(None, [1], Origin.PROMPT), Node(None, [1, 2], Origin.PROMPT)])
    for root, reward in zip([*tree.roots, tree.roots[0]], (1.0, 0.0, 0.0), strict=True):
        leaf = drawn(drawn(root, [5 + int(reward)], "door"), [8])
        leaf.grade = Grade(reward)
    metrics = GiGPO(state="marked").build()(build_forest([tree], decode=letters)).metrics
    assert metrics["steps_compared"] == 2 + 3  # first steps below the first prompt, and all three at the door


def test_a_run_in_which_nothing_marks_states_is_refused():
    with pytest.raises(RecipeError, match=r"credit.state: got 'marked', but no node .* allowed: 'steps'"):
        GiGPO(state="marked").build()(build_forest([tree_of(*TWO)], decode=letters))
    with pytest.raises(ValidationError, match="got 'tokens' with state 'marked'"):
        GiGPO(state="marked", steps="tokens")


def test_a_prompts_key_is_its_tokens():
    hinted = tree_of(*TWO)
    other = hinted.add_prompt([1, 2])
    drawn(other, [5]).grade = Grade(1.0)
    assert keys.prompts(build_forest([hinted], decode=letters)) == [(1,), (1,), (1, 2)]


def test_nodes_below_the_prompt_are_parts_by_their_node_judged_or_not():
    root = Node(None, [1, 2], Origin.PROMPT)
    inner = drawn(root, [5, 6])
    for token in (7, 8):
        drawn(inner, [token]).grade = Grade(
            1.0, steps=(JudgedStep(0, 1, 1.0), JudgedStep(1, 3, 0.0))
        )  # one judged step ends within the inner node
    parts = keys.nodes(build_forest([Tree(Task("t", ()), [root])], decode=letters))
    assert list(zip(parts.row.tolist(), parts.start.tolist(), parts.end.tolist(), strict=True)) == [
        (0, 2, 4),
        (0, 4, 5),
        (1, 2, 4),
        (1, 4, 5),
    ]
    assert parts.number.tolist() == [0, 1, 0, 2]
