"""Rows as other libraries have them: what is the prompt, the answer, and the completion to imitate."""

import json
from pathlib import Path
from typing import Any

import pytest

from lyceum.tasks.dataset import Dataset
from lyceum.utils.errors import RecipeError

USER = {"role": "user", "content": "2+3="}
ASSISTANT = {"role": "assistant", "content": "2+3=5#5"}
SYSTEM = {"role": "system", "content": "Add."}


def source(folder: Path, *rows: Any, **settings: Any) -> Any:
    file = folder / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return Dataset.model_validate({"path": str(file), "heldout_path": str(file), **settings}).build("heldout", 0)


@pytest.mark.parametrize(
    ("row", "prompt", "answer", "imitated"),
    [
        ({"prompt": "2+3=", "completion": "2+3=5#5"}, [USER], None, "2+3=5#5"),
        ({"prompt": [SYSTEM, USER], "completion": [ASSISTANT]}, [SYSTEM, USER], None, "2+3=5#5"),
        ({"messages": [SYSTEM, USER, ASSISTANT]}, [SYSTEM, USER], None, "2+3=5#5"),
        ({"messages": [USER, ASSISTANT, USER, ASSISTANT]}, [USER, ASSISTANT, USER], None, "2+3=5#5"),
        ({"question": "2+3=", "answer": "2+3=5#5"}, [USER], "2+3=5#5", "2+3=5#5"),
        ({"problem": "2+3=", "answer": 5}, [USER], 5, "5"),
        ({"prompt": "2+3=", "completion": "2+3=5#5", "answer": "5"}, [USER], "5", "2+3=5#5"),
        ({"prompt": "2+3=", "demonstration": "2+3=5#5", "answer": "5"}, [USER], "5", "2+3=5#5"),
        (
            {
                "data_source": "sums",
                "prompt": [USER],
                "ability": "math",
                "reward_model": {"style": "rule", "ground_truth": "5"},
                "extra_info": {"index": 0, "split": "train"},
            },
            [USER],
            "5",
            "5",
        ),
        (
            {"data_source": "searchR1_nq", "prompt": [USER], "reward_model": {"ground_truth": {"target": ["5", "V"]}}},
            [USER],
            ["5", "V"],
            None,
        ),
        ({"prompt": "2+3=", "answer": {"value": 5, "unit": "m"}}, [USER], {"value": 5, "unit": "m"}, None),
        ({"prompt": "2+3=", "answer": [[1, 2], [3, 4]]}, [USER], [[1, 2], [3, 4]], None),
    ],
)
def test_columns_are_known_by_the_names_of_other_libraries(
    tmp_path: Path, row: dict[str, Any], prompt: list[Any], answer: Any, imitated: str | None
):
    tasks = source(tmp_path, row, row)
    assert list(tasks[1].messages) == prompt
    assert tasks[1].answer == answer
    assert tasks.imitated(tasks[1]) == imitated
    assert tasks.gradable == (answer is not None)


def test_an_answer_is_imitated_as_a_whole_and_compared_after_its_mark(tmp_path: Path):
    row = {"question": "2+3=", "answer": "2 and 3 are 5.\n#### 5"}
    tasks = source(tmp_path, row, answer_after="####")
    assert (tasks[0].answer, tasks.imitated(tasks[0])) == ("5", "2 and 3 are 5.\n#### 5")


def test_an_object_among_answers_that_are_texts_is_a_fault_of_its_row(tmp_path: Path):
    rows = [{"prompt": "2+3=", "answer": "5"}, {"prompt": "2+4=", "answer": {"value": 6}}]
    with pytest.raises(
        RecipeError, match=r"line 2 of 'rows.jsonl' holds an object in column 'answer'; allowed: a text"
    ):
        source(tmp_path, *rows)
    assert len(source(tmp_path, *rows, bad_rows="drop")) == 1
    with pytest.raises(RecipeError, match=r"line 1 of 'rows.jsonl' has nothing after '#' in column 'answer'"):
        source(tmp_path, rows[1], answer_after="#")


def test_verls_parquet_is_read_as_it_is(tmp_path: Path):
    import pyarrow
    from pyarrow import parquet

    row = {
        "data_source": "sums",
        "prompt": [USER],
        "reward_model": {"ground_truth": "5", "style": "rule"},
        "extra_info": {"index": 7},
    }
    path = str(tmp_path / "train.parquet")
    parquet.write_table(pyarrow.Table.from_pylist([row, row]), path)
    tasks = Dataset(path=path, heldout_path=path).build("heldout", 0)
    assert tasks[0].answer == "5"
    assert tasks[0].columns["extra_info"] == {"index": 7}


def test_prompts_without_answers_are_still_refused_where_nothing_is_to_be_imitated(tmp_path: Path):
    with pytest.raises(RecipeError, match=r"line 1 of 'rows.jsonl' has no column 'answer'"):
        source(tmp_path, {"messages": [USER]})
    tasks = source(tmp_path, {"messages": [USER]}, columns={"answer": None})
    assert tasks[0].messages == (USER,)
    assert tasks.imitated(tasks[0]) is None


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"messages": [USER]}, "holds a conversation that does not end with an answer of the assistant"),
        ({"messages": [ASSISTANT]}, "holds a conversation that does not end with an answer of the assistant"),
        ({"messages": "2+3="}, "holds a text"),
        ({"messages": [USER, ASSISTANT], "images": ["a.png"]}, "holds pictures in column 'images', which"),
        ({"messages": [USER, ASSISTANT], "videos": ["a.mp4"]}, "holds videos in column 'videos', which are not suppor"),
    ],
)
def test_a_conversation_that_cannot_be_imitated_is_refused(tmp_path: Path, row: dict[str, Any], said: str):
    with pytest.raises(RecipeError, match=r"line 2 of 'rows.jsonl'") as error:
        source(tmp_path, {"messages": [USER, ASSISTANT]}, row)
    assert said in str(error.value)


@pytest.mark.parametrize("completion", [[USER], [ASSISTANT, ASSISTANT], [], 5])
def test_a_completion_is_one_text_of_the_assistant(tmp_path: Path, completion: Any):
    rows = [{"prompt": "2+3=", "completion": "5"}, {"prompt": "2+3=", "completion": completion}]
    with pytest.raises(RecipeError, match=r"tasks.columns.demonstration: line 2 of 'rows.jsonl' holds"):
        source(tmp_path, *rows)


def test_the_column_solution_is_the_answer_where_there_is_no_other(tmp_path):
    worked = {"problem": "2+2?", "solution": r"As $2+2=4$, it is \boxed{4}."}
    (tmp_path / "worked.jsonl").write_text(json.dumps(worked))
    (tmp_path / "both.jsonl").write_text(json.dumps(worked | {"answer": "4"}))
    answers = [
        Dataset(path=str(tmp_path / name), heldout_share=0).build("train", 0)[0].answer
        for name in ("worked.jsonl", "both.jsonl")
    ]
    assert answers == [worked["solution"], "4"]
