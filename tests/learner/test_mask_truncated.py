import pytest
import torch
from tiny_models import plain_model, policy_like

import lyceum
from lyceum.analysis.differences import first_difference, read_digests
from lyceum.core.component import kinds
from lyceum.core.forest import build_forest
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Continuation, Credited, Grade, Origin, Task
from lyceum.learner.local import LocalConfig, LocalLearner
from lyceum.objective.ppo_clip import PPOClip


def tree(number):
    """One task: an ending solved, a truncated and a wrong one, and a truncated one that was right."""
    root = Node(None, [1, 2, 3], Origin.PROMPT)
    for at, (outcome, finish) in enumerate(
        [(1.0, "stop"), (0.0, "length"), (0.0, "stop")] + [(1.0, "length")] * number
    ):
        n = 3 + at
        drawn = Continuation([4 + at + i for i in range(n)], [-1.0] * n, [-1.0] * n, [0] * n, finish)
        root.add_drawn(drawn).grade = Grade(outcome, correct=outcome > 0)
    return Tree(Task(f"t{number}", ()), [root])


PLANNED = sorted(set(kinds("objective")) - {"sft"})


def forest():
    return build_forest([tree(0), tree(1)])


def test_a_forest_knows_which_rows_a_token_limit_ended_and_trains_all_of_them():
    of = forest()
    assert of.truncated.tolist() == [False, True, False, False, True, False, True]
    assert of.trainable(of.rows()).any(1).all()
    masked = of.without_truncated()
    assert masked.trainable(masked.rows()).any(1).tolist() == [True, False, True, True, False, True, False]
    part = masked.select(torch.tensor([1, 2]))
    assert part.trainable(part.rows()).any(1).tolist() == [False, True]


@pytest.mark.parametrize("kind", PLANNED)
def test_no_objective_gives_a_masked_row_weight(kind):
    of = forest()
    settings = kinds("objective")[kind]
    needs = {"constant": 8} if getattr(settings, "aggregate", "") == "constant" else {}
    objective = settings(**needs).build()
    wanted = (
        objective.columns | objective.needs | {"old_logprob", "reference_logprob", "teacher_logprob", "old_entropy"}
    )
    of = of.with_columns(**{name: torch.full((of.n_tokens,), -1.0) for name in wanted})
    advantage = of.reward[:, None] * of.trainable(of.rows())
    credited = Credited(advantage, columns={"step": torch.arange(of.n_rows).float()[:, None].expand_as(advantage)})
    masked = of.without_truncated()
    plan = objective.plan(masked, credited, [torch.arange(of.n_rows)])
    assert not plan.weight[of.truncated].any()
    if plan.couple is not None:
        assert not (plan.trained & of.truncated).any()


def test_its_gradient_is_that_of_the_other_rows_alone():
    def gradient(of, credited):
        learner = LocalLearner(policy_like(plain_model()), LocalConfig(), total_steps=1, needs=frozenset())
        return learner.gradients(of, credited, PPOClip(aggregate="token").build()).weights

    of = forest()
    advantage = of.reward[:, None] * of.trainable(of.rows())
    stays = (~of.truncated).nonzero().squeeze(1)
    part = of.select(stays)
    width = part.rows().index.shape[1]
    masked = gradient(of.without_truncated(), Credited(advantage))
    alone = gradient(part, Credited(advantage[stays][:, :width]))
    for a, b in zip(masked, alone, strict=True):
        torch.testing.assert_close(a, b)
    whole = gradient(of, Credited(advantage))
    assert any(not torch.allclose(a, b) for a, b in zip(whole, alone, strict=True))


def test_the_update_is_another_and_all_before_it_the_same(tmp_path):
    def run(name, **keys):
        keys |= {"rollout.sampling.max_completion_tokens": 12, "evaluate.n": 0, "track": [], "digests": True}
        how = {
            "output": str(tmp_path),
            "name": name,
            "progress": "silent",
            "reward": lambda completion: len(completion) % 3,
        }
        return lyceum.train("grpo", steps=1, tasks_per_step=8, **how, **keys)

    kept, masked = run("kept"), run("masked", mask_truncated=True)
    found = first_difference(read_digests(kept.path), read_digests(masked.path))
    assert found is not None
    assert "loss" in str(found)
    step = masked.metrics[0] if isinstance(masked.metrics, list) else masked.metrics.iloc[0]
    assert 0 < step["rows/masked"] < 64
