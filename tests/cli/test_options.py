"""Options are read from the functions that their commands call."""

from __future__ import annotations

import ast
import inspect

import pytest

import lyceum.api
from lyceum.analysis.hints.write import write_hints
from lyceum.cli.options import arguments

OF_API = ("train", "evaluate", "grade", "search", "compare", "replay", "boundary", "sparsity", "doctor", "push")
FUNCTIONS = (*(f"lyceum.api:{name}" for name in OF_API), "lyceum.analysis.hints.write:write_hints")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_is_read_is_the_functions_signature(name):
    function = write_hints if name.endswith("write_hints") else getattr(lyceum.api, name.partition(":")[2])
    own = {
        key: (ast.unparse(ast.parse(each.annotation)), None if callable(each.default) else each.default, each.default)
        for key, each in inspect.signature(function).parameters.items()
        if each.kind is not each.VAR_KEYWORD
    }
    expected = {key: (of, value, default is inspect.Parameter.empty) for key, (of, value, default) in own.items()}
    assert {key: each[:3] for key, each in arguments(name).items()} == expected


def test_an_argument_is_described_as_a_sentence_without_marks_and_without_what_only_python_has():
    assert arguments("lyceum.api:evaluate")["reward"].about == "Reward that grades: a kind; by default the tasks' own."
    assert arguments("lyceum.api:boundary")["tasks"].about.startswith("As for lyceum eval; by default those of the")


def test_an_argument_as_for_another_function_is_described_by_that_one():
    assert arguments("lyceum.api:search")["n"].about == "Maximum number of tasks."
