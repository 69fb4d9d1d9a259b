"""The search against a second, plain statement of it, on hundreds of policies: order, values, visits and advantages.

``plain_search`` follows the equations of DeepSearch (arXiv:2509.25454, section 3) and what its released code does
(deepsearch/utils/mcts.py), with its defaults: no sharing with ``lyceum.rollout``. Log-probabilities are multiples of
1/8, so that means of the same tokens have the same bits however they are added.
"""

import math
from dataclasses import dataclass, field
from random import Random

import pytest
import torch
from fake_task import roll
from scripted_context import END, ScriptedContext

from lyceum.core.forest import build_forest
from lyceum.core.steps import Steps
from lyceum.core.types import Grade, Sampling
from lyceum.papers.deepsearch.credit_node_value import NodeValue
from lyceum.rollout.mcts import MCTS

POLICIES = 300
TRAJECTORIES = 8
LAMBDA, QUALITY, DEPTH_WEIGHT, LEAST_DECAY = 2.0, 0.4, 0.01, 0.1


def step(policy, text, nth):
    """(letter or END, log-probability) of continuation ``nth`` of a text."""
    rng = Random(f"{policy}/{text}/{nth}")
    ends = rng.random() < 0.1 + 0.03 * len(text)
    return END if ends else rng.choice("abc"), -rng.randint(1, 24) / 8


def is_correct(policy, text):
    return Random(f"{policy}/{text}/correct").random() < 0.15


@dataclass(eq=False)
class Plain:
    """A node of one token."""

    text: str
    depth: int
    nats: tuple = ()
    above: "Plain | None" = None
    below: list = field(default_factory=list)
    q: float = 0.0
    visits: int = 0
    rank: int | None = None  # of a terminal: 2 correct, 1 incorrect, 0 incomplete
    taken: bool = False


def plain_search(policy, width, deepest):
    """(root, texts expanded in order, terminals backed up in order, whether nothing was left to expand)."""
    root, drawn, expanded, taken = Plain("", 0), {}, [], []
    at, exhausted = root, False
    while len(taken) < TRAJECTORIES:
        expanded.append(at.text)
        for _ in range(width):
            nth = drawn[at.text] = drawn.get(at.text, -1) + 1
            letter, nats = step(policy, at.text, nth)
            below = Plain(at.text + letter.replace(END, ""), at.depth + 1, (*at.nats, nats), at)
            at.below.append(below)
            if letter == END:
                below.rank = 2 if is_correct(policy, below.text) else 1
            elif below.depth == deepest:
                below.rank = 0
            else:
                below.visits = 1  # at birth, with value 0; nothing above counts it
        ends = [child for child in at.below if child.rank is not None]
        if not ends:  # the path goes on: UCT among the new steps
            visits = at.visits
            scores = [
                child.q / child.visits + (LAMBDA * math.sqrt(math.log(visits) / child.visits) if visits else 0)
                for child in at.below
            ]
            at = at.below[scores.index(max(scores))]
            continue
        # The best class, in it the most confident: the least mean of -log p over the trajectory; ties to the first.
        best = min(ends, key=lambda end: (-end.rank, -sum(end.nats) / len(end.nats)))
        plain_backup(best)
        taken.append(best)
        found = [place for place in plain_walk(root) if place.above and place.rank is None and not place.below]
        if not found:
            exhausted = True
            break
        scores = [
            QUALITY * math.tanh(place.above.q / place.above.visits if place.above.visits else 0)
            + DEPTH_WEIGHT * math.sqrt(place.depth / deepest)
            for place in found
        ]
        at = found[scores.index(max(scores))]
    return root, expanded, taken, exhausted


def plain_backup(leaf):
    outcome, place = (1 if leaf.rank == 2 else -1), leaf
    leaf.taken = True
    while place is not None:
        share = max((place.depth + 1) / (leaf.depth + 1), LEAST_DECAY) * outcome
        if place.q * outcome >= 0:
            place.q += share
        elif outcome > 0:  # a success forgets the failures; a failure takes nothing from a success
            place.q = share
        place.visits += 1
        place = place.above


def plain_walk(place):
    yield place
    for child in place.below:
        yield from plain_walk(child)


class Policy(ScriptedContext):
    def __init__(self, policy):
        def write(text, nth, sampling):
            letter, nats = step(policy, text, nth)
            return [(letter, nats, nats)]

        super().__init__(write)
        self.policy = policy

    def judged(self, leaf):
        if leaf.finish != "stop":
            return Grade(0.0, False, answered=False)
        right = is_correct(self.policy, leaf.completion)
        return Grade(float(right), right, answered=True)


def searched(policy):
    rng = Random(f"{policy}/sizes")
    width, deepest = rng.randint(2, 8), rng.randint(3, 10)
    settings = MCTS(width=width, depth=deepest, step=Steps(tokens=1), sampling=Sampling(max_completion_tokens=deepest))
    context = Policy(policy)
    return roll(settings.build(), context), context, plain_search(policy, width, deepest)


def assert_same_nodes(node, plain):
    assert (node.completion, node.stats["visits"]) == (plain.text, plain.visits)
    assert node.stats["q"] == pytest.approx(plain.q, abs=1e-6)  # kept to six digits
    assert len(node.children) == len(plain.below)
    for child, of in zip(node.children, plain.below, strict=True):
        assert_same_nodes(child, of)


def plain_advantages(taken):
    """Of each trajectory's tokens: tanh(q) of inner nodes, the outcome of the last, less the tree's mean outcome."""
    mean = sum(leaf.q for leaf in taken) / len(taken)
    rows = []
    for leaf in taken:
        row, place = [leaf.q - mean], leaf.above
        while place.above is not None:
            row, place = [math.tanh(place.q) - mean, *row], place.above
        rows.append(row)
    return rows


def test_the_search_is_the_plain_one_step_by_step_and_so_are_its_advantages():
    ended = 0
    for policy in range(POLICIES):
        tree, context, (root, expanded, taken, exhausted) = searched(policy)
        found = sorted(tree.graded, key=lambda leaf: leaf.stats["backed_up"])
        assert [text for text, *_ in context.asked] == expanded, policy
        assert [leaf.completion for leaf in found[: len(taken)]] == [leaf.text for leaf in taken], policy
        ended += exhausted
        if exhausted:  # the released code stops at an assertion there; ours backs up what is left
            continue
        assert_same_nodes(tree.root, root)
        forest = build_forest([tree], decode=context.decode)
        got = NodeValue().build()(forest).advantage
        expected = plain_advantages(taken)
        # A row is a trajectory, in the order of `graded`; its tokens follow the prompt's one.
        order = [found.index(leaf) for leaf in tree.graded]
        for row, number in enumerate(order):
            torch.testing.assert_close(
                got[row, 1 : 1 + len(expected[number])], torch.tensor(expected[number]), atol=1e-5, rtol=0
            )
            assert (got[row, 1 + len(expected[number]) :] == 0).all()
    assert ended < POLICIES / 4


def test_in_a_tree_without_a_correct_answer_every_inner_step_is_encouraged():
    # As in the released code: outcomes are all -1, so that an end has -1 + 1 = 0 and a step above it tanh(q) + 1 > 0.
    trees = [searched(policy)[0] for policy in range(POLICIES)]
    failed = [tree for tree in trees if tree.solved == 0]
    advantage = NodeValue().build()(build_forest(failed, decode=Policy(0).decode)).advantage
    assert len(failed) > 10
    assert (advantage >= 0).all()
    assert (advantage > 0).any()
    skipped = NodeValue(equal="skip").build()(build_forest(failed, decode=Policy(0).decode)).advantage
    assert (skipped == 0).all()
