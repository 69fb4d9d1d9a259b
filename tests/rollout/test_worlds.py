"""Worlds: environments that begin, change in place and end, one for each trajectory."""

import asyncio
import random
from typing import ClassVar, Literal

import pytest
from agent_fixtures import ENDS, POLICY, leaves_of, trees_of

from lyceum.core.settings import EnvironmentSettings
from lyceum.core.types import Observation, Origin, Sampling
from lyceum.papers.arpo.rollout_branching_turns import BranchingTurns
from lyceum.recipe.schema import load_recipe
from lyceum.rollout.turns import Turns


class Counting(EnvironmentSettings):
    """Counts its turns in a list that it changes, and keeps account of the worlds that were begun and ended."""

    kind: Literal["test-counting"] = "test-counting"
    mode: Literal["plain", "async", "drifts", "raises", "fails to begin", "hangs", "greets"] = "plain"
    last: int = 100
    begun: ClassVar[list] = []
    ended: ClassVar[list] = []

    def build(self):
        return AsyncWorld(self) if self.mode in ("async", "hangs") else World(self)


class Alone(Counting):
    kind: Literal["test-alone"] = "test-alone"
    repeatable: ClassVar[bool] = False


class World:
    def __init__(self, settings):
        self.settings = settings

    def begin(self, task):
        if self.settings.mode == "fails to begin" and task.id == "t1":
            raise OSError("no browser")
        state = []
        Counting.begun.append(state)
        greeting = {"role": "user", "content": f"Hello to {task.id}."}
        return state, (greeting,) if self.settings.mode == "greets" else ()

    def step(self, state, said):
        if self.settings.mode == "raises" and len(state) == 1:
            raise RuntimeError("it broke")
        state.append(said)
        drift = random.random() if self.settings.mode == "drifts" else 0
        text = f"turn {len(state)} {drift} {len(said)}"
        return Observation(
            state, ({"role": "tool", "content": text},), reward=1.0, end=len(state) == self.settings.last
        )

    def end(self, state):
        Counting.ended.append(state)


class AsyncWorld(World):
    async def begin(self, task):
        await asyncio.sleep(0)
        return super().begin(task)

    async def step(self, state, said):
        await asyncio.sleep(100 if self.settings.mode == "hangs" else 0)
        return super().step(state, said)

    async def end(self, state):
        await asyncio.sleep(0)
        super().end(state)


@pytest.fixture(autouse=True)
def account():
    Counting.begun.clear()
    Counting.ended.clear()
    yield
    assert sorted(map(id, Counting.ended)) == sorted(map(id, Counting.begun)), "each is ended, once"


def played(mode="plain", kind=Counting, rollout=Turns, **more):
    sampling = Sampling(max_completion_tokens=40, temperature=0.8, stop_token_ids=ENDS)
    own = {name: more.pop(name) for name in ("last", "max_turns", "step_timeout_seconds") if name in more}
    settings = rollout(**{"samples": 3, "sampling": sampling, "environment": kind(mode=mode, **own), **more})
    trees = trees_of(rollout=settings, policy=POLICY)[1]
    return settings.metrics(trees), trees


@pytest.mark.parametrize("mode", ["plain", "async"])
def test_each_trajectory_has_a_world_of_its_own_from_its_first_turn_to_its_last(mode):
    _, trees = played(mode, max_turns=3)
    assert len(Counting.begun) == 6
    for leaf in leaves_of(trees):
        answers = [node.text for node in leaf.path() if node.origin is Origin.TOOL]
        assert all(f"turn {turn} " in text for turn, text in enumerate(answers, 1)), "no other one's turns count"
    assert any(len(state) > 1 for state in Counting.begun)


def test_a_world_says_when_it_is_over():
    counted, trees = played(last=2)
    assert counted["mean"] <= 2
    assert any(sum(node.reward for node in leaf.path()) == 2.0 for leaf in leaves_of(trees))


def test_what_a_world_begins_with_stands_in_the_prompt():
    _, trees = played("greets")
    for tree in trees:
        assert len(tree.roots) == 2, "the task's own, and the one that all of its trajectories share"
        assert {leaf.root for leaf in tree.trajectories} == {tree.roots[1]}
        assert f"Hello to {tree.task.id}." in tree.roots[1].text


def test_a_world_that_fails_leaves_its_trajectory_ungraded():
    counted, trees = played("raises")
    failed = [leaf for leaf in leaves_of(trees) if leaf.grade.outcome is None]
    assert 0 < len(failed) == counted["failed_steps"]
    assert {leaf.grade.reason for leaf in failed} == {"environment 'test-counting': RuntimeError: it broke"}


def test_a_world_that_does_not_begin_leaves_its_trajectories_ungraded():
    _, (good, bad) = played("fails to begin")
    assert all(leaf.grade.outcome is not None for leaf in good.trajectories)
    reasons = {leaf.grade.reason for leaf in bad.trajectories}
    assert reasons == {"environment 'test-counting': OSError: no browser"}


def test_a_world_that_takes_too_long_is_ended():
    _, trees = played("hangs", step_timeout_seconds=0.05)
    late = [leaf for leaf in leaves_of(trees) if leaf.grade.outcome is None]
    assert late
    assert all("no answer within 0.05 seconds" in leaf.grade.reason for leaf in late)


def branching(mode="plain", kind=Counting):
    return played(mode, kind, BranchingTurns, whole=1, branches=3, threshold=0.01, entropy_weight=0.0, max_turns=4)


def test_a_branch_goes_on_in_a_world_that_was_told_the_same():
    _, trees = branching()
    assert any(len(node.children) > 1 for tree in trees for node in tree.nodes() if node.origin is Origin.TOOL)
    for leaf in leaves_of(trees):
        assert leaf.grade.outcome is not None
        path = leaf.path()
        answers = [(path[i - 1].text, node.text) for i, node in enumerate(path) if node.origin is Origin.TOOL]
        assert all(f"turn {turn} 0 {len(said)}" in text for turn, (said, text) in enumerate(answers, 1))


def test_a_world_that_answers_otherwise_is_not_branched():
    _, trees = branching("drifts")
    failed = [leaf.grade.reason for leaf in leaves_of(trees) if leaf.grade.outcome is None]
    assert failed
    assert all("cannot be repeated" in reason for reason in failed)


def test_one_that_is_not_repeatable_refuses_rollouts_that_branch():
    settings = BranchingTurns(environment=Alone())
    stage = load_recipe("grpo", []).stages[0].composition()
    assert settings.check(stage) == [
        "environment: got 'test-alone', which is not repeatable, and turns branch here; allowed: rollout 'turns'"
    ]
    assert not BranchingTurns(environment=Counting()).check(stage)
    played(kind=Alone)


def test_the_number_of_turns_may_grow_over_the_stage():
    growing = Counting(max_turns=[2, 5])
    assert [growing.turns_at(progress) for progress in (0.0, 0.5, 1.0)] == [2, 3, 5]
    assert Counting(max_turns=7).turns_at(0.5) == 7
    counted, _ = played(max_turns=[1, 5])
    assert counted["mean"] == 1.0, "at the beginning"
