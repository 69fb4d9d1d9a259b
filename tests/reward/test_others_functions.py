"""Functions with the signatures of TRL, verl and open-r1, unchanged, on rows as GSM8K has them.

Each is named as on the command line (``reward=FILE.py:NAME`` or a mapping), read by the recipe's schema, built on the
dataset, and run in its process.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any, cast

import pytest
from fake_task import NO_MODEL
from leaves import grades, leaf

from lyceum.cli.outcome import main
from lyceum.recipe.schema import load_recipe
from lyceum.reward.base import allow_code, combine
from lyceum.reward.function_registry import reward_settings
from lyceum.utils.errors import RecipeError

OTHERS = Path(__file__).with_name("others")
ROW = {
    "question": "Natalia sold 48 clips in April, and half as many in May. How many in all?",
    "answer": "She sold 48/2 = <<48/2=24>>24 clips in May.\n48+24 = <<48+24=72>>72.\n#### 72",
}
RIGHT = "<think>48+24</think>\\boxed{72} is it. #### 72"


@pytest.fixture(autouse=True)
def _beside_the_functions(tmp_path, monkeypatch):
    for path in OTHERS.rglob("*.py"):
        to = tmp_path / path.relative_to(OTHERS)
        to.parent.mkdir(exist_ok=True)
        to.write_text(path.read_text())
    (tmp_path / "gsm8k.jsonl").write_text(json.dumps(ROW) + "\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("trl_style", "verl_style", "open_style", "open_style.rewards", "open_style.tags"):
        monkeypatch.delitem(sys.modules, name, raising=False)  # of another test's folder


def graded(words, *texts, processes=0):
    """The grades of completions by a run's reward, its tasks and reward given as on the command line.

    Args:
        processes: 0 calls a function in this process, which saves the start of another.
    """
    keys = ["tasks=gsm8k.jsonl", "tasks.answer_after=####", "tasks.heldout_share=0", *words]
    recipe = load_recipe("grpo", keys)
    return graded_by(recipe, *texts, processes=processes)


def graded_on(file, *words):
    """The grades of completions on a file's first row."""
    recipe = load_recipe("grpo", [f"tasks={file}", "tasks.heldout_share=0", *words])
    return lambda *texts: graded_by(recipe, *texts)


def graded_by(recipe, *texts, processes=0):
    source = cast(Any, recipe.tasks.build("train", 0))
    parts = [part.model_copy(update={"processes": processes}) for part in recipe.reward]
    with allow_code():
        return grades(parts, source[0], *texts, source=source)


def test_the_rows_and_the_dataset_are_gsm8ks():
    recipe = load_recipe("grpo", ["tasks=gsm8k.jsonl", "tasks.heldout_share=0"])
    [task] = recipe.tasks.build("train", 0)
    assert (task.answer, task.columns) == (ROW["answer"], {"answer": ROW["answer"]})


OPEN = "open_style/rewards.py"
SHORT = "{function: trl_style.py:get_overlong, arguments: {max_completion_len: 7}}"
LONG = "trl_style.py:get_overlong"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["reward=trl_style.py:boxed"], [1, 0, 0]),
        (["reward=trl_style:boxed"], [1, 0, 0]),
        (["reward=trl_style.py:thinks"], [1, 0, 0]),
        (["reward=trl_style.py:texts"], [1, 1, 0]),
        (["reward=trl_style.py:column"], [1, 1, 0]),
        (["reward=trl_style.py:waits"], [1, 1, None]),
        (["reward=trl_style.py:logs"], [len(RIGHT), 7, 0]),
        (["reward=trl_style.py:get_overlong", "reward.arguments.max_completion_len=7"], [-1, 0, 0]),
        (["reward={function: trl_style:get_overlong, arguments: {max_completion_len: 6}}"], [-1, -1, 0]),
        (["reward=trl_style.py:reasoning"], [1, 0, 0]),
        (["reward={function: trl_style.py:reasoning, arguments: {reasoning_delimiters: ['##']}}"], [1, 1, 0]),
        (["reward=verl_style.py:compute_score"], [1, 1, 0]),
        (["reward=verl_style:of_gsm8k"], [1, 1, 0]),
        (["reward={function: verl_style.py:of_gsm8k, arguments: {method: flexible, score: 2}}"], [2, 2, 0]),
        (["reward=verl_style.py:judged"], [1, 1, 0]),
        (["reward={function: verl_style.py:by_source, arguments: {data_source: openai/gsm8k}}"], [1, 1, 1]),
        (["reward=verl_style.py:named_otherwise"], [1, 1, 0]),
        (["reward=verl_style.py:batched", "reward.arguments.bonus=0.5"], [1.5, 1.5, 0.5]),
        ([f"reward={OPEN}:tag_count"], [1, 0, 0]),
        (["reward=open_style.rewards:tag_count"], [1, 0, 0]),
        ([f"reward={OPEN}:get_code_format"], [0, 0, 0]),
        # cos(pi / 2) = 0 halves the value of a completion of 7 characters in 14, 1 keeps that of an empty one.
        ([f"reward={{function: '{OPEN}:get_cosine_scaled', arguments: {{max_len: 14}}}}"], [None, 0.5, -1]),
        ([f"reward=[trl_style.py:boxed, {SHORT}]"], [0, 0, 0]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value[0], str) else "",
)  # fmt: skip
def test_a_function_of_another_library_runs_unchanged(words, expected):
    found = [grade.outcome for grade in graded(words, RIGHT, "#### 72", "")]
    for outcome, right in zip(found, expected, strict=True):
        # None of the first row: a length that makes no round number.
        assert outcome == pytest.approx(right) or (right is None and "cosine" in words[0])


@pytest.mark.parametrize(
    ("reward", "expected"),
    [("trl_style:boxed", [1, 0]), (SHORT, [-1, 0]), (f"{OPEN}:tag_count", [1, 0]), ("verl_style.py:batched", [1, 1])],
)
def test_in_a_process_of_its_own_it_is_the_same_function(reward, expected):
    found = graded([f"reward={reward}"], RIGHT, "#### 72", processes=1)
    assert [grade.outcome for grade in found] == expected


def test_settings_of_verls_reward_kwargs_and_acc_and_logs_arrive():
    [grade] = graded(["reward=verl_style.py:judged"], "72")
    assert (grade.correct, grade.parts) == (True, {"judged": 1.0, "judged/acc": 1.0})
    said = leaf("<think>")
    graded(["reward=trl_style.py:boxed"], said)
    assert said.stats == {"logged": {"said": "<think>"}}


def test_empty_texts_alone_do_not_say_what_a_function_reads():
    # ""[0] raises an IndexError: a call with " " tells that the function reads messages; one that reads characters
    # stays ungraded there, and is never given messages, of which it would make 0.
    assert [grade.outcome for grade in graded(["reward=trl_style.py:boxed"], "", "")] == [0, 0]
    [grade] = graded(["reward=faults.py:first_character"], "")
    assert "string index out of range" in (grade.reason or "")
    assert [grade.outcome for grade in graded(["reward=faults.py:first_character"], "7", "8")] == [1, 0]


def test_tasks_that_are_graded_at_once_find_out_at_once_that_a_function_reads_messages():
    recipe = load_recipe("grpo", ["tasks=gsm8k.jsonl", "tasks.heldout_share=0", "reward=trl_style.py:waits"])
    source = cast(Any, recipe.tasks.build("train", 0))
    with allow_code():
        grader = combine(recipe.reward, source)

    async def both():
        return await asyncio.gather(*(grader(source[0], [leaf("72")], NO_MODEL) for _ in range(2)))

    assert [grade.outcome for [grade] in asyncio.run(both())] == [1.0, 1.0]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("short", "1 rewards for 2 completions; allowed: one for each"),
        ("scalar", "got 0.5, a float, for 2 completions; allowed: a list with one number or None for each"),
        ("mapping", "got {'score': 1.0}, a dict, for 2 completions; allowed: a list"),
        ("nothing", "got None, for 2 completions; allowed: a list with one number or None for each"),
        ("texts", "a reward is '1', a str; allowed: a number or None"),
        ("nones", "nones gave None: none grades this"),
        ("nans", "nans gave NaN: none grades this"),
        ("verl_nan", "the outcome is nan; allowed: a finite number, or None"),
        ("verl_pair", "the score is (1.0, 'right'), a tuple; allowed: a number or None"),
        ("verl_other_key", "a dict without 'score', with reward; allowed: one with it"),
        ("verl_short", "1 rewards for 2 completions"),
        ("own_list", "the reward is [1.0], a list; allowed: a number or None"),
        ("both_wrong", "list indices must be integers"),
    ],
)
def test_what_is_no_reward_is_named_with_what_is_expected(name, told):
    for grade in graded([f"reward=faults.py:{name}"], "a", "b"):
        assert grade.outcome is None
        assert told in (grade.reason or "")


@pytest.mark.parametrize(
    ("reward", "told"),
    [
        ("faults.py:get_number", "asks for 'scale'; allowed: answer, task, "),
        ("{function: faults.py:get_number, arguments: {scale: 2}}", "takes nothing of a completion (scale) and"),
        ("trl_style.py:get_overlong", "the reward function of settings, reward.arguments.max_completion_len=..."),
        (f"{{function: {LONG}, arguments: {{max_len: 2}}}}", "got max_len, which 'trl_style.py:get_overlong'"),
        (SHORT.replace("7", "0"), "ValueError: max_completion_len should"),
        ("{function: verl_style.py:judged, arguments: {bonus: 1}}", "got bonus, which 'verl_style.py:judged'"),
        ("{kind: trl, function: [trl_style.py:texts, a.py:b], arguments: {a: 1}}", "allowed: with one function"),
        ("alone.py:f", "relative import with no known parent package; allowed: package.module:name"),
        ("no_such_module:f", "cannot be imported: ModuleNotFoundError"),
    ],
)  # fmt: skip
def test_what_cannot_be_called_is_refused_before_a_model_loads(reward, told, tmp_path):
    (tmp_path / "alone.py").write_text("from .near import f\n")
    with pytest.raises(RecipeError) as error:
        graded([f"reward={reward}"], "a")
    assert told in str(error.value)


def test_from_python_an_object_that_a_factory_made_is_called_as_trl_does():
    from others.trl_style import get_overlong
    from others.verl_style import batched

    parts = reward_settings([get_overlong(7), batched])
    assert [part["kind"] for part in parts] == ["trl", "verl"]
    recipe = load_recipe("grpo", ["tasks=gsm8k.jsonl", "tasks.heldout_share=0", ("reward", parts[0])])
    found = graded_by(recipe, RIGHT, "#### 72")
    assert [grade.outcome for grade in found] == [-1.0, 0.0]


def test_arguments_are_plain_values_since_they_go_to_another_process():
    with pytest.raises(RecipeError, match=r"Object of type object is not JSON serializable; allowed: numbers, texts"):
        load_recipe("grpo", [("reward", {"function": "a.py:f", "arguments": {"x": object()}})])


def test_a_function_that_fails_on_every_row_shows_its_traceback_once(tmp_path, capsys):
    rows = [{**ROW, "completion": "72"}, {**ROW, "answer": "#### 73", "completion": "72"}]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert main(["grade", "rows.jsonl", "--reward", "faults.py:raises"]) == 3
    told = "".join(capsys.readouterr())
    assert told.count("Traceback (most recent call last):") == 1
    assert told.count("could not convert string to float: '#### 73'") == 1
    assert "faults.py:raises(answer=" in told


def test_rows_of_texts_have_no_tokens_and_are_not_graded_by_them(tmp_path, capsys):
    (tmp_path / "rows.jsonl").write_text(json.dumps({**ROW, "completion": "72"}) + "\n")
    assert main(["grade", "rows.jsonl", "--reward", SHORT]) == 3
    assert "reads completion_ids, but only texts are known here; try: lyceum grade with --model" in "".join(
        capsys.readouterr()
    )


@pytest.mark.parametrize("column", ["reward_model", "answer"])
def test_an_answer_that_is_an_object_reaches_the_function_as_it_is(tmp_path, column):
    truth = {"target": ["Jane Austen", "Austen"], "of": {"year": 1815}}
    row = {"prompt": "Who wrote Emma?", column: truth if column == "answer" else {"ground_truth": truth}}
    (tmp_path / "search.jsonl").write_text(json.dumps(row) + "\n")
    (tmp_path / "own.py").write_text(
        "def year(completion, answer):\n    return float(str(answer['of']['year']) in completion)\n"
    )
    search = graded_on("search.jsonl", "reward=verl_style.py:of_search")
    assert [grade.outcome for grade in search("Austen", "Goethe")] == [1.0, 0.0]
    if column == "answer":
        other, texts = "reward=own.py:year", ("1815", "1816")
    else:  # ``target`` is what verifiers compare with
        other, texts = "reward=exact", ("Austen", "Goethe")
    assert [grade.outcome for grade in graded_on("search.jsonl", other)(*texts)] == [1.0, 0.0]


@pytest.mark.parametrize("kind", ["exact", "math", "number", "choice", "text-overlap", "answer-gain"])
def test_a_verifier_refuses_answers_that_it_cannot_compare(tmp_path, kind):
    (tmp_path / "objects.jsonl").write_text(json.dumps({"prompt": "How far?", "answer": {"value": 3, "unit": "m"}}))
    recipe = load_recipe("grpo", ["tasks=objects.jsonl", f"reward={kind}"])
    with pytest.raises(RecipeError, match=rf"got '{kind}', which compares .* where CELL is value or unit\)"):
        recipe.reward[0].check_tasks(cast(Any, recipe.tasks.whole().build("heldout", 0)))
