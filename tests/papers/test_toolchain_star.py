import pytest
from fake_task import roll
from tree_fakes import FakeTreeContext

from lyceum.core.steps import Steps
from lyceum.core.types import Continuation, Sampling
from lyceum.papers.toolchain_star.rollout_a_star import AStar


class Imagining(FakeTreeContext):
    """What is left of a plan is imagined as so many letters, by what stands there."""

    def __init__(self, right, rest, **how):
        super().__init__(right, **how)
        self.rest, self.asked_to_imagine = rest, []

    async def ask(self, prefix, n, sampling, *, key):
        said = self.decode(prefix[1:])
        self.asked_to_imagine.append(said)
        letters = "=" * self.rest(said)
        return [Continuation([ord("=") - 96] * len(letters), [], [], [], "stop")]

    def decode(self, tokens):
        return "".join(chr(96 + token) for token in tokens if token)

    def tokens_left(self, node):
        return 100


def searched(rest=lambda said: 0, right=lambda text: False, **settings):
    context = Imagining(right, rest)
    of = {"depth": 12, "sampling": Sampling(max_completion_tokens=12), "trajectories": None, "max_nodes": 6, "width": 2}
    rollout = AStar(**of | {"step": Steps(by="marker", markers=("=",), tokens=1)} | settings).build()
    return roll(rollout, context), context


def expanded(tree):
    nodes = [node for node in tree.nodes() if "expanded" in node.stats]
    return [node.completion for node in sorted(nodes, key=lambda node: node.stats["expanded"])]


def test_without_a_future_nothing_is_imagined():
    tree, context = searched(future=0)
    assert context.asked_to_imagine == []
    assert tree.metadata["a-star"]["imagined"] == 0


def test_of_equal_costs_so_far_the_one_with_the_shorter_rest_is_expanded():
    # a and b were drawn once each of two: both cost 1/2. Below a 9 steps are imagined, below b none.
    tree, context = searched(rest=lambda said: 9 if said.startswith("a") else 0)
    assert expanded(tree)[:2] == ["", "b"]
    assert tree.metadata["a-star"]["imagined"] == len(context.asked_to_imagine)


def test_the_score_is_the_cost_with_its_sign_turned():
    # b: 1 - 1/2 so far, and 1 - 1 / (1 + 1) to come; the prompt: 0 so far, 1 - 0 to come.
    tree, _ = searched()
    found = {node.completion: node.stats["score"] for node in tree.nodes() if "score" in node.stats}
    assert found[""] == pytest.approx(-1.0)
    assert found["b"] == pytest.approx(-1.0)
