import asyncio
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_task import NO_MODEL
from pydantic import ValidationError

from lyceum.core.component import explain
from lyceum.core.tree import Node
from lyceum.core.types import Origin
from lyceum.recipe.schema import load_recipe, tasks_from_text
from lyceum.tasks.base import checksum, held_out
from lyceum.tasks.dataset import Dataset
from lyceum.utils.errors import RecipeError

ROWS: list[dict[str, Any]] = [
    {
        "question": f"What is {number} + 1?",
        "answer": f"One more than {number}.\n#### {number + 1}",
        "difficulty": number % 3,
        "tips": ["Count on."],
        "key": f"q{number}",
    }
    for number in range(60)
]


@pytest.fixture
def path(tmp_path: Path) -> str:
    place = tmp_path / "sums.jsonl"
    place.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return str(place)


def gsm8k(path: str, **settings: Any) -> Dataset:
    return Dataset.model_validate(
        {"path": path, "columns": {"prompt": "question"}, "answer_after": "####", "verifier": "number", **settings}
    )


def message(settings: dict[str, Any]) -> str:
    """What a person reads when this dataset cannot be used."""
    try:
        Dataset.model_validate(settings).build("train", 0)
    except ValidationError as error:
        return "\n".join(explain(error, Dataset))
    except RecipeError as error:
        return str(error)
    raise AssertionError("nothing was refused")


def questions(source: Any) -> list[str]:
    return [source[index].messages[-1]["content"] for index in range(len(source))]


def test_rows_become_tasks_with_the_answer_after_its_mark(path: str):
    columns = {"prompt": "question", "level": "difficulty", "hints": "tips", "id": "key"}
    source = gsm8k(path, columns=columns, system="Be brief.").build("train", 0)
    task = source[0]
    assert task.id == "sums.jsonl/train/q0"
    assert task.messages == (
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "What is 0 + 1?"},
    )
    assert task.answer == "1"
    assert task.columns["level"] == 0
    assert task.columns["hints"] == [{"tier": "solution", "text": "Count on."}]
    # What a reward function written for TRL is called with: the dataset's own columns as they are, the prompt apart.
    assert task.columns["answer"] == "One more than 0.\n#### 1"
    assert "question" not in task.columns


def test_each_of_several_answers_stands_after_its_mark(tmp_path: Path):
    # As one text, the list's own brackets and quotes would be part of the last answer.
    file = tmp_path / "several.jsonl"
    rows = [{"question": f"Which? {i}", "answer": ["so #### 1", f"or #### {i}"]} for i in range(20)]
    file.write_text("\n".join(map(json.dumps, rows)))
    source = gsm8k(str(file)).build("train", 0)
    assert source[0].answer == ["1", source[0].messages[0]["content"].removeprefix("Which? ")]
    file.write_text("\n".join(json.dumps({**row, "answer": ["#### 1", "2"]}) for row in rows))
    settings = {"path": str(file), "columns": {"prompt": "question"}, "answer_after": "####"}
    assert "has nothing after '####' in column 'answer'" in message(settings)


def test_a_rubric_is_a_column_of_its_own(tmp_path: Path):
    rubric = [{"criterion": "names a unit", "points": 2, "contains": "kg"}]
    file = tmp_path / "rubrics.jsonl"
    rows = [{"prompt": f"How heavy is {i}?", "answer": "3 kg", "checks": rubric} for i in range(20)]
    file.write_text("\n".join(map(json.dumps, rows)))
    settings = {"path": str(file), "columns": {"rubric": "checks"}}
    assert Dataset.model_validate(settings).build("train", 0)[0].columns["rubric"] == rubric
    file.write_text(json.dumps({"prompt": "Q", "answer": "A", "checks": [{"criterion": "c"}]}))
    assert "tasks.columns.rubric: line 1" in message(settings)


def test_a_share_is_held_out_by_problem_and_for_good(path: str, tmp_path: Path):
    settings = gsm8k(path)
    train, heldout = questions(settings.build("train", 0)), questions(settings.build("heldout", 9))
    assert sorted(train + heldout) == sorted(row["question"] for row in ROWS)
    assert 1 <= len(heldout) <= 15
    # Other rows before it, another template, another seed: a problem stays on its side.
    doubled = tmp_path / "doubled.jsonl"
    doubled.write_text("".join(json.dumps(row) + "\n" for row in [*ROWS[::-1], *ROWS]))
    again = questions(gsm8k(str(doubled), system="Think.").build("heldout", 1))
    assert set(again) == set(heldout)
    assert len(again) == 2 * len(heldout)


def test_what_another_file_evaluates_is_not_trained(path: str, tmp_path: Path):
    other = tmp_path / "other.jsonl"
    other.write_text("".join(json.dumps(row) + "\n" for row in ROWS[:5]))
    settings = gsm8k(path, heldout_path=str(other))
    assert questions(settings.build("heldout", 0)) == [row["question"] for row in ROWS[:5]]
    assert questions(settings.build("train", 0)) == [row["question"] for row in ROWS[5:]]


def test_parquet_and_saved_folders_give_the_same_tasks_as_lines(path: str, tmp_path: Path):
    import datasets
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.Table.from_pylist(ROWS)
    pyarrow.parquet.write_table(table, tmp_path / "sums.parquet")
    saved = datasets.DatasetDict({"train": datasets.Dataset(table), "test": datasets.Dataset(table.slice(0, 7))})
    saved.save_to_disk(str(tmp_path / "saved"))
    lines = gsm8k(path).build("train", 0)
    for place in (tmp_path / "sums.parquet", tmp_path / "saved"):
        source = gsm8k(str(place)).build("train", 0)
        assert questions(source) == questions(lines)
        assert source[3].answer == lines[3].answer
        assert source[3].columns == lines[3].columns
    split = gsm8k(str(tmp_path / "saved"), heldout_split="test")
    assert questions(split.build("heldout", 0)) == [row["question"] for row in ROWS[:7]]
    text = message({"path": str(tmp_path / "saved"), "split": "tran"})
    assert text.startswith("tasks.split: got 'tran' (did you mean 'train'?)")


def test_a_template_takes_columns_and_nothing_beyond_them(path: str):
    source = gsm8k(path, columns={"prompt": "question"}, template="Q: {question} Put it in \\boxed{{}}.").build(
        "train", 0
    )
    assert questions(source)[0] == "Q: What is 0 + 1? Put it in \\boxed{}."
    for template in ("{question.__class__}", "{question[0]}", "{question!r}", "{}", "{question:>99}"):
        assert "allowed: {column}" in message({"path": path, "template": template})


def test_chat_messages_and_inner_cells_are_read(tmp_path: Path):
    # The layout of verl's datasets.
    place = tmp_path / "verl.jsonl"
    chat = [{"role": "system", "content": "S"}, {"role": "user", "content": "2+2?"}]
    rows = [{"prompt": chat, "reward_model": {"ground_truth": "4"}, "data_source": "sums"}] * 2
    place.write_text("".join(json.dumps(row) + "\n" for row in rows))
    settings = {"path": str(place), "columns": {"answer": "reward_model.ground_truth"}, "system": "T"}
    source = Dataset.model_validate({**settings, "heldout_path": str(place)}).build("heldout", 0)
    assert source.conversational
    assert source[0].messages == tuple(chat)  # its own system message stays
    assert source[0].answer == "4"
    assert source[0].columns["data_source"] == "sums"


def test_where_and_limit_choose_rows(path: str):
    assert len(gsm8k(path, where={"difficulty": [0, 1]}, limit=7).build("train", 0)) == 7
    source = gsm8k(path, where={"difficulty": 2}).build("train", 0)
    assert {source[index].columns["difficulty"] for index in range(len(source))} == {2}


def test_the_verifier_of_a_dataset_grades_its_answers(path: str):
    source = gsm8k(path).build("train", 0)
    prompt = Node(None, [1], Origin.PROMPT)
    leaves = [Node(prompt, [2], Origin.POLICY, finish="stop", text=text) for text in ("so 1", "so 2")]

    async def grade():
        return await source.grader()(source[0], leaves, NO_MODEL)

    assert [(grade.outcome, grade.correct) for grade in asyncio.run(grade())] == [(1.0, True), (0.0, False)]


def test_a_missing_file_names_its_neighbour(path: str):
    text = message({"path": path.replace("sums", "sumz")})
    assert text.startswith("tasks.path: got ")
    assert "did you mean 'sums.jsonl'?" in text


def test_a_missing_column_names_those_that_are_there(path: str):
    text = message({"path": path, "columns": {"prompt": "questions"}})
    assert text == (
        "tasks.columns.prompt: line 1 of 'sums.jsonl' has no column 'questions' (did you mean 'question'?); "
        "allowed: question, answer, difficulty, tips, key"
    )


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"columns": {"prompt": "difficulty"}}, "tasks.columns.prompt: line 1 of 'sums.jsonl' holds a number"),
        (
            {"columns": {"prompt": "question", "level": "tips"}},
            "tasks.columns.level: line 1 of 'sums.jsonl' holds a list",
        ),
        (
            {"columns": {"prompt": "question", "id": "difficulty"}},
            "line 1 of 'sums.jsonl' and line 4 of 'sums.jsonl' both hold '0'",
        ),
        ({"columns": {"prompt": "question"}, "answer_after": "@@"}, "has nothing after '@@' in column 'answer'"),
        ({"columns": {"prompt": "question"}, "where": {"key": "zz"}}, "tasks.where: no row of 'sums.jsonl' has"),
        ({"columns": {"prompt": "question"}, "heldout_share": 1e-4}, ""),
        ({"columns": {"promt": "question"}}, "columns.promt: unknown key (did you mean 'prompt'?)"),
        ({"verifier": "maths"}, "verifier.kind: got 'maths' (did you mean 'math'?)"),
        ({"verifier": "task"}, "verifier: got 'task', which asks the tasks for their verifier"),
    ],
)
def test_what_cannot_be_used_is_named(path: str, settings: dict[str, Any], line: str):
    if "heldout_share" in settings:
        with pytest.raises(RecipeError, match=r"tasks.heldout_share: 0.0001 of the 60 rows .* leaves none for heldout"):
            Dataset.model_validate({"path": path, **settings}).build("heldout", 0)
    else:
        assert line in message({"path": path, **settings})


@pytest.mark.parametrize(
    ("name", "content", "line"),
    [
        ("empty.jsonl", b"\n\n", "has no rows; allowed: a dataset with at least one"),
        ("cut.jsonl", b'{"prompt": "a", "answer": "b"}\n{"prompt', "line 2 of"),
        ("list.jsonl", b"[1, 2]\n", "holds a list; allowed: an object with named cells"),
        ("bytes.jsonl", b"\xff\xfe\x00", "not UTF-8"),
        ("none.parquet", b"PAR", "cannot be read as parquet"),
        ("table.csv", b"a,b", "cannot be read as CSV"),
        ("table.tsv", b"", "cannot be read as CSV"),
        ("table.xlsx", b"a", "a file named .xlsx; allowed: .jsonl, .json, .parquet, .csv"),
        ("null.jsonl", b'{"prompt": "a", "answer": null}\n', "holds nothing in column 'answer'"),
    ],
)
def test_a_file_that_cannot_be_read_says_where_and_why(tmp_path: Path, name: str, content: bytes, line: str):
    (tmp_path / name).write_bytes(content)
    assert line in message({"path": str(tmp_path / name)})


GOOD = {"prompt": "1+1=", "answer": "2", "tips": ["Count on."], "demo": "1+1=2", "checks": []}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b'{"prompt": "a", "prompt": "b"}', "not JSON: key 'prompt' appears twice"),
        (b'{"prompt": "a", "answer": NaN}', "not JSON: NaN is not a JSON number"),
        (b'{"prompt": "a", "answer": 1e999}', "not JSON: 1e999 is too large"),
        (b'{"prompt": "a", "answer": ' + b"1" * 301 + b"}", "not JSON: a number of 301 digits"),
        (b'{"prompt": ' + b"[" * 10_000, "not JSON: lists and objects more than 200 deep"),
        (b'{"x": ' + b"[" * 10_000 + b"]" * 10_000 + b"}", "not JSON: lists and objects more than 200 deep"),
        (b'{"prompt": "\\ud800"}', "not JSON: half of a surrogate pair"),
        (b'{"prompt": "a", "other": "\\uDC00"}', "not JSON: half of a surrogate pair"),
        (b'{"prompt": "\xff"}', "not JSON: not UTF-8"),
        (b"null", "holds nothing; allowed: an object"),
    ],
)
def test_a_line_that_is_no_row_is_named_by_its_number(tmp_path: Path, line: bytes, said: str):
    file = tmp_path / "rows.jsonl"
    file.write_bytes(json.dumps(GOOD).encode() + b"\n" + line + b"\n")
    text = message({"path": str(file)})
    assert text.startswith("tasks.path: line 2 of ")
    assert said in text


def chat(content: Any, role: Any = "user") -> list[Any]:
    return [{"role": "system", "content": "S"}, {"role": role, "content": content}]


@pytest.mark.parametrize(
    ("cells", "key", "said"),
    [
        ({"prompt": chat(None)}, "columns.prompt", "message 1, whose content is nothing,"),
        ({"prompt": chat(5)}, "columns.prompt", "message 1, whose content is a number,"),
        ({"prompt": chat([])}, "columns.prompt", "message 1, whose content is an empty list,"),
        ({"prompt": chat(["x"])}, "columns.prompt", "message 1, whose content is a list with a text,"),
        ({"prompt": chat([{"type": "text"}])}, "columns.prompt", "a list with a part whose text is nothing,"),
        ({"prompt": chat([{"type": "audio"}])}, "columns.prompt", "a list with a part of type 'audio',"),
        (
            {"prompt": chat([{"type": "image_url", "image_url": {"url": "http://x/a"}}])},
            "columns.prompt",
            "an address as",
        ),
        ({"prompt": chat([{"type": "image", "image": 7}])}, "columns.prompt", "a number as a picture"),
        ({"prompt": chat("x", role=None)}, "columns.prompt", "message 1, whose role is nothing,"),
        ({"prompt": chat("x", role=1)}, "columns.prompt", "message 1, whose role is a number,"),
        ({"prompt": [{"content": "x"}]}, "columns.prompt", "message 0, whose role is nothing,"),
        ({"prompt": [{"role": "user"}]}, "columns.prompt", "message 0, whose content is nothing,"),
        ({"prompt": ["x"]}, "columns.prompt", "a text as message 0"),
        ({"prompt": []}, "columns.prompt", "an empty list"),
        ({"prompt": ""}, "columns.prompt", "an empty text"),
        ({"answer": {"a": 1}}, "columns.answer", "an object"),
        ({"answer": [["a"]]}, "columns.answer", "a list"),
        ({"answer": None}, "columns.answer", "nothing"),
        ({"tips": [1]}, "columns.hints", "a number as hint 0"),
        ({"tips": ["a", None]}, "columns.hints", "nothing as hint 1"),
        ({"tips": [{"tier": 1, "text": "a"}]}, "columns.hints", "a number in hint 0"),
        ({"tips": [{"tier": "a", "text": None}]}, "columns.hints", "nothing in hint 0"),
        ({"tips": None}, "columns.hints", "nothing"),
        ({"demo": 5}, "columns.demonstration", "a number"),
        ({"checks": [{"criterion": 5, "points": 1}]}, "columns.rubric", "a list"),
    ],
)
def test_a_cell_of_the_wrong_kind_is_named_by_its_row(tmp_path: Path, cells: dict[str, Any], key: str, said: str):
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in (GOOD, GOOD | cells)))
    columns = {"hints": "tips", "demonstration": "demo", "rubric": "checks"}
    text = message({"path": str(file), "columns": columns})
    assert text.startswith(f"tasks.{key}: line 2 of 'rows.jsonl' holds ")
    assert said in text


def test_content_in_parts_is_read_and_what_a_table_fills_up_with_nulls_is_left_out(tmp_path: Path):
    import pyarrow
    import pyarrow.parquet

    parts = [{"type": "text", "text": "1+1="}, {"type": "text", "text": "?"}]
    messages = [{"role": "user", "content": parts}]
    table = [{"prompt": [{**message, "name": None} for message in messages], "answer": "2"}] * 2
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(table), tmp_path / "rows.parquet")
    (tmp_path / "rows.jsonl").write_text(json.dumps({"prompt": messages, "answer": "2"}) + "\n")
    for name in ("rows.parquet", "rows.jsonl"):
        place = str(tmp_path / name)
        source = Dataset.model_validate({"path": place, "heldout_path": place}).build("heldout", 0)
        assert source[0].messages == tuple(messages)


def test_an_answer_to_imitate_may_come_in_parts_or_from_a_column_of_any_name(tmp_path: Path):
    parts = [{"type": "text", "text": "1+1="}, {"type": "text", "text": "2"}]
    chat = [{"role": "user", "content": "1+1="}, {"role": "assistant", "content": parts}]
    for row, columns in (
        ({"messages": chat}, {}),
        ({"prompt": chat[:1], "completion": chat[1:]}, {}),
        ({"instruction": "1+1=", "output": "1+1=2"}, {"prompt": "instruction", "demonstration": "output"}),
    ):
        (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
        place = str(tmp_path / "rows.jsonl")
        source = Dataset.model_validate({"path": place, "heldout_path": place, "columns": columns}).build("heldout", 0)
        assert source[0].columns["demonstration"] == "1+1=2"
        assert source[0].answer is None


def test_tools_that_are_not_shown_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    chat = [{"role": "user", "content": "1+1="}, {"role": "assistant", "content": "2"}]
    (tmp_path / "rows.jsonl").write_text(json.dumps({"messages": chat, "tools": [{"type": "function"}]}) + "\n")
    place = str(tmp_path / "rows.jsonl")
    Dataset.model_validate({"path": place, "heldout_path": place}).build("heldout", 0)
    assert "rows.jsonl: the column 'tools' is not shown to the model" in caplog.text


def test_a_parquet_file_of_odd_types_is_refused_by_its_row(tmp_path: Path):
    import decimal
    import math

    import pyarrow
    import pyarrow.parquet

    def said(settings: dict[str, Any], **columns: Any) -> str:
        table = pyarrow.table({"prompt": ["a", "b"], "answer": ["1", "2"], **columns})
        pyarrow.parquet.write_table(table, tmp_path / "rows.parquet")
        return message({"path": str(tmp_path / "rows.parquet"), **settings})

    assert "row 1 of 'rows.parquet' holds nan, which is not a number," in said({}, answer=[1.0, math.nan])
    assert "row 0 of 'rows.parquet' holds Decimal" in said({}, answer=[decimal.Decimal("1.0")] * 2)
    assert "row 0 of 'rows.parquet' holds bytes" in said({}, prompt=[b"a", b"b"])
    year_0 = pyarrow.array([0, -(1 << 60)], pyarrow.timestamp("us"))
    assert "row 1 of 'rows.parquet' cannot be read: " in said({}, when=year_0)
    no_text = pyarrow.Array.from_buffers(
        pyarrow.string(), 2, [None, pyarrow.py_buffer(b"\0\0\0\0\1\0\0\0\2\0\0\0"), pyarrow.py_buffer(b"a\xff")]
    )
    assert "row 1 of 'rows.parquet' cannot be read: UnicodeDecodeError" in said({}, prompt=no_text)
    assert "row 0 of 'rows.parquet' holds nothing in column 'level'" in said(
        {"template": "{prompt} {level}"}, level=[None, 1]
    )


def test_a_dataset_without_answers_has_no_verifier(path: str):
    settings = gsm8k(path, columns={"prompt": "question", "answer": None}, answer_after=None)
    with pytest.raises(RecipeError, match="allowed: a column, or a reward that needs no answer"):
        settings.build("train", 0).grader()


def test_cells_of_a_csv_file_are_texts(tmp_path: Path):
    place = tmp_path / "rows.csv"
    place.write_text('prompt,answer\n"1,\n2?",007\nnone,\n')
    source = Dataset(path=str(place), heldout_path=str(place), limit=None).build("heldout", 0)
    assert questions(source) == ["1,\n2?", "none"]
    assert [source[index].answer for index in range(2)] == ["007", ""]
    place.write_text("prompt,answer\n1,2,3\n")
    assert "cannot be read as CSV" in message({"path": str(place)})


def test_a_pattern_is_all_files_that_it_matches_in_order_of_their_names(tmp_path: Path):
    for name, row in zip("ba", ROWS, strict=False):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(row) + "\n")
    every = str(tmp_path / "*.jsonl")
    source = gsm8k(every, heldout_path=every).build("heldout", 0)
    assert questions(source) == [ROWS[1]["question"], ROWS[0]["question"]]
    assert source[1].id.endswith("/1")
    assert "a pattern that no file matches" in message({"path": str(tmp_path / "*.json")})


def test_a_list_of_files_is_a_mixture(path: str):
    mixed = tasks_from_text([path, "chain"])
    assert mixed == {
        "kind": "mixture",
        "parts": [{"tasks": {"kind": "dataset", "path": path}}, {"tasks": {"kind": "chain"}}],
    }
    recipe = load_recipe("grpo", [("tasks", [path, "countdown"])])
    assert [part.tasks.kind for part in recipe.tasks.parts] == ["dataset", "countdown"]


@pytest.mark.parametrize(
    ("problems", "share", "held"), [(81, 0.1, 8), (81, 0.5, 41), (10, 0.3, 3), (5, 0.1, 1), (4, 0.1, 0)]
)
def test_the_share_that_is_held_out_is_exact(problems, share, held):
    # 81 x 0.1 is 8.1, 81 x 0.5 is 40.5 and 5 x 0.1 is 0.5, which are rounded up; 4 x 0.1 is 0.4, which is not.
    checksums = np.array([checksum(f"problem {n}") for n in range(problems) for _ in range(1 + n % 3)], np.uint32)
    out = held_out(checksums, share)
    assert len(np.unique(checksums[out])) == held
    assert not set(checksums[out]) & set(checksums[~out])  # rows of one problem are on one side
    more = held_out(checksums, min(1.0, 2 * share))
    assert (more | ~out).all()  # a larger share holds out the same, and more
