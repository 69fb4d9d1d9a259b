import asyncio
from types import SimpleNamespace

import pytest
from leaves import leaf

from lyceum.core.types import Exchange
from lyceum.papers.dialtree.environment_keeper import KeeperDialogue
from lyceum.papers.dialtree.rollout_dialogue_tree import DialogueTree
from lyceum.papers.dialtree.tasks_keeper_turns import KeeperTurns
from lyceum.papers.dialtree.tasks_keepers import Keepers, replied, ways_of
from lyceum.tasks.chain import Chain
from lyceum.utils.errors import RecipeError

WAYS = [("a", "c"), ("b", "a")]
TREE = DialogueTree(environment=KeeperDialogue(), characters="abcd", longest=1)


@pytest.mark.parametrize(
    ("before", "said", "answer"),
    [(None, "a", "h"), (None, "c", "n"), ("a", "c", "y"), ("a", "b", "h"), ("b", "a", "y"), ("a", "d", "n")],
)
def test_a_keeper_hesitates_and_gives_way_by_its_rule(before, said, answer):
    assert replied(WAYS, before, said)[0] == answer


def test_a_dialogue_that_wins_earns_one_and_what_is_no_approach_ends_it():
    environment, task = KeeperDialogue().build(), Keepers(levels=[2]).build("train", 0)[0]
    first, second = ways_of(2)[0]

    def step(state, said):
        return asyncio.run(environment.step(state, leaf(said), said, None))

    begun = step(environment.reset(task), first)
    assert begun.messages[0]["content"] == "h"
    won = step(begun.state, second)
    assert (won.reward, won.end, won.counts["gave_way"]) == (1.0, True, 1)
    lost = step(begun.state, "x")
    assert (lost.reward, lost.end) == (0.0, True)
    assert environment.replay(task, [Exchange(first, "h")]) == begun.state


def test_what_is_malformed_or_said_already_is_pruned_and_counted():
    counts = dict.fromkeys(("turns", "malformed", "equal"), 0)
    turns = [leaf(text) for text in ("a", "x", "ab", "a", "b", "")]
    assert [turn.text for turn in TREE.pruned(turns, counts)] == ["a", "b"]
    assert counts == {"turns": 6, "malformed": 3, "equal": 1}


def test_where_every_turn_is_malformed_one_ends_the_dialogue():
    counts = dict.fromkeys(("turns", "malformed", "equal"), 0)
    assert [turn.text for turn in TREE.pruned([leaf("x"), leaf("y")], counts)] == ["x"]


def test_of_too_many_states_some_are_kept_in_their_order():
    talk = SimpleNamespace(context=SimpleNamespace(seed=lambda *key: hash(key) % 1000))
    states = [SimpleNamespace(node=SimpleNamespace(address=n)) for n in range(7)]
    counts = {"over_width": 0}
    kept = TREE.kept(states, talk, counts)
    assert len(kept) == 4
    assert [one.node.address for one in kept] == sorted(one.node.address for one in kept)
    assert counts == {"over_width": 3}


def test_turns_to_imitate_are_any_approach():
    source = KeeperTurns().build("train", 0)
    assert {source[i].columns["demonstration"] for i in range(60)} == set("abcd")
    assert {len(source[i].messages) % 2 for i in range(60)} == {1}


def test_tasks_without_a_keeper_are_refused():
    with pytest.raises(RecipeError, match="the tasks have no keeper to talk round; allowed: tasks 'keepers'"):
        KeeperDialogue().check_tasks(Chain().build("train", 0))
