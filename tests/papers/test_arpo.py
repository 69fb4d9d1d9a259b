"""Branching turns: where an environment's answer left the policy uncertain, more than one trajectory goes on."""

import math
from typing import Literal

import pytest
from scripted_context import END, ScriptedContext, assert_whole, roll

from lyceum.core.settings import EnvironmentSettings
from lyceum.core.types import Observation, Origin, Sampling
from lyceum.papers.arpo.rollout_branching_turns import BranchingTurns, whole_samples
from lyceum.rollout.turns import Turns, independent


class Dot(EnvironmentSettings):
    """Answers a turn that ends in ``;`` with a dot."""

    kind: Literal["test-dot"] = "test-dot"

    def build(self):
        return self

    def reset(self, task):
        return 0

    def replay(self, task, exchanges):
        return len(exchanges)

    async def step(self, state, turn, said, context) -> Observation[int]:
        called = said.endswith(";")
        return Observation(state + 1, tokens=(ord("."),) if called else (), end=not called, calls=int(called))


class Context(ScriptedContext):
    """A sequence that ends with ``;`` ended by a stop string."""

    def _draw(self, node, text, sampling, top, entropy):
        child = super()._draw(node, text, sampling, top, entropy)
        child.finish = "stop" if child.text.endswith(";") else child.finish
        return child


def written(nats):
    """Two turns and an end; the entropy of every token of turn i is nats[i]."""

    def write(text, nth, sampling):
        turn = text.count(";")
        tokens = f"{nth}ab;" if turn < len(nats) - 1 else f"{nth}{END}"
        return [(token, -1.0, -1.0, (), nats[turn]) for token in tokens]

    return write


def settings_of(**more) -> BranchingTurns:
    more = {"samples": 6, "whole": 2, "threshold": 1.0, "entropy_weight": 1.0, **more}
    return BranchingTurns(environment=Dot(), sampling=Sampling(max_completion_tokens=30), **more)


def rolled(settings, nats):
    context = Context(written(nats))
    leaves = roll(settings, context).trajectories
    assert_whole(context.tree)
    return leaves, context.tree.metadata["branching-turns"]


def test_it_branches_below_the_answer_after_which_the_entropy_rises():
    # u + (H_t - H_1) >= 1 always where the entropy rises by 1 nat, below the second answer, and never below the first.
    leaves, counts = rolled(settings_of(), [0.5, 0.5, 1.5])
    assert [counts[name] for name in ("whole", "answers", "branches", "by_entropy", "held_back")] == [2, 4, 2, 2, 0]
    assert len(leaves) == 6
    below = {}
    for leaf in leaves:
        below.setdefault(id(leaf.parent), []).append(leaf)
    assert sorted(map(len, below.values())) == [1, 1, 2, 2], "two whole ones branched, two are of their own"
    for siblings in below.values():
        answer = siblings[0].parent
        assert (answer.origin, answer.text, answer.parent.stats["turn"]) == (Origin.TOOL, ".", 2)
    assert {leaf.stats["turn"] for leaf in leaves} == {3}


def test_without_a_rise_none_branches_and_what_is_missing_is_sampled_whole():
    leaves, counts = rolled(settings_of(), [0.5, 0.5, 0.5])
    assert counts["branches"] == 0
    assert len({id(leaf.path()[1]) for leaf in leaves}) == 6
    # 1 - threshold + weight rise is the probability: with weight 0 about half of the answers, whatever the entropies.
    _, half = rolled(settings_of(samples=200, whole=100, threshold=0.5, entropy_weight=0), [0.5, 0.5, 9.0])
    assert half["by_entropy"] == 0
    assert 70 < half["branches"] <= 100


def test_one_round_after_another_that_branches_is_penalised():
    # Two answers after which the entropy is a nat higher, u + 1 >= 1: 2 branch at the first, and in the round after it
    # 2 at the second, of which the penalty of 1 leaves none. The 2 branches are a round later, before which none did.
    nats = [0.5, 1.5, 1.5]
    assert rolled(settings_of(samples=9), nats)[1]["branches"] == 2 + 2 + 2
    _, counts = rolled(settings_of(samples=9, penalty=1.0), nats)
    assert [counts["branches"], counts["held_back"]] == [2 + 0 + 2, 2]


def test_how_many_are_whole_follows_the_entropies():
    # 8 / (1 + e^0) + 1 = 5; sigma(2 ln 3) = 9 / 10, sigma(-2 ln 3) = 1 / 10: 7 + 1 and 0 + 1.
    assert whole_samples(8, 0.0, 2.0) == 5
    assert [whole_samples(8, sign * math.log(3), 2.0) for sign in (1, -1)] == [8, 1]
    assert [whole_samples(8, sign * 1e9, 2.0) for sign in (1, -1)] == [8, 1]
    # Below the answers 1.5 nats, 0.5 below the question: sigma(-2 ln 3).
    leaves, counts = rolled(settings_of(samples=9, whole=None, sensitivity=2 * math.log(3)), [0.5, 1.5, 1.5])
    assert counts["whole"] == 1
    assert len(leaves) == 9
    assert len({id(leaf) for leaf in leaves}) == 9


@pytest.mark.parametrize("samples", [1, 2, 3])
def test_there_are_as_many_trajectories_as_are_wanted(samples):
    assert len(rolled(settings_of(samples=samples, whole=2, branches=2), [0.5, 1.5, 1.5])[0]) == samples


def test_an_evaluation_samples_whole_trajectories():
    settings = settings_of()
    assert type(independent(settings, None)) is Turns
    assert independent(settings, None).environment == settings.environment
