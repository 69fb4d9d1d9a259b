import math

import fake_task
import pytest
import torch

from lyceum.core.tree import Node, Tree
from lyceum.core.types import Continuation, Sampling, Task
from lyceum.papers.hapo._entropy import EntropyRange
from lyceum.papers.hapo.guidance_entropy_temperature import EntropyTemperature, TemperatureByEntropy

TASK = Task("t", ())


def tree_of(*entropies, grafted=False):
    tree = Tree(TASK, [Node.prompt([1])])
    for nats in entropies:
        drawn = Continuation([3], [-1.0], [-1.0], [0], "stop", entropy=[nats])
        tree.root.add_drawn(drawn).grafted = grafted
    return tree


class Context(fake_task.FakeTask):
    def with_sampling(self, change, *, entropy=False):
        assert entropy, "the guide reads what it noted of the step before"
        assert change(Sampling(temperature=0)) == Sampling(temperature=0), "greedy stays greedy"
        self.by = change(Sampling(temperature=0.7)).temperature
        return self


async def nothing(context, start, n):
    return []


def asked(guide):
    context = Context()
    fake_task.roll(guide(nothing), context, TASK, 1)
    return context.by


def test_relative_entropy_and_temperatures_by_hand():
    e = math.e
    of = EntropyRange.of(torch.tensor([1.0, e, e**2, e**4, 1 / e]), 0.5)
    assert (of.lowest, of.pivot, of.highest) == pytest.approx((-1, 1, 4))
    entropy = torch.tensor([0.0, 1 / e, 1.0, e, e**2.5, e**9])  # beyond both ends: as at the ends
    h = torch.tensor([-1, -1, -0.5, 0, 0.5, 1])
    torch.testing.assert_close(of.relative(entropy), h)
    torch.testing.assert_close(TemperatureByEntropy(0.7, 0.1, of).factor(entropy), 1 + 0.1 * h)
    alike = EntropyRange.of(torch.ones(3), 0.8)
    assert alike.relative(torch.ones(2)).tolist() == [0, 0]


def test_a_step_is_compared_with_the_one_before():
    guide = EntropyTemperature(change=0.2, pivot=0.5).build(None, seed=0)
    assert asked(guide).factor(torch.tensor([0.1, 5.0])).tolist() == [1, 1], "there is none before the first"
    guide.observe([tree_of(1.0, math.e), tree_of(math.e**2), tree_of(99.0, grafted=True)])
    assert guide.metrics() == {"hotter": 0, "cooler": 0, "change": 0}
    assert asked(guide) == TemperatureByEntropy(0.7, 0.2, EntropyRange(*map(pytest.approx, (0, 1, 2))))
    guide.observe([tree_of(1.0, math.e, math.e**1.5, math.e**2)])
    assert guide.metrics() == pytest.approx({"hotter": 0.5, "cooler": 0.25, "change": (0.2 + 0.1 + 0.2) / 4})


def test_the_range_is_resumed_and_a_step_without_tokens_leaves_it():
    guide, again = (EntropyTemperature().build(None, seed=0) for _ in range(2))
    again.load_state_dict(guide.state_dict())
    assert asked(again) == asked(guide)
    guide.observe([tree_of(0.5, 1.5)])
    guide.observe([tree_of()])
    again.load_state_dict(guide.state_dict())
    assert asked(again) == asked(guide) != asked(EntropyTemperature().build(None, seed=0))
