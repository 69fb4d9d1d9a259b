"""A model plays the search engine: useful or noisy documents, by a probability that follows the stage."""

from random import Random

import pytest
from fake_writer import Writes
from pydantic import ValidationError

from lyceum.core.tree import Node
from lyceum.core.types import Continuation, Exchange, Task
from lyceum.papers.zerosearch.environment_simulated_search import SimulatedSearch
from lyceum.utils.aio import run_async

TASK = Task("t", ({"role": "user", "content": "Who is buried in Paris?"},), answer="Wilde")
ENGINE = SimulatedSearch(
    prompts={"useful": "{question} {answer} {query}?", "noisy": "noise: {query}"}, noise=(0.0, 0.2, 1.0)
)


class Engine(Writes):
    def __init__(self, text, progress):
        super().__init__(text)
        self.progress = progress

    def render(self, messages):
        return [1, *map(ord, messages[-1]["content"])]

    def seed(self, *key):
        return Random(str(key)).getrandbits(63)


def searched(progress, said="Well. <search>graves</search>", text=" Wilde's. "):
    model, environment = Engine(text, progress), ENGINE.build()
    root = Node.prompt([1])
    turns = [
        root.add_drawn(Continuation([*map(ord, said)], [-1.0] * len(said), [], [0] * len(said), "stop"))
        for _ in range(200)
    ]
    state = environment.reset(TASK)
    return model, [run_async(environment.step(state, turn, said, model)) for turn in turns]


@pytest.mark.parametrize(("progress", "least", "most"), [(0.0, 0, 0), (0.5, 20, 60), (1.0, 200, 200)])
def test_noisy_documents_come_with_the_schedules_probability(progress, least, most):
    model, seen = searched(progress)
    noisy = [each.counts["noisy"] for each in seen]
    assert least <= sum(noisy) <= most  # at 0.2 of 200: 40, give or take three standard deviations
    prompts = {0: "Who is buried in Paris? Wilde graves?", 1: "noise: graves"}
    assert [asked[0] for asked in model.asked] == [prompts[each] for each in noisy]


def test_documents_stand_in_the_notation_and_none_counts_as_failed():
    model, seen = searched(0.0)
    assert model.decode(seen[0].tokens) == "<information>Wilde's.</information>"
    assert (seen[0].calls, seen[0].failed, seen[0].end) == (1, 0, False)
    assert searched(0.0, text="  ")[1][0].failed == 1
    assert all(each.end for each in searched(0.0, said="Wilde.")[1])


def test_turns_that_stand_are_replayed_and_the_task_is_still_known():
    state = ENGINE.build().replay(TASK, [Exchange("<search>a</search>", "<information>b</information>")])
    assert (state.text, state.calls, state.answer) == ("<search>a</search><information>b</information>", 1, "Wilde")


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"prompts": {"useful": "Search."}}, "a text with {query}"),
        ({"prompts": {"noisy": "{query} {level}"}}, "perhaps {question} and {answer}"),
        ({"noise": [0.0, 1.5]}, "allowed: probabilities"),
    ],
)
def test_what_makes_no_sense_is_refused(settings, why):
    with pytest.raises(ValidationError, match=why):
        SimulatedSearch(**settings)
