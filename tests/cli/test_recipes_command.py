"""``lyceum recipes`` and ``lyceum components`` as a person looks for something."""

import json

import pytest

from lyceum.analysis.catalogue import FIRST, GROUPS, Listed, differences, matching
from lyceum.analysis.run_plan import few_note
from lyceum.cli.outcome import main
from lyceum.recipe.schema import load_recipe


def listed(name, summary="", group="objective", components=()):
    return Listed(name, "Title", "arXiv:2503.14476", summary, group, components)


def test_the_list_opens_with_those_to_begin_with_and_has_each_recipe_in_one_group(capsys):
    assert main(["recipes", "--json"]) == 0
    every = json.loads(capsys.readouterr().out)
    assert {each["group"] for each in every.values()} <= set(GROUPS)
    assert set(FIRST) <= set(every)
    assert main(["recipes"]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[1].split()[0] == "grpo"
    counted = [
        int(line.rpartition(", ")[2].rstrip(")")) for line in out.splitlines() if line.endswith(")") and "(" in line
    ]
    assert sum(counted) == len(every)
    assert out.count("\n") < 100


def test_a_search_takes_all_words_in_any_place_and_begins_with_what_is_called_so():
    found = [listed("tree-dapo", "Trees of dapo"), listed("dapo"), listed("other", components=("rollout beam",))]
    assert [each.name for each in matching(["dapo"], found, group=None, slot=None)] == ["dapo", "tree-dapo"]
    assert [each.name for each in matching(["trees", "DAPO"], found, group=None, slot=None)] == ["tree-dapo"]
    assert [each.name for each in matching(["beam"], found, group=None, slot=None)] == ["other"]
    assert [each.name for each in matching([], found, group=None, slot="rollout")] == ["other"]
    assert len(matching(["arXiv:2503.14476"], found, group="objective", slot=None)) == 3
    assert matching([], found, group="credit", slot=None) == []


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["2503.14476"], {"dapo"}),
        (["--slot", "guidance", "scaffold"], {"scaf-grpo"}),
        (["proximal", "policy"], {"ppo"}),
    ],
)
def test_recipes_are_found_by_word_family_slot_and_paper(words, names, capsys):
    assert main(["recipes", *words, "--json"]) == 0
    assert names <= set(json.loads(capsys.readouterr().out))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["dappo"], "recipes: got 'dappo' (did you mean 'dapo'?)"),
        (["--family", "credits"], "--family: got 'credits' (did you mean 'credit'?)"),
        (["--slot", "rolout"], "--slot: got 'rolout' (did you mean 'rollout'?)"),
        (["diff", "a", "b", "c"], "diff of a, b, c; allowed: diff NAME [OTHER]"),
        (["diff", "dappo"], "recipe: got 'dappo' (did you mean"),
    ],
)
def test_what_is_not_there_is_answered(words, told, capsys):
    assert main(["recipes", *words]) == 2
    assert told in capsys.readouterr().err


def test_what_a_recipe_changes_of_another():
    found = differences(load_recipe("gspo"), load_recipe("grpo"))
    # gspo.yaml says form, both clips and four updates; the kind brings its own keys, and ppo-clip's are gone.
    assert found["objective.kind"] == ("ppo-clip", "gspo")
    assert found["objective.clip_low"] == (0.2, 3e-4)
    assert found["learner.updates_per_step"] == (1, 4)
    assert not any(key.startswith(("title", "paper", "learner.lr")) for key in found)
    assert differences(load_recipe("grpo"), load_recipe("grpo")) == {}


def test_the_difference_is_printed_with_keys_of_ones_own(capsys):
    assert main(["recipes", "diff", "grpo", "steps=7"]) == 0
    key, before, now = capsys.readouterr().out.splitlines()[1].split()
    assert (key, before, now) == ("steps", "60", "7")
    assert main(["recipes", "diff", "dapo", "grpo", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["objective.clip_high"] == {"grpo": 0.2, "dapo": 0.28}


def test_narrow_terminals_are_readable(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    for words in (["recipes"], ["recipes", "tree"], ["components", "credit"]):
        assert main(words) == 0
        assert max(map(len, capsys.readouterr().out.splitlines()[:-2])) <= 60


def test_of_one_recipe_a_comparison_says_first_that_it_has_nothing_beside_it(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("lyceum.api.run_plan", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
    assert main(["compare", "grpo"]) == 130
    assert "note: grpo alone, with nothing to compare it with" in capsys.readouterr().out
    assert main(["compare", "grpo", "rloo"]) == 130
    assert "alone" not in capsys.readouterr().out


def test_few_held_out_tasks_are_told_with_what_their_accuracy_is_worth():
    # 1.96 * sqrt(0.25 / 2) = 0.69
    assert few_note(2, 200).startswith("an accuracy over 2 held-out tasks is known to 69 points at best")
    assert few_note(30, 200) == few_note(0, 200) == ""
    assert few_note(5, 5) == ""  # as many as were asked for


def test_components_are_found_by_words(capsys):
    assert main(["components", "--find", "leave one out", "--json"]) == 0
    assert "leave-one-out" in json.loads(capsys.readouterr().out)["credit"]
    assert main(["components", "credit", "--find", "nosuchword"]) == 2
    assert "--find: got 'nosuchword'" in capsys.readouterr().err
