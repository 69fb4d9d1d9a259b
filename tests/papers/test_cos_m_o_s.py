import asyncio
from types import SimpleNamespace

import pytest
from leaves import leaf, task

from lyceum.core.tree import Node
from lyceum.core.types import Continuation, Origin
from lyceum.papers.cos_m_o_s.reward_curiosity import Curiosity, inverted_u

BY_TWO = {"by": "tokens", "tokens": 2}
MODEL = SimpleNamespace(decode=lambda tokens: "".join(map(chr, tokens)))


def drawn(*parts, above=None):
    """A trajectory of nodes below each other, each with these model log-probabilities; sampled at a temperature."""
    node = above or Node(None, [5, 5], Origin.PROMPT)
    for logprob in parts:
        n = len(logprob)
        node = node.add_drawn(Continuation([7] * n, [-9.0] * n, list(logprob), [0] * n, "stop"))
    return node


def grade(one, **settings):
    (found,) = asyncio.run(Curiosity(**settings).build(None)(task(), [one], MODEL))
    return found


def test_it_rises_to_the_target_and_falls_beyond_it():
    # 1 - (s - 2)^2 / 4: 0 at 0 and 4, 3/4 at 1 and 3, 1 at 2; never below 0
    assert [inverted_u(s, 2.0, 2.0) for s in (0, 1, 2, 3, 4, 9)] == [0, 0.75, 1, 0.75, 0, 0]


def test_each_step_earns_by_itself_and_not_their_mean():
    # Steps of two tokens with surprises 0 and 2 earn 0 each at target 1 and width 1, where their mean would earn 1.
    assert grade(drawn([0, 0, -2, -2]), step=BY_TWO).outcome == 0
    # Surprises 1, 1/2 and 3 (the last step has one token): (1 + 3/4 + 0) / 3
    found = grade(drawn([-1, -1, -0.25, -0.75, -3]), step=BY_TWO)
    assert found.outcome == pytest.approx(1.75 / 3)
    assert found.parts == {"surprise": pytest.approx(1.5), "steps": 3}
    assert found.correct is None  # nobody knows


def test_where_a_tree_was_cut_into_nodes_does_not_matter():
    whole, cut = drawn([-1, -0.5, -0.2]), drawn([-1], [-0.5, -0.2])
    assert grade(whole, step=BY_TWO).outcome == grade(cut, step=BY_TWO).outcome


def test_what_the_policy_did_not_write_surprises_nobody():
    given = leaf("given")
    assert grade(given).reason == "the policy wrote nothing that could be surprising"
    assert grade(drawn([-1.0], above=given)).outcome == 1
