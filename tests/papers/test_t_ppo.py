import torch

from lyceum.core.forest import build_forest
from lyceum.core.settings import Composition
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Batch, Continuation, Grade, Origin, Task
from lyceum.data.buffer.own import Own
from lyceum.objective.ppo_clip import PPOClip
from lyceum.papers.t_ppo.credit_egae import EGAE, newest_tokens, window


def forest_of(*rows):
    """(tokens of each step, reward; None where it goes on) of each row, after a prompt of one token."""
    trees = []
    for number, (steps, reward) in enumerate(rows):
        root = leaf = Node(None, [1], Origin.PROMPT)
        for version, n in enumerate(steps):
            tokens = [100 * number + 10 * version + i for i in range(n)]
            leaf = leaf.add_drawn(Continuation(tokens, [-1.0] * n, [-1.0] * n, [version] * n, "length"))
        leaf.finish, leaf.grade = (None, None) if reward is None else ("stop", Grade(reward))
        trees.append(Tree(Task(f"t{number}", ()), [root], chosen=[leaf]))
    return build_forest(trees, unfinished=True)


def with_values(forest, *values):
    return forest.with_columns(old_value=torch.tensor(values))


def test_the_value_after_a_cut_is_the_value_before_its_last_token():
    forest = with_values(forest_of([[3], None]), 99.0, 0.5, 0.25, 0.75)
    # deltas: 3/4 - 3/4 = 0 (with a value of 0 after the end: -3/4), 3/4 - 1/4 = 1/2, 1/4 - 1/2 = -1/4; lambda 1/2:
    # 0, 1/2, -1/4 + 1/4 = 0
    credited = EGAE(lam=0.5, whiten=False).build()(forest)
    torch.testing.assert_close(credited.advantage, torch.tensor([[0, 0, 0.5, 0]]))
    # gamma 1/2: (1/2 - 1) 3/4 = -3/8, 3/8 - 1/4 = 1/8, 1/8 - 1/2 = -3/8; gamma lambda = 1/4:
    # -3/8, 1/8 - 3/32 = 1/32, -3/8 + 1/128 = -47/128
    credited = EGAE(gamma=0.5, lam=0.5, whiten=False).build()(forest)
    torch.testing.assert_close(credited.advantage, torch.tensor([[0, -47 / 128, 1 / 32, -3 / 8]]))


def test_the_value_head_learns_the_returns_of_finished_rows_alone():
    forest = with_values(forest_of([[1, 2], 1.0], [[3], None]), 99.0, 0.5, 0.25, 0.75, 99.0, 0.5, 0.5, 0.5)
    credited = EGAE(gamma=0.5, lam=0.5, whiten=False).build()(forest)
    # 1/4, 1/2, 1: its first token, of the step before, too. By lambda 1/2 they would be 11/64, 7/16, 1.
    torch.testing.assert_close(credited.value_target[0], torch.tensor([0, 0.25, 0.5, 1]))
    assert credited.value_target[1].isnan().all()
    assert credited.advantage[0].tolist() == [0, 0, 3 / 16, 1 / 4], "the step's own tokens, by lambda"
    assert credited.metrics["tokens/policy"] == 5
    assert credited.metrics["tokens/value"] == 3
    assert credited.metrics["unfinished/rows"] == 1


def trained(steps, *, finished, held_back):
    """Numbers of the completion's tokens that the step that drew the last of them trains."""
    forest = forest_of([steps, 1.0 if finished else None])
    mask = forest.trainable(forest.rows())
    chosen = window(newest_tokens(forest, forest.rows(), mask), mask, torch.tensor([not finished]), held_back)
    return chosen[0, 1:].nonzero().flatten().tolist()


def test_each_token_is_trained_in_one_step():
    # Drawn 0-3, 4-7 and 8-9. Three held back: 0, then 1-4, then the rest. More held back than a step draws: all wait.
    drawn = [[4], [4, 4], [4, 4, 2]]
    for held_back, expected in ((0, [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]), (3, [[0], [1, 2, 3, 4], [5, 6, 7, 8, 9]])):
        assert [trained(s, finished=len(s) == 3, held_back=held_back) for s in drawn] == expected
    assert [trained(s, finished=len(s) == 3, held_back=9) for s in drawn] == [[], [], list(range(10))]


def test_only_trained_tokens_are_whitened():
    forest = with_values(forest_of([[2, 2], 1.0]), 0.0, 0.0, 0.5, 0.25, 0.5)
    # deltas of the last two: 1/2 - 1/4 = 1/4 and 1/2; lambda 0 leaves them: mean 3/8, deviation 1/8
    credited = EGAE(lam=0.0).build()(forest)
    torch.testing.assert_close(credited.advantage, torch.tensor([[0.0, 0, 0, -1, 1]]))


def test_recorded_groups_are_refused():
    # Their tokens were drawn, and trained, in other steps.
    assert EGAE().conflicts(Composition(credit=EGAE())) == []
    assert "allowed: none, or another credit" in EGAE().conflicts(Composition(credit=EGAE(), replay=Own()))[0]


def test_a_token_without_target_adds_no_value_loss():
    value = torch.tensor([[1.0, 3.0]], requires_grad=True)
    zero, mask = torch.zeros(1, 2), torch.ones(1, 2, dtype=torch.bool)
    batch = Batch(
        mask=mask,
        weight=torch.full((1, 2), 0.5),
        advantage=zero,
        logprob=zero,
        old_logprob=zero,
        behaviour_logprob=zero,
        group=torch.zeros(1, dtype=torch.long),
        origin=torch.full((1, 2), int(Origin.POLICY)),
        value=value,
        old_value=zero,
        value_target=torch.tensor([[0.0, torch.nan]]),
    )
    loss, metrics = PPOClip(value_coefficient=1.0).build()(batch)
    loss.backward()
    assert loss.item() == 0.25, "half of (1 - 0)^2 / 2"
    assert value.grad.tolist() == [[0.5, 0.0]]
    assert [float(x) for x in metrics["value_loss"]] == [0.5, 1.0]
