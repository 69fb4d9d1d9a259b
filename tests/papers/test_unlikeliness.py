import asyncio

import pytest
from fake_task import NO_MODEL

from lyceum.core.settings import Composition
from lyceum.core.tree import Node
from lyceum.core.types import Continuation, Grade, Origin, Task
from lyceum.papers.unlikeliness.reward_unlikeliness import Unlikeliness, less_likely
from lyceum.reward.base import combine, each, verdict
from lyceum.reward.task import TaskReward
from lyceum.rollout.flat import Flat
from lyceum.tasks import base as tasks


class Source(tasks.Source):
    """Completions of token 1 are correct; the verifier abstains on token 9."""

    def grader(self):
        return each(lambda _, leaf: Grade.ungraded("lost") if leaf.tokens[0] == 9 else verdict(leaf.tokens[0] == 1))


def outcomes(*samples):
    """What samples of (token, number of tokens, nats per token) earn."""
    root = Node(None, [5], Origin.PROMPT)
    leaves = [
        root.add_drawn(Continuation([token] * n, [-7.0] * n, [logprob] * n, [0] * n, "stop"))
        for token, n, logprob in samples
    ]
    graded = asyncio.run(combine([TaskReward(), Unlikeliness()], Source())(Task("t", ()), leaves, NO_MODEL))
    return [grade.outcome for grade in graded]


def test_a_correct_answer_pays_less_the_more_samples_are_less_likely():
    # Ranks by nats per token: 0 (-3), 1 (-2, incorrect), 2 (-1) and 3 (-0.4, though its ten tokens have -4 together).
    # 1 - 1/4 * rank / 4.
    samples = ((1, 1, -1.0), (1, 1, -3.0), (2, 1, -2.0), (1, 10, -0.4))
    assert outcomes(*samples) == pytest.approx([0.875, 1.0, 0.0, 0.8125])


def test_what_nobody_judged_is_in_no_rank():
    assert outcomes((9, 1, -5.0), (1, 1, -1.0), (1, 1, -2.0)) == [None, 0.875, 1.0]


def test_of_equally_likely_answers_the_first_is_taken_for_the_less_likely():
    assert less_likely([-1.0, -1.0]) == [0.0, 0.5]


def test_one_sample_a_task_is_refused():
    lines = Unlikeliness().conflicts(Composition(rollout=Flat(samples=1)))
    assert lines == [
        "rollout.samples: got 1, but reward.kind 'unlikeliness' compares the samples of a task; allowed: 2 or more"
    ]
