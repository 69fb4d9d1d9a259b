"""Tasks picked by how uncertain the policy is of the next token."""

import pytest
import torch
from levelled import Source, assert_resumes
from tiny_models import plain_model, policy_like

from lyceum.papers.rmt.curriculum_entropy import ByEntropy, window

ENTROPY = [0.3, 0.1, 0.9, 0.5, 0.1]
MODEL = plain_model()


def build(seed=0, **settings):
    return ByEntropy(**settings).build(Source(60), seed=seed, policy=policy_like(MODEL))


def test_the_window_moves_from_the_lowest_entropy_to_the_highest():
    # In order: 1, 4 (equal, the first first), 0, 3, 2; two of five leave three places: 0, 1.5 rounded to 2, 3.
    assert window(ENTROPY, 2, 0.0) == [1, 4]
    assert window(ENTROPY, 2, 0.5) == [0, 3]
    assert window(ENTROPY, 2, 1.0) == window(ENTROPY, 2, 7.0) == [2, 3]
    assert window(ENTROPY, 5, 0.4) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(("after", "tokens"), [("", 1), ("", 1000), ("#", 1000)])
def test_the_entropy_is_that_of_the_token_after_the_prompt(after, tokens):
    curriculum, tasks = build(after=after, micro_batch_tokens=tokens), [Source(60)[i] for i in (0, 11, 59)]
    expected = []
    for task in tasks:
        prompt = curriculum.policy.render(task.messages) + curriculum.policy.encode(after)[:-1]
        p = MODEL(torch.tensor([prompt])).logits[0, -1].softmax(-1)
        expected.append(-(p * p.log()).sum().item())
    assert curriculum.entropies(tasks) == pytest.approx(expected, abs=1e-4)
    assert len(set(expected)) == 3


def test_picked_tasks_become_harder_than_the_pool():
    curriculum, found = build(steps=3), []
    for _ in range(4):
        curriculum.draw(5)
        curriculum.observe([])
        found.append(curriculum.metrics()["entropy/picked"] - curriculum.metrics()["entropy/pool"])
    assert found[0] < 0 < found[-1]
    assert found[0] < found[1] < found[2] < found[3]


def test_it_resumes():
    first = build(steps=3)
    first.draw(5)
    first.observe([])
    assert_resumes(first, build(seed=1, steps=3), [])
