import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from leaves import Source, grades, leaf, outcomes, task

from lyceum.reward.base import allow_code, combine, named_code, part_names
from lyceum.reward.exact import Exact
from lyceum.reward.function import Function
from lyceum.reward.function_registry import reward_settings
from lyceum.reward.function_worker import reward_reply as function_reply
from lyceum.reward.function_worker import verl_reply
from lyceum.reward.trl import Trl
from lyceum.reward.verl import Verl
from lyceum.tasks.dataset import Dataset
from lyceum.utils.errors import RecipeError

FILE = str(Path(__file__).with_name("user_rewards.py"))


@pytest.fixture(autouse=True)
def _code_is_allowed() -> Iterator[None]:
    with allow_code():
        yield


def function(name: str, **settings) -> Function:
    return Function(function=f"{FILE}:{name}", **settings)


def trl(*names: str, **settings) -> Trl:
    return Trl(function=tuple(f"{FILE}:{name}" for name in names), **settings)


@pytest.mark.parametrize(
    "part", [function("length"), trl("trl_length"), Verl(function=FILE)], ids=["function", "trl", "verl"]
)
def test_code_that_nobody_allowed_is_refused(part):
    with allow_code(False), pytest.raises(RecipeError, match="which is Python code to run; allowed: "):
        combine([part], Source(task()))


def test_code_is_found_wherever_settings_name_it():
    # A check of the reward's own parts alone would miss a dataset's verifier, and TRL's lists.
    part = trl("a", "b")
    dataset = Dataset(path="x.jsonl", verifier=function("length"))
    assert named_code({"reward": [Exact(), part], "tasks": dataset}) == [*part.function, f"{FILE}:length"]


def test_a_function_gets_what_its_parameters_name():
    assert outcomes(function("length"), task(), "four") == [4.0]
    one = task("7", level=3)
    near, abstains, wrong = grades(function("near"), one, "5", "abstain", "x")
    assert near.outcome == pytest.approx(0.8)
    assert near.correct is False
    assert near.parts == {"near": near.outcome, "near/level": 3.0}
    assert abstains.outcome is None
    assert "gave None" in (abstains.reason or "")
    assert (wrong.reason or "").startswith("near: ValueError")
    [right] = grades(function("right"), one, "7")  # a task as an object, and a bool as the verdict
    assert (right.outcome, right.correct) == (1.0, True)


def test_correctness_is_unknown_unless_the_function_or_the_recipe_says():
    assert grades(function("length"), task(), "four")[0].correct is None
    assert [grade.correct for grade in grades(function("length", correct_at=4), task(), "four", "one")] == [True, False]


@pytest.mark.parametrize("said", [True, False, 1, 0.0, np.bool_(True), np.float64(0), torch.tensor(True)])
def test_a_verdict_is_a_bool_or_0_or_1(said):
    assert function_reply({"reward": 0.5, "correct": said})["correct"] is bool(said)
    assert verl_reply({"score": 0.5, "acc": said})["correct"] is bool(said)


@pytest.mark.parametrize("said", ["no", "False", math.nan, 0.3, -1, []])
def test_what_is_no_verdict_is_not_taken_for_one(said):
    # All but the empty list were a correct answer.
    with pytest.raises(TypeError, match=r"'correct' is .*; allowed: true, false, 0, 1 or None"):
        function_reply({"reward": 0.5, "correct": said})
    assert verl_reply({"score": 0.5, "acc": said})["correct"] is None  # verl logs what else a function returns


def test_a_function_keeps_its_state_in_its_one_process_and_out_of_the_run():
    import sys

    assert outcomes(function("counts", timeout_seconds=29), task(), "a", "b", "c") == [1.0, 2.0, 3.0]
    assert [
        getattr(module, "calls", 0) for name, module in sys.modules.items() if "lyceum_user_user_rewards" in name
    ] == [0]


def test_the_first_call_that_takes_too_long_is_told_at_once_with_the_key(caplog):
    # Two calls of two functions, of which one also runs in this process's loop: a line for each function.
    for name in ("hangs", "later"):
        grades(function(name, timeout_seconds=0.2), task(), "sleep", "sleep")
    told = [record.getMessage() for record in caplog.records]
    assert [f"{FILE}:{name} took longer than 0.2 s" for name in ("hangs", "later")] == [
        line.partition(",")[0] for line in told
    ]
    assert all("reward.timeout_seconds=SECONDS" in line for line in told)


@pytest.mark.parametrize("completion", ["hang", "sleep"])
def test_a_function_that_hangs_is_ungraded_and_the_others_are_graded(completion: str):
    before, hung, after = grades(function("hangs", timeout_seconds=0.7), task(), "a", completion, "b")
    assert (before.outcome, hung.outcome, after.outcome) == (1.0, None, 1.0)
    assert "0.7 seconds" in (hung.reason or "")


@pytest.mark.parametrize("settings", [{}, {"processes": 0}], ids=["worker", "here"])
def test_every_kind_of_number_is_a_reward_or_the_reason_why_not(settings):
    given = grades(function("odd", **settings), task(), "decimal", "huge", "part")
    assert [grade.outcome for grade in given] == [1.5, 1e15, 1.0]
    given = grades(function("odd", **settings), task(), "big", "fraction", "inf", "complex", "bigpart")
    assert [grade.outcome for grade in given] == [None] * 5
    said = ("reward is too large a number", "reward is too large", "is inf", "a complex", "'extra' is too large")
    for grade, words in zip(given, said, strict=True):
        assert words in (grade.reason or "")


def test_an_async_function_is_cancelled_at_its_limit():
    right, slow = grades(function("later", timeout_seconds=0.3), task(), "42", "sleep")
    assert (right.outcome, slow.outcome) == (1.0, None)
    assert slow.reason == "later: no result within 0.3 seconds"


@pytest.mark.parametrize(
    ("part", "said"),
    [
        (function("leaves_the_program"), {"exit": "leaves_the_program: it called sys.exit(0)"}),
        (function("leaves_the_program", processes=0), {"exit": "leaves_the_program: it called sys.exit(0)"}),
        (
            function("ends_more_than_its_call"),
            {
                "exit": "ends_more_than_its_call: it called sys.exit(0)",
                "cancel": "ends_more_than_its_call: it was cancelled, and not by the run",
                "timeout": "ends_more_than_its_call: TimeoutError: the service did not answer",
            },
        ),
    ],
    ids=["worker", "here", "async"],
)
def test_a_function_that_would_end_the_run_ends_its_own_call(part, said):
    first, *others, last = grades(part, task(), "a", *said, "b")
    assert [grade.reason for grade in others] == list(said.values())
    assert (first.outcome, last.outcome) == (1.0, 1.0)


@pytest.mark.parametrize(
    ("part", "row"),
    [
        (function("fails"), "task t/1: {file}:fails(completion='\\x1bhello')"),
        (function("fails", processes=0), "task t/1: {file}:fails(completion='\\x1bhello')"),
        (function("fails_later"), "task t/1: {file}:fails_later(completion='\\x1bhello')"),
        (trl("trl_fails"), "task t/1: {file}:trl_fails(answer=['42'], prompts=['What?'], "),
        (Verl(function=f"{FILE}:verl_fails"), "task t/1: {file}:verl_fails(data_source='tests', solution_str="),
    ],
)
def test_a_function_that_raises_says_on_which_row_and_in_which_line(part, row):
    # Beside a part that grades: the reason and the row go through the sum.
    grade, *_ = grades([Exact(), part], task(), "\x1bhello")
    assert (grade.reason or "").endswith("KeyError: 'x'")
    told, head, *frames = (grade.details or "").splitlines()
    assert told.startswith(row.format(file=FILE))
    assert head == "Traceback (most recent call last):"
    assert frames[-1] == "KeyError: 'x'"
    assert all(str(FILE) in frame for frame in frames if frame.startswith("  File"))
    line = 1 + Path(FILE).read_text().splitlines().index('    return {}["x"]')
    assert f'  File "{Path(FILE).resolve()}", line {line}, in fails' in frames


def test_a_text_is_no_reward():
    assert "a str; allowed: a number" in (grades(function("text"), task(), "x")[0].reason or "")


@pytest.mark.parametrize(
    ("spec", "line"),
    [
        (f"{FILE}:lenght", "has no function 'lenght' (did you mean 'length'?)"),
        ("missing.py:f", "does not exist"),
        ("no_such_package.module:f", "cannot be imported: ModuleNotFoundError"),
        ("nothing", "allowed: path/to/file.py:name or package.module:name"),
        (f"{FILE}:needs", "asks for 'levle' (did you mean 'level'?); allowed: "),
    ],
)
def test_a_function_that_cannot_be_called_is_named_before_anything_runs(spec: str, line: str):
    with pytest.raises(RecipeError) as error:
        combine([Function(function=spec)], Source(task(level=1)))
    assert str(error.value).startswith("reward.function: ")
    assert line in str(error.value)


def test_a_function_of_a_package_in_the_runs_own_process():
    # processes 0: no limit, but live objects; len(obj) would need a positional parameter, so a keyword one is used.
    part = Function(function="textwrap:dedent", processes=0)
    with pytest.raises(RecipeError, match="asks for 'text'"):
        combine([part], Source(task()))
    [grade] = grades(part, task(text=" 1"), "x")
    assert "a str; allowed: a number" in (grade.reason or "")


def test_trl_functions_get_lists_of_columns_and_tokens():
    assert outcomes(trl("trl_length"), task(), leaf("abc", tokens=3), leaf("a", tokens=9)) == [3.0, 9.0]
    texts = [r"\boxed{4}", r"\boxed{5}", "4"]
    assert outcomes(trl("trl_boxed"), task(ground_truth="4"), *texts) == [1.0, 0.0, 0.0]
    assert outcomes(trl("trl_async"), task(), "x", "") == [1.0, 0.0]


def test_trl_functions_get_messages_where_the_dataset_has_messages():
    assert outcomes(trl("trl_chat", conversational=True), task(), "yes", "no") == [1.0, 0.0]


def test_trl_functions_that_abstain_are_left_out_of_the_sum():
    # 2 * 1.0 for mathematics, 3 * (-1.0) for code, and nobody grades a poem: ungraded, and not 0.
    part = trl("trl_math_only", "trl_code_only", function_weights=(2.0, 3.0))
    assert outcomes(part, task(task="math"), "x") == [2.0]
    assert outcomes(part, task(task="code"), "x") == [-3.0]
    [poem] = grades(part, task(task="poem"), "x")
    assert poem.outcome is None
    assert poem.reason == "trl: trl_math_only, trl_code_only gave None: none grades this"
    assert grades(part, task(task="math"), "x")[0].parts == {"trl": 2.0, "trl/trl_math_only": 1.0}


def test_a_part_is_named_after_its_function_and_a_second_one_of_a_name_is_numbered():
    def count(completion):
        return 1.0

    parts = [function("length"), trl("trl_length"), Verl(function=FILE), trl("a", "b"), function("length"), Exact()]
    names = ["length", "trl_length", "compute_score", "trl", "length#2", "exact", "count"]
    assert part_names([*parts, Function(**reward_settings(count))]) == names
    # A function alone is the part, and has none of its own beside it.
    assert grades(trl("trl_boxed"), task("4", ground_truth="4"), "x")[0].parts.keys() == {"trl_boxed"}


def test_trl_functions_log_and_see_the_policys_version():
    # leaf() gives every token version 7; 7 of 70 steps.
    first, second = leaf("ab"), leaf("cd")
    assert outcomes(trl("trl_logs", max_steps=70), task(), first, second) == [0.5, 0.5]
    assert first.stats == {"logged": {"first": "a"}, "logged_metrics": {"progress": [0.1]}}
    assert second.stats == {"logged": {"first": "c"}}


def test_async_trl_functions_get_messages_too():
    assert outcomes(trl("trl_async_chat", conversational=True), task(solution="4"), "4", "5") == [1.0, 0.0]


@pytest.mark.parametrize(
    ("part", "line"),
    [
        (trl("trl_length", "trl_math_only"), f"reward.function: '{FILE}:trl_math_only' asks for 'task'"),
        (Verl(function=f"{FILE}:verl_more"), f"reward.function: '{FILE}:verl_more' asks for 'penalty'; allowed: data_"),
        (
            Verl(function=FILE, arguments={"bonus": 1}),
            f"reward.arguments: got bonus, which '{FILE}' does not take",
        ),
    ],
)
def test_a_trl_or_verl_function_that_cannot_be_called_is_named_before_anything_runs(part, line: str):
    # Otherwise every completion of the run is ungraded.
    with pytest.raises(RecipeError) as error:
        combine([part], Source(task()))
    assert line in str(error.value)
    assert combine([Verl(function=f"{FILE}:verl_more", arguments={"penalty": 1})], Source(task()))


def test_trl_functions_must_grade_every_completion():
    assert "1 rewards for 2 completions" in (grades(trl("trl_short"), task(), "a", "b")[0].reason or "")


def test_verl_functions_get_their_four_arguments_and_acc_is_the_verdict():
    # A file alone means its compute_score.
    one = task("ignored", reward_model={"ground_truth": "4", "style": "rule"}, data_source="gsm8k")
    right, wrong = grades(Verl(function=FILE), one, "4", "5")
    assert (right.outcome, right.correct) == (1.0, True)
    assert (wrong.outcome, wrong.correct) == (0.0, False)
    assert wrong.parts == {"compute_score": 0.0, "compute_score/acc": 0.0}
    plain = Verl(function=f"{FILE}:verl_plain", arguments={"bonus": 0.5})
    assert outcomes(plain, task(data_source="gsm8k", extra_info={"index": 2}), "x") == [3.5]
    assert outcomes(plain, task(extra_info={"index": 2}), "x") == [2.5]


def test_a_functions_process_imports_nothing_heavy():
    heavy = "('numpy', 'pydantic', 'rich', 'torch', 'yaml', 'asyncio')"
    code = f"import sys, lyceum.reward.function_worker; print(*[name for name in {heavy} if name in sys.modules])"
    said = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.split() == []
