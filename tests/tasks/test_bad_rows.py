"""Rows that cannot be used: refused by file and line, left out, or cut, and always said."""

import json
from pathlib import Path
from typing import Any

import pytest

from lyceum.core.sources import fitted, left_out, prompt_hashes, without
from lyceum.core.types import LeftOut, Task
from lyceum.models.load import load_tokenizer
from lyceum.models.renderer import Renderer
from lyceum.recipe.schema import load_recipe
from lyceum.tasks.dataset import Dataset
from lyceum.tasks.mixture import Mixture
from lyceum.training.stages.sft import SupervisedStage
from lyceum.training.train import check
from lyceum.utils.errors import RecipeError

GOOD = [{"prompt": f"{i}+1=", "answer": str(i + 1)} for i in range(8)]


def written(folder: Path, *rows: Any, name: str = "rows.jsonl") -> str:
    file = folder / name
    file.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return str(file)


def source(path: str, **settings: Any) -> Any:
    return Dataset.model_validate({"path": path, "heldout_path": path, **settings}).build("heldout", 0)


def prompts(tasks: Any) -> list[str]:
    return [tasks[i].messages[-1]["content"] for i in range(len(tasks))]


class OneTokenPerCharacter:
    """A model that reads characters, its template adding two tokens."""

    def __init__(self, limit: int) -> None:
        self.limit = limit

    def tokens(self, task: Task) -> int:
        return 2 + sum(len(message["content"]) for message in task.messages)

    def check(self, task: Task) -> None:
        if self.tokens(task) >= self.limit:
            raise RecipeError(f"tasks: the prompt of task {task.id!r} has {self.tokens(task)} tokens")


def test_rows_that_cannot_be_used_are_left_out_counted_and_named_by_their_lines(tmp_path: Path):
    bad = ['{"prompt', {"answer": "1"}, {"prompt": "", "answer": "1"}, {"prompt": 5, "answer": "1"}, "[]", "null"]
    path = written(tmp_path, GOOD[0], "", *bad, *GOOD[1:])
    tasks = source(path, bad_rows="drop")
    assert prompts(tasks) == [row["prompt"] for row in GOOD]
    assert [tasks[i].id.rpartition("/")[2] for i in range(3)] == ["0", "7", "8"]  # still the rows' own numbers
    assert (tasks.left_out.dropped, tasks.left_out.cut, len(tasks.left_out.named)) == (6, 0, LeftOut.NAMED)
    assert tasks.left_out.named[0].startswith("line 3 of ")  # of the file, whose second line is empty
    assert "line 4 of 'rows.jsonl' has no column 'prompt'" in tasks.left_out.named[1]
    assert "and 1 more" in str(tasks.left_out)


def test_where_no_row_is_left_the_command_is_refused(tmp_path: Path):
    path = written(tmp_path, {"prompt": 5, "answer": "1"}, {"prompt": "a"})
    with pytest.raises(RecipeError, match=r"got 'drop', but no row of 'rows.jsonl' is left: 2 left out: line 1 of"):
        source(path, bad_rows="drop")


def test_rows_that_where_leaves_out_need_not_be_usable(tmp_path: Path):
    kept = [{**row, "kind": "sum"} for row in GOOD]
    path = written(tmp_path, {"kind": "other", "prompt": None}, *kept)
    assert len(source(path, where={"kind": "sum"})) == len(GOOD)


def test_training_and_held_out_tasks_name_a_bad_row_once(tmp_path: Path):
    path = written(tmp_path, {"prompt": 1, "answer": "2"}, *GOOD)
    settings = Dataset(path=path, bad_rows="drop", heldout_share=0.5)
    train, held_out = settings.build("train", 0), settings.build("heldout", 0)
    assert train.left_out.dropped == 1
    assert held_out.left_out == LeftOut()
    assert train.rows is held_out.rows  # found in one pass


# A prompt of 9 characters and two of the template's has 11 tokens: one token too many for 11, where a prompt leaves
# one for the completion, so that at most 10 are allowed.
LONG = {"prompt": "123456+7=", "answer": "123463"}


def test_a_prompt_longer_than_the_context_is_refused_by_its_line(tmp_path: Path):
    with pytest.raises(RecipeError, match=r"it is line 9 of 'rows.jsonl'; tasks.bad_rows=drop leaves such rows out"):
        source(written(tmp_path, *GOOD, LONG)).fitted(OneTokenPerCharacter(11))
    assert len(source(written(tmp_path, *GOOD, LONG)).fitted(OneTokenPerCharacter(12))) == 9


def test_a_prompt_longer_than_the_context_is_left_out_or_loses_its_beginning(tmp_path: Path):
    path = written(tmp_path, GOOD[0], LONG, *GOOD[1:])
    dropped = source(path, bad_rows="drop").fitted(OneTokenPerCharacter(11))
    assert prompts(dropped) == [row["prompt"] for row in GOOD]
    assert dropped.left_out == LeftOut(1, 0, ("line 2 of 'rows.jsonl': the prompt has 11 tokens; allowed: at most 10",))
    cut = source(path, bad_rows="cut").fitted(OneTokenPerCharacter(11))
    assert prompts(cut)[:2] == ["0+1=", "23456+7="]
    assert (cut.left_out.dropped, cut.left_out.cut) == (0, 1)
    assert cut[1].answer == "123463"


def test_a_prompt_may_have_fewer_tokens_than_the_context_allows(tmp_path: Path):
    path = written(tmp_path, LONG, *GOOD)
    with pytest.raises(RecipeError, match=r"tasks.max_prompt_tokens: got 6, but a prompt has 11"):
        source(path, max_prompt_tokens=6).fitted(OneTokenPerCharacter(1000))
    cut = source(path, max_prompt_tokens=6, bad_rows="cut").fitted(OneTokenPerCharacter(1000))
    assert prompts(cut)[0] == "6+7="  # 4 characters and the template's 2
    nothing = source(path, max_prompt_tokens=2, bad_rows="cut")
    with pytest.raises(RecipeError, match="but no row is left: 9 left out"):  # the template alone is as long
        nothing.fitted(OneTokenPerCharacter(1000))


def test_a_mixtures_parts_leave_out_their_own(tmp_path: Path):
    parts = [
        {"tasks": {"kind": "dataset", "path": (path := written(tmp_path, LONG, *GOOD)), "heldout_path": path, **how}}
        for how in ({"bad_rows": "drop"}, {"bad_rows": "cut"})
    ]
    mixture = Mixture.model_validate({"parts": parts}).build("heldout", 0)
    assert len(mixture) == 18
    fitting = fitted(mixture, OneTokenPerCharacter(11))
    assert len(fitting) == 17
    assert (left_out(fitting).dropped, left_out(fitting).cut) == (1, 1)


def test_a_fine_tuning_stages_own_tasks_are_fitted_too(tmp_path: Path):
    long = {"prompt": "1+" * 3000, "completion": "1"}
    path = written(tmp_path, long, *({**row, "completion": row["answer"]} for row in GOOD))
    stage = {"kind": "dataset", "path": path, "heldout_share": 0}
    with pytest.raises(RecipeError, match=r"stages\.sft\.tasks"):
        check(load_recipe("sft", [("stages.0.tasks", stage), "evaluate.n=0"]))
    dropping = load_recipe("sft", [("stages.0.tasks", {**stage, "bad_rows": "drop"}), "evaluate.n=0"])
    check(dropping)
    tokenizer = load_tokenizer(dropping.model)
    [fitting] = [stage.fitting(0, tokenizer, 2048) for stage in dropping.stages if isinstance(stage, SupervisedStage)]
    assert fitting is not None
    assert prompts(fitting) == [row["prompt"] for row in GOOD]


def test_a_stage_does_not_render_the_prompts_again_that_were_checked_before_it(tmp_path: Path, monkeypatch):
    long = {"prompt": "1+" * 3000, "completion": "1"}
    path = written(tmp_path, long, *({**row, "completion": row["answer"]} for row in GOOD))
    own = {"kind": "dataset", "path": path, "heldout_share": 0, "bad_rows": "drop"}
    recipe = load_recipe("sft", [("stages.0.tasks", own), "evaluate.n=0"])
    tokenizer, rendered = load_tokenizer(recipe.model), list[str]()
    render = Renderer.render
    monkeypatch.setattr(Renderer, "render", lambda self, *a: (rendered.append(""), render(self, *a))[1])
    [stage] = [stage for stage in recipe.stages if isinstance(stage, SupervisedStage)]
    left = dict[bool, int]()
    for checked in (False, True):
        rendered.clear()
        fitting = stage.fitting(0, tokenizer, 2048, checked=checked)
        assert fitting is not None
        assert prompts(fitting) == [row["prompt"] for row in GOOD]
        left[checked] = len(rendered)
    assert left == {False: 1 + len(GOOD), True: 1}  # the long row alone, to count its tokens


def test_what_is_evaluated_on_is_not_trained_whatever_its_form(tmp_path: Path, caplog):
    chats = [{"prompt": [{"role": "system", "content": "1"}, {"role": "user", "content": "3+1="}], "answer": "4"}]
    questions = [{"question": "5+1=", "answer": "6"}, {"question": "50+1=", "answer": "51"}]
    trained = {"kind": "dataset", "path": written(tmp_path, *GOOD), "heldout_share": 0}
    more = {"kind": "dataset", "path": written(tmp_path, *GOOD[:2], *chats, name="more.jsonl"), "heldout_share": 0}
    asked = {"kind": "dataset", "path": written(tmp_path, *questions, name="asked.jsonl"), "template": "1{question}"}
    plain = {"kind": "dataset", "path": written(tmp_path, GOOD[3], name="plain.jsonl")}
    source, held_out = check(load_recipe("grpo", [("tasks", [trained, more]), ("evaluate.tasks", [asked, plain])]))
    prompts = [source[index].messages[-1]["content"] for index in range(len(source))]
    assert set(prompts) == {"0+1=", "1+1=", "2+1=", "4+1="}  # of the first part the first four that are left
    assert (left_out(source), len(held_out)) == (LeftOut(shared=3), 3)
    assert "2 rows of" in caplog.text
    assert "1 rows of" in caplog.text
    with pytest.raises(RecipeError, match=r"tasks\.path: every problem of .* is evaluated on too; allowed: other rows"):
        without(source, prompt_hashes(source))
