"""The process that makes and grades: what is tested here runs in the test's own."""

import inspect
import json
import random
import re
import sys
from pathlib import Path

import pytest

from lyceum.tasks._reasoning_gym_worker import (
    EVALUATED,
    PARSED_BY_SYMPY,
    dataset_of,
    entry_of,
    entry_or_refusal,
    score,
    shield,
)


def place(dataset: str, index: int = 0, **config) -> tuple[str, int, int]:
    return json.dumps({"dataset": dataset, "config": config, "key": "test", "size": 10}), 0, index


@pytest.fixture(autouse=True)
def nothing_kept():
    entry_of.cache_clear()


def test_an_entry_does_not_follow_from_what_was_drawn_before():
    # list_functions draws some odd numbers from the generator of all Python
    def entries(order):
        entry_of.cache_clear()
        random.seed(len(order))
        return {index: entry_or_refusal(*place("list_functions", index)) for index in order}

    forwards = entries(range(10))
    assert entries((9, 9, *reversed(range(10)))) == forwards


def test_a_time_of_day_is_not_one_of_today():
    times = [entry_or_refusal(*place("time_intervals", index, task_types=["time"]))["metadata"] for index in range(3)]
    assert {entry["start_time"].split()[0] for entry in times} == {"2000-01-01"}


def test_a_verifier_that_fails_on_the_entry_itself_grades_nothing(monkeypatch):
    import reasoning_gym.arithmetic.prime_factorization as module

    def fail(self, answer):
        raise ValueError("broken")

    monkeypatch.setattr(module.PrimeFactorizationDataset, "_normalize_answer", fail)
    with pytest.raises(ValueError, match="broken"):
        score(*place("prime_factorization"), "2")


def test_a_groups_entry_is_made_once(monkeypatch):
    import reasoning_gym.arithmetic.chain_sum as module

    made = []
    make = module.ChainSumDataset.__getitem__
    monkeypatch.setattr(module.ChainSumDataset, "__getitem__", lambda self, i: (made.append(i), make(self, i))[1])
    for index in (3, 3, 4, 4, 3):
        score(*place("chain_sum", index), "1")
    assert made == [3, 4]


def test_every_dataset_that_evaluates_answers_is_known():
    # A new release of reasoning-gym may add one: then look at what its verifier does with a model's text.
    import reasoning_gym.factory

    evaluating = set()
    for name, (dataset, _) in reasoning_gym.factory.DATASETS.items():
        text = Path(inspect.getfile(dataset)).read_text()
        score = text.partition("def score_answer")[2].partition("\n    def ")[0]
        if re.search(r"(?<!_)\beval\(|\bexec\(|parse_expr\(|sympify\(|parse_latex\(|simplify\(answer", score):
            evaluating.add(name)
    # number_sorting evaluates the entry's own answer, propositional_logic has a parser of its own.
    assert evaluating - {"number_sorting", "propositional_logic"} == {*EVALUATED, *PARSED_BY_SYMPY}


@pytest.mark.parametrize("name", [*EVALUATED, *PARSED_BY_SYMPY])
def test_a_models_text_is_never_run(name: str, tmp_path: Path):
    witness = tmp_path / "run"
    attack = f"__import__('pathlib').Path({str(witness)!r}).touch()"
    for answer in (attack, f"[{attack}]", f"1+len(str({attack}))", f"({attack},)"):
        assert score(*place(name), answer) < 0.2
    assert not witness.exists()


@pytest.mark.parametrize("name", [*EVALUATED, *PARSED_BY_SYMPY])
def test_the_shield_lets_right_answers_through(name: str):
    answer = entry_of(*place(name))["answer"]
    assert dataset_of(*place(name)[:2])[1](answer)
    assert score(*place(name), answer) == 1.0


def test_plain_mathematics_is_read_in_linear_time():
    readable = shield("countdown", None)
    assert readable("(3 + 4.5)*x**2 - sin(x)/2")
    for text in ("x.real", "__import__", "'a'", "x[0]", "lambda: 1", "os", "1.__class__", "9" * 100_000 + "!"):
        assert not readable(text)
    assert "reasoning_gym.games.countdown" not in sys.modules or "eval" not in vars(
        sys.modules["reasoning_gym.games.countdown"]
    )
