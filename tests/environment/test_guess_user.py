"""Someone who has a number in mind, by rule or imagined by the model, which may correct what it imagined."""

import json
import random
from itertools import combinations

import pytest
from fake_task import FakeTask

from lyceum.core.tree import Node
from lyceum.core.types import Continuation, Exchange, Origin, Task
from lyceum.environment.guess_user import COUNTED, GuessUser
from lyceum.recipe.schema import load_recipe
from lyceum.run.trees import read_trees
from lyceum.tasks.chain import Chain
from lyceum.tasks.guess import LARGER, Guess, GuessDemonstrations, said
from lyceum.training.train import check, train
from lyceum.utils.aio import run_async
from lyceum.utils.errors import RecipeError

TASK = Task("t", (), "4", {"low": 2, "high": 8})


class Imagines(FakeTask):
    """A model that writes these texts, one after another."""

    def __init__(self, *texts: str) -> None:
        self.texts, self.asked = list(texts), []

    def render(self, messages):
        return [ord(letter) for letter in messages[0]["content"]]

    def decode(self, tokens):
        return "".join(map(chr, tokens))

    async def ask(self, prefix, n, sampling, *, key):
        self.asked.append((self.decode(prefix), key[0]))
        text = self.texts.pop(0)
        return [Continuation([*map(ord, text)], [-1.0] * len(text), [], [0] * len(text), "stop")]


def talk(settings: GuessUser, model: Imagines, *guesses: str):
    environment = settings.build()
    state, seen = environment.reset(TASK), []
    for guess in guesses:
        turn = Node.prompt([1]).add([*map(ord, guess)], Origin.POLICY, guess)
        seen.append(run_async(environment.step(state, turn, guess, model)))
        state = seen[-1].state
    return [
        (o.messages[0]["content"] if o.messages else None, o.reward, o.end, o.calls, o.failed)
        + ((tuple(o.counts[name] for name in COUNTED),) if settings.imagined else ())
        for o in seen
    ]


def test_by_rule_the_number_is_the_tasks_and_reaching_it_ends_the_dialogue():
    model = Imagines()
    # The number is 4: smaller than 7, larger than 3.
    assert talk(GuessUser(), model, "7", "3\n", "4") == [
        ("<", 0, False, 0, 0),
        (">", 0, False, 0, 0),
        (None, 1, True, 0, 0),
    ]
    assert talk(GuessUser(), model, "44") == [(None, 0, True, 0, 0)]
    assert model.asked == []


def test_an_imagined_person_is_written_once_and_answers_by_themselves():
    model = Imagines("6", "<", "=")
    # The person has 6 in mind, not the task's 4. The model is asked for the person, then for what they say.
    assert talk(GuessUser(imagined=True, critique=False), model, "7", "6") == [
        ("<", 0, False, 2, 0, (1, 0, 0, 0)),
        (None, 1, True, 1, 0, (1, 0, 0, 0)),
    ]
    assert model.asked == [("2:8@", "guess-user/person"), ("6@7", "guess-user/answer"), ("6@6", "guess-user/answer")]


def test_an_imagined_answer_is_heard_whatever_is_true():
    # The person has 6 in mind and says > of 7, then < of 3, and = of 5; the truth would be <, > and >.
    assert talk(GuessUser(imagined=True, critique=False), Imagines("6", ">", "<", "="), "7", "3", "5") == [
        (">", 0, False, 2, 0, (1, 0, 1, 0)),
        ("<", 0, False, 1, 0, (1, 0, 1, 0)),
        (None, 1, True, 1, 0, (1, 0, 1, 0)),
    ]


def test_the_critique_is_the_models_own_and_may_keep_replace_or_spoil_an_answer():
    # The person has 6 in mind. Of 7: = is criticised into <, which is true. Of 3: a true > is kept. Of 5: a true > is
    # criticised into <, which is heard.
    model = Imagines("6", "=", "<", ">", ">", ">", "<")
    assert talk(GuessUser(imagined=True), model, "7", "3", "5") == [
        ("<", 0, False, 3, 0, (0, 1, 0, 0)),
        (">", 0, False, 2, 0, (1, 0, 0, 0)),
        ("<", 0, False, 2, 0, (0, 1, 1, 0)),
    ]
    assert [text for text, what in model.asked if what == "guess-user/critique"] == ["6@7=?", "6@3>?", "6@5>?"]


@pytest.mark.parametrize("answer", ["", "7", "<<", "x"])
def test_an_answer_that_says_nothing_ends_the_dialogue(answer):
    seen = talk(GuessUser(imagined=True, critique=False), Imagines("6", answer), "7")
    assert seen == [(None, 0, True, 2, 1, (1, 0, 1, 0))]


@pytest.mark.parametrize("person", ["9", "", "66", "x", "٣"])
def test_a_person_with_no_number_of_the_range_gets_the_tasks_and_is_counted(person):
    # Of the task's 4, the model says < of 7.
    seen = talk(GuessUser(imagined=True, critique=False), Imagines(person, "<"), "7")
    assert seen == [("<", 0, False, 2, 1, (1, 0, 0, 1))]


def test_turns_that_stand_are_part_of_the_state():
    environment = GuessUser().build()
    state = environment.replay(TASK, [Exchange("7", "<"), Exchange("3", ">")])
    assert (state.text, state.number) == ("7<3>", 4)


def test_tasks_without_a_range_are_refused():
    with pytest.raises(RecipeError, match="allowed: tasks 'guess'"):
        GuessUser().check_tasks(Chain().build("train", 0))
    with pytest.raises(RecipeError, match="allowed: tasks 'guess'"):  # before a model is loaded
        check(load_recipe("grpo", ["evaluate.environment=guess-user"]))


def test_the_recipe_trains_the_guesses_of_imagined_dialogues_alone(tmp_path):
    brief = ["stages.sft.steps=25", "stages.sft.tasks_per_step=32", "stages.offline.steps=1"]
    brief += ["stages.offline.data.tasks=4", "stages.offline.rollout.samples=4"]
    path = train(load_recipe("imagined-conversations", [*brief, "evaluate.n=0", "track=[]", f"output={tmp_path}"]))
    line = json.loads((path / "metrics.jsonl").read_text().splitlines()[-1])
    trees = [tree for file in path.rglob("data/*.parquet") for tree in read_trees(file).trees]
    answers = [node for tree in trees for node in tree.nodes() if node.origin is Origin.PROMPT and node.parent]
    assert answers
    assert {node.text.strip() for node in answers} <= {"<", ">"}  # "=" ends a dialogue
    assert all(not node.behaviour_logprob for node in answers)
    # A person for each dialogue, and two texts for each guess that is a number, of which the last has no node.
    assert line["rollout/turns/kept"] + line["rollout/turns/replaced"] > len(answers)
    assert line["rollout/turns/calls"] == 16 + 2 * (line["rollout/turns/kept"] + line["rollout/turns/replaced"])
    assert line["rollout/turns/untrue"]
    leaves = [leaf for tree in trees for leaf in tree.trajectories]
    assert {leaf.grade.outcome for leaf in leaves} == {0, 1}
    assert all(leaf.finish == "stop" for leaf in leaves if leaf.grade.outcome == 1)


def test_neither_fixed_guesses_nor_chance_nor_habit_come_near_what_is_possible():
    levels, turns = (7, 8, 9, 10), 4
    source = Guess(levels=levels).build("heldout", 0)
    tasks = [source[index] for index in range(400)]
    shown = GuessDemonstrations(levels=levels, careful=0.2).build("heldout", 0)
    thoughtless = GuessDemonstrations(levels=levels, careful=0).build("heldout", 0)

    def is_found(task, next_guess):
        rng, number, given = random.Random(f"{task.id}/guesses"), int(task.answer), []
        least, most = whole = task.columns["low"], task.columns["high"]
        while number not in given and len(given) < turns:
            given.append(next_guess(rng, whole, (least, most)))
            larger = said(number, given[-1]) == LARGER
            least, most = (max(least, given[-1] + 1), most) if larger else (least, min(most, given[-1] - 1))
        return number in given

    def found(next_guess):
        return sum(is_found(task, next_guess) for task in tasks) / len(tasks)

    fixed = max(sum(task.answer in script for task in tasks) for script in combinations("0123456789", turns))
    assert found(lambda rng, whole, possible: sum(possible) // 2) == 1
    assert max(fixed / len(tasks), found(thoughtless.next_guess), found(shown.next_guess)) < 0.65


def test_states_are_equal_where_dialogues_are():
    environment = GuessUser().build()

    def key_after(*guesses):
        state = environment.reset(TASK)
        for guess in guesses:
            turn = Node.prompt([1]).add([2], Origin.POLICY, guess)
            seen = run_async(environment.step(state, turn, guess, Imagines()))
            state = seen.state
        return seen.key

    assert key_after("7", "3") == key_after("7", "3 ") == "2:8?7<3>"
    assert key_after("3", "7") != key_after("7", "3")
