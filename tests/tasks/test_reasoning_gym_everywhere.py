"""The same tasks in every process: those that are started here have different seeds of Python's hashes.

A few datasets are sampled in a few seconds; all of them take a minute: ``pytest -m slow`` with this file.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lyceum.tasks.reasoning_gym import TAKE_ANYTHING, config_fields

NO_OWN_ANSWER = {
    "boxnet": "many plans move all boxes; the verifier carries out the one that is given",
    "graph_color": "many colourings are valid; the verifier looks at every edge",
    "propositional_logic": "many conclusions follow; the verifier tries every assignment of truth values",
    "rubiks_cube": "many moves solve the cube; the verifier turns it",
    "rush_hour": "many moves free the car; the verifier carries them out",
}
"""Datasets whose entries come without an answer (``Task.answer`` is None), and what their verifier does instead."""

TASKS = """
import asyncio, dataclasses, json, sys
from lyceum.tasks.reasoning_gym import TAKE_ANYTHING, ReasoningGym, config_fields
from lyceum.core.tree import Node
from lyceum.core.types import Origin

async def own_answer_is_right(source, task):
    answer = Node(Node(None, [1], Origin.PROMPT), [2], Origin.POLICY, finish="stop")
    answer.text = f"so <answer>{task.answer}</answer>"
    [grade] = await source.grader()(task, [answer], None)
    return grade.correct

step = int(sys.argv[1])  # -1: the last dataset and its last entry first, and each entry is made before
names = sys.argv[2:] or [name for name in config_fields() if name not in TAKE_ANYTHING]
found = {}
for name in names[::step]:
    source = ReasoningGym(dataset=name, size=20).build("train", 0)
    tasks = {index: source[index] for index in [0, 1, 2][::step]}
    found[name] = [
        [dataclasses.asdict(tasks[index]), asyncio.run(own_answer_is_right(source, tasks[index]))] for index in range(3)
    ]
print(json.dumps(found))
"""

WEIGHTS = """
import hashlib, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from resume_runs import _GRPO, _RUN
from lyceum.recipe.schema import parse
from lyceum.training.train import train

recipe = _RUN | {
    "tasks": {"kind": "reasoning-gym", "dataset": "polynomial_multiplication"}, "output": sys.argv[1], "name": "run"
}
recipe["stages"] = [_GRPO | {"steps": 1}]
train(parse(recipe))
[weights] = Path(sys.argv[1]).glob("run/model/*.safetensors")
print(hashlib.sha256(weights.read_bytes()).hexdigest())
"""


def in_two_processes(program: str, *arguments: tuple[str, ...]) -> list[str]:
    """The last line that the program prints, with the first arguments and with the second."""
    started = [
        subprocess.Popen(
            [sys.executable, "-c", program, *given],
            stdout=subprocess.PIPE,
            text=True,
            # One that is the same in the processes which this one starts, and one that is not.
            env={**os.environ, "PYTHONHASHSEED": seed},
        )
        for seed, given in zip(("1", "random"), arguments, strict=True)
    ]
    said = [process.communicate()[0] for process in started]
    assert [process.returncode for process in started] == [0, 0]
    return [text.splitlines()[-1] for text in said]


SAMPLED = (
    "isomorphic_strings",
    "list_functions",
    "polynomial_multiplication",
    "ransom_note",
    "word_ladder",
    "chain_sum",
)
"""All but the last depend on Python's hash seed, or their verifier does, where nothing is done about it."""


def test_some_datasets_tasks_are_the_same_in_every_process_and_their_answers_right():
    forwards, backwards = (json.loads(text) for text in in_two_processes(TASKS, ("1", *SAMPLED), ("-1", *SAMPLED)))
    assert set(forwards) == set(SAMPLED)
    assert forwards == backwards
    assert all(right for tasks in forwards.values() for _, right in tasks)


@pytest.fixture(scope="module")
def found() -> list[dict[str, list]]:
    return [json.loads(text) for text in in_two_processes(TASKS, ("1",), ("-1",))]


@pytest.mark.engines
def test_every_datasets_tasks_are_the_same_in_every_process_and_order(found):
    forwards, backwards = found
    assert len(forwards) > 100
    assert {name for name in forwards if forwards[name] != backwards[name]} == set()


@pytest.mark.engines
def test_a_datasets_own_answers_are_right_where_it_has_them(found):
    wrong = {name for tasks_of in found for name, tasks in tasks_of.items() if not all(right for _, right in tasks)}
    without = {name for name, tasks in found[0].items() if any(task["answer"] is None for task, _ in tasks)}
    assert wrong == without == set(NO_OWN_ANSWER)


def test_what_is_said_of_a_dataset_is_said_of_one_that_there_is():
    assert {*NO_OWN_ANSWER, *TAKE_ANYTHING} < set(config_fields())


@pytest.mark.engines
def test_the_same_command_trains_the_same_weights(tmp_path: Path):
    tests = str(Path(__file__).parents[1])
    first, second = in_two_processes(WEIGHTS, (str(tmp_path / "1"), tests), (str(tmp_path / "2"), tests))
    assert first == second
