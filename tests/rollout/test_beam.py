"""Beam search over steps on small trees without a model, with the engine, and in a recipe."""

import json
import zlib

import pytest
from fake_task import roll
from hypothesis import given
from hypothesis import strategies as st
from tiny_models import plain_model, policy_like
from tree_fakes import FakeTreeContext

from lyceum.core.settings import Composition
from lyceum.core.steps import Steps
from lyceum.core.types import Grade, Sampling, Task
from lyceum.engine.embedded import EmbeddedEngine
from lyceum.recipe.schema import load_recipe
from lyceum.rollout.beam import Beam
from lyceum.runtime.in_process import InProcess
from lyceum.training.train import train
from lyceum.utils.aio import run_async
from lyceum.utils.errors import RecipeError
from lyceum.value.likelihood import Likelihood, PathLikelihood

pytestmark = pytest.mark.usefixtures("small_scratch")

LIMIT = Sampling(max_completion_tokens=12)


@pytest.mark.parametrize(
    ("settings", "n", "sized"),
    [
        ({}, 16, (4, 4, 1)),
        ({}, 2, (1, 2, 1)),
        ({"beams": 1}, 16, (4, 4, 1)),
        ({"subtrees": 4}, 16, (4, 4, 4)),  # a beam each, however many
        ({"subtrees": 4}, 2, (1, 2, 1)),
        ({"beams": 8, "subtrees": 4}, 24, (6, 4, 2)),  # 4 do not divide 6 beams
    ],
)
def test_a_sized_beam_has_its_share_of_beams(settings, n, sized):
    beam = Beam(**settings).sized(n)
    assert (beam.beams, beam.width, beam.subtrees) == sized
    assert beam.trajectories == n


class Valuing(FakeTreeContext):
    """``worth``: completion's text -> value of the path."""

    def __init__(self, worth, **more):
        super().__init__(lambda text: text.startswith("b"), **more)
        self.worth, self.valued = worth, []

    async def value(self, paths):
        assert not self.graded, "the verifier has spoken before the search was over"
        self.valued.append([path.completion for path in paths])
        return [self.worth(path.completion) for path in paths]


def search(context, *, task=None, start=None, **settings):
    settings = {"beams": 1, "width": 2, "step": Steps(tokens=1), "sampling": LIMIT} | settings
    return roll(Beam(**settings).build(), context, task, start=start)


def texts(tree):
    return [leaf.completion for leaf in tree.trajectories]


def asked(context):
    return [(text, n) for text, n, _ in context.asked]


def test_one_beam_by_hand():
    # Two letters, then the end; worth: how many b. Of a and b the beam keeps b, of ba and bb bb, below which both
    # draws end. Keeping the last drawn would do the same; keeping the least would end at aa.
    context = Valuing(lambda text: text.count("b") / 2, length=2)
    tree = search(context)
    assert asked(context) == [("", 2), ("b", 2), ("bb", 2)]
    assert context.valued == [["a", "b"], ["ba", "bb"], ["bb", "bb"]]
    assert texts(tree) == ["bb", "bb"]
    assert [node.value for node in tree.trajectories[0].path()[1:]] == [0.5, 1.0, 1.0]
    assert context.graded == ["bb", "bb"]
    assert tree.metadata["beam"] == {"ended": "finished", "rounds": 3, "drawn": 6, "dropped": 2, "finished": 2}
    assert all(context.kept)
    assert context.held == 0


def test_beams_are_ranked_together_and_subtrees_each_for_itself():
    worth = {"a": 0.9, "b": 0.8, "c": 0.1, "d": 0.2}

    def second_letters(**settings):
        context = Valuing(lambda text: worth[text[0]], letters=(1, 2, 3, 4), length=2)
        search(context, beams=2, **settings)
        # Of the prompt's four steps the first two belong to the first subtree. One request draws all four.
        assert asked(context)[0] == ("", 4)
        return [text for text, _ in asked(context)[1:3]]

    assert second_letters() == ["a", "b"]
    assert second_letters(subtrees=2) == ["a", "d"]


def test_a_finished_path_leaves_the_beam_and_takes_no_place_in_it():
    # aa ends after two letters, everything else after six: it is worth most, and both beams stay open all the same.
    class EndsEarly(Valuing):
        def _draw(self, node, sampling):
            self.length = 1 if node.completion == "a" else 3
            return super()._draw(node, sampling)

    context = EndsEarly(lambda text: 1.0 if text == "a" else 0.5 + text.count("b") / 10)
    tree = search(context, beams=2, trajectories=6)
    assert texts(tree)[:2] == ["a", "a"]
    # Round 2 draws below b and a; a ends, of b's two steps both stay.
    assert [text for text, _ in asked(context)] == ["", "a", "b", "bb", "ba", "bbb", "bba"]
    assert [len(text) for text in texts(tree)[2:]] == [3] * 4


def test_equal_paths_are_one_beam_unless_asked_otherwise():
    def widths(**settings):
        context = Valuing(lambda text: 0.5, letters=(1,), length=2)
        search(context, beams=2, **settings)
        return asked(context)

    assert widths(trajectories=2) == [("", 4), ("a", 2), ("aa", 2)]
    assert widths(distinct=False) == [("", 4), ("a", 2), ("a", 2), ("aa", 2), ("aa", 2)]


def test_a_search_ends_once_it_has_its_trajectories_and_the_curriculum_says_how_many():
    context = Valuing(lambda text: 0.5, length=1)
    tree = search(context, beams=2, width=2, task=Task("t", (), samples=1))
    # Both beams draw their ends together: a few more than asked for, none is thrown away.
    assert len(texts(tree)) == 4
    assert tree.metadata["beam"]["rounds"] == 2


def test_what_the_budget_ends_stays_as_long_as_it_is():
    context = Valuing(lambda text: text.count("b"), length=10, budget=5)
    tree = search(context, beams=1, width=2)
    # 2 + 2 tokens, then one: a single step below bb instead of two. Nothing is left for a fourth round.
    assert asked(context) == [("", 2), ("b", 2), ("bb", 1)]
    assert context.sampled == 5
    assert texts(tree) == ["bba"]
    assert tree.trajectories[0].finish == "length"
    assert tree.metadata["beam"]["ended"] == "budget"
    assert tree.trajectories[0].grade.verdict is False


def test_a_subtree_for_which_the_budget_holds_no_step_keeps_its_path():
    # Two subtrees of one beam draw 2 + 2 tokens and keep a b each; the fifth token is the first one's. Then nothing is
    # left: the second one's b is as much a path that the budget ended as what became of the first one's.
    context = Valuing(lambda text: text.count("b"), length=10, budget=5)
    tree = search(context, beams=2, width=2, subtrees=2, distinct=False)
    assert asked(context) == [("", 4), ("b", 1)]
    assert sorted(texts(tree)) == ["b", "ba"]
    assert {leaf.finish for leaf in tree.trajectories} == {"length"}
    assert tree.metadata["beam"]["ended"] == "budget"


def test_a_budget_that_holds_no_step_gives_no_trajectory():
    tree = search(Valuing(lambda text: 0.5, budget=0))
    assert texts(tree) == []
    assert tree.metadata["beam"] == {"ended": "budget", "rounds": 0, "drawn": 0, "dropped": 0, "finished": 0}


def test_a_separator_that_never_comes_holds_nothing_up():
    context = Valuing(lambda text: 0.5, length=5)
    tree = search(context, step=Steps(by="marker", markers=("\n\n",), tokens=2))
    assert {len(leaf.completion) for leaf in tree.trajectories} == {5}
    assert {leaf.finish for leaf in tree.trajectories} == {"stop"}


@given(
    beams=st.integers(1, 4),
    width=st.integers(1, 3),
    length=st.integers(1, 4),
    depth=st.integers(1, 6),
    salt=st.integers(),
)
def test_no_round_goes_on_with_more_paths_than_beams(beams, width, length, depth, salt):
    context = Valuing(lambda text: zlib.crc32(f"{salt} {text}".encode()) % 7 / 7, letters=(1, 2, 3), length=length)
    tree = search(context, beams=beams, width=width, depth=depth)
    below = [text for text, _ in asked(context) if text]
    assert all(below.count(text) == 1 for text in below), "a path is gone on with once"
    by_length = [sum(len(text) == n for text in below) for n in range(1, 7)]
    assert max(by_length, default=0) <= beams
    assert context.sampled == tree.metadata["beam"]["drawn"]
    for leaf in tree.trajectories:
        assert len(leaf.path()) - 1 <= depth
        assert leaf.finish == ("stop" if len(leaf.completion) == length and leaf.tokens == [0] else "length")
    assert [leaf.completion for leaf in tree.graded] == context.graded


def test_impossible_beams_are_refused():
    with pytest.raises(ValueError, match="subtrees: got 2 with beams 3; allowed: a divisor of beams"):
        Beam(beams=3, subtrees=2)
    with pytest.raises(RecipeError, match=r"value: got none, but rollout.kind 'beam' reads it; allowed: .*like"):
        load_recipe("grpo", ["rollout=beam"])
    beam = Beam(sampling=Sampling(max_completion_tokens=100), step=Steps(tokens=10), depth=20)
    stage = Composition(value=Likelihood(), max_tokens_per_task=50)
    assert beam.conflicts(stage)[0].startswith(
        "max_tokens_per_task: got 50, but one path of rollout.kind 'beam' may be 100"
    )
    assert beam.conflicts(Composition(value=Likelihood(), max_tokens_per_task=100)) == []


def test_searches_share_the_engines_batches_and_the_value_models_calls():
    policy = policy_like(plain_model())
    policy.stop_ids = frozenset()
    calls = []

    class Counting(PathLikelihood):
        def __call__(self, paths):
            calls.append(len(paths))
            return super().__call__(paths)

    async def right(task, leaves, context):
        return [Grade(1.0, True) for _ in leaves]

    tasks = [Task(f"t{i}", ({"role": "user", "content": "1+1="},)) for i in range(3)]
    engine = EmbeddedEngine(policy)
    rollout = Beam(beams=2, width=2, step=Steps(tokens=2), sampling=Sampling(max_completion_tokens=6)).build()
    runtime = InProcess(policy, engine, right, seed=0, value=Counting(1.0))
    trees = run_async(runtime.run(tasks, rollout, key=0))
    # Three rounds of 4 steps of 2 tokens for each of 3 tasks: as many calls and steps as one task alone would take.
    assert calls == [12, 12, 12]
    assert engine.occupancy.steps == 6
    assert [len(tree.trajectories) for tree in trees] == [4, 4, 4]
    assert all(len(leaf.completion_tokens) == 6 for tree in trees for leaf in tree.trajectories)
    values = [node.value for tree in trees for node in tree.nodes() if node.parent is not None]
    assert all(0 < value < 1 for value in values)


def test_a_recipe_trains_on_its_trees(tmp_path):
    keys = ["model=scratch", "steps=1", "tasks_per_step=2", "evaluate.n=0", "value=likelihood", f"output={tmp_path}"]
    rollout = {"kind": "beam", "beams": 2, "width": 2, "step": {"tokens": 3}, "sampling": {"max_completion_tokens": 8}}
    recipe = load_recipe("grpo", [*keys, ("rollout", rollout)])
    path = train(recipe, interrupted=lambda: False)
    line = json.loads((path / "metrics.jsonl").read_text().splitlines()[-1])
    assert line["tokens_sampled"] > 0
