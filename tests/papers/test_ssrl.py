"""SSRL: the policy writes what it searches for; it is context of what follows, and a real search can take its place."""

import json

import pytest
from fake_writer import Writes

from lyceum.core.tree import Node
from lyceum.core.types import Continuation, Origin, Task
from lyceum.environment._notation import Notation
from lyceum.papers.ssrl.environment_self_search import SelfSearch
from lyceum.recipe.schema import load_recipe
from lyceum.run.trees import read_trees
from lyceum.training.train import train
from lyceum.utils.aio import run_async

CHAIN = SelfSearch(notation=Notation(), until=("+", "-", "#"))


def searched(settings: SelfSearch, said: str, model: Writes):
    environment = settings.build()
    turn = Node.prompt([1]).add_drawn(Continuation([*map(ord, said)], [-1.0] * len(said), [], [0] * len(said), "stop"))
    seen = run_async(environment.step(environment.reset(Task("t", ())), turn, said, model))
    return seen, model.decode(seen.tokens)


@pytest.mark.parametrize(
    ("model", "shown", "failed"),
    [
        (Writes("Paris.</information>"), "<information>Paris.</information>", 0),
        (Writes("Par", "length"), "<information>Par</information>", 0),
        (Writes("Paris.", end=True), "<information>Paris.</information>", 0),
        (Writes("", end=True), "<information></information>", 1),
    ],
)
def test_information_is_asked_for_where_it_stands_and_is_always_closed(model, shown, failed):
    seen, text = searched(SelfSearch(), "I wonder. <search>capital of France</search>", model)
    assert (text, seen.calls, seen.failed, seen.end) == (shown, 1, failed, False)
    ((before, n, sampling, _),) = model.asked
    assert (before, n) == ("I wonder. <search>capital of France</search><information>", 1)
    assert sampling.stop == ("</information>",)


def test_without_a_closing_text_what_comes_next_is_left_to_the_policy():
    # Drawn is 45-, where the next operation begins: 45 is the information.
    seen, text = searched(CHAIN, "37+8=", Writes("45-"))
    assert (text, seen.key, seen.state.text) == ("45", "1:37+8:45", "37+8=45")
    assert searched(CHAIN, "37+8=", Writes("45", end=True))[1] == "45"
    assert searched(CHAIN, "37+8=", Writes("4512", "length"))[1] == "4512"


def test_a_turn_without_a_query_ends_the_trajectory_and_asks_nothing():
    model = Writes("45-")
    assert searched(CHAIN, "#45", model)[0].end
    assert searched(SelfSearch(), "</search><answer>45</answer>", model)[0].end
    assert model.asked == []


def test_siblings_ask_with_different_draws():
    root, model = Node.prompt([1]), Writes("45-")
    environment = CHAIN.build()
    drawn = [Continuation([*map(ord, "37+8=")], [-1.0] * 5, [], [0] * 5, "stop") for _ in range(2)]
    for turn in map(root.add_drawn, drawn):
        run_async(environment.step(environment.reset(Task("t", ())), turn, "37+8=", model))
    assert model.asked[0][3] != model.asked[1][3]


TINY = ["steps=1", "tasks_per_step=3", "rollout.samples=4", "trees_every=1", "tasks.levels=[4]"]
EVALUATED = ["evaluate.n=6", "evaluate.samples=2", "evaluate.k=[1]", "evaluate.greedy=false"]


def run(tmp_path, *keys: str, name: str = "run"):
    path = train(load_recipe("ssrl", [*TINY, f"output={tmp_path}", f"name={name}", *keys]))
    line = json.loads((path / "metrics.jsonl").read_text().splitlines()[0])
    (file,) = (path / "trees").iterdir()
    return line, read_trees(file).trees, json.loads((path / "summary.json").read_text())


def test_the_recipe_as_shipped_searches_itself_and_leaves_what_it_found_untrained(tmp_path):
    line, trees, summary = run(tmp_path, *EVALUATED)
    leaves = [leaf for tree in trees for leaf in tree.trajectories]
    found = [node for tree in trees for node in tree.nodes() if node.origin is Origin.TOOL]
    assert line["rollout/turns/calls"] >= len(leaves) * 3
    # What was retrieved is what the base model knows: mostly correct results, in no completion that is graded.
    assert sum(node.text.isdigit() for node in found) > 0.9 * len(found)
    assert {"=-", "=+", "=#"} >= {text for leaf in leaves for text in _after_equals(leaf.completion)} - {"=!"}
    assert 0 < line["reward/part/format"] <= 1
    assert line["reward/mean"] == pytest.approx(0.9 * line["reward/part/task"] + 0.1 * line["reward/part/format"])
    # Trained are the policy's tokens alone: the same trajectories have more of them where they write the results.
    assert all(not node.behaviour_logprob for node in found)
    _, plain, _ = run(tmp_path, "rollout={kind: flat, samples: 4}", "evaluate.n=0", name="plain")
    assert [n.tokens for tree in plain for n in tree.trajectories] != [n.tokens for n in leaves]
    # A real search in the same place: every result is right, and so are all that go on by them.
    _, _, real = run(tmp_path, *EVALUATED, "evaluate.environment={kind: calculator, modulus: 100}", name="real")
    assert real["before"]["overall"]["mean"] >= summary["before"]["overall"]["mean"]
    examples = json.loads((tmp_path / "real" / "examples.json").read_text())
    for example in examples:
        assert "error" not in example["before"]["completion"]


def _after_equals(text: str) -> set[str]:
    return {text[i : i + 2] for i, letter in enumerate(text[:-1]) if letter == "="}
