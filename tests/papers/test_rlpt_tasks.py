"""Documents cut into what is shown and what comes next, from files of any size and kind."""

import asyncio
import json
import os
import re

import pytest
from fake_task import NO_MODEL
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from lyceum.core.component import explain
from lyceum.core.tree import Node
from lyceum.core.types import Origin
from lyceum.papers.rlpt.tasks_text import Text
from lyceum.recipe.schema import load_recipe
from lyceum.utils.errors import RecipeError

PROSE = "It rained. It rained all day! Did it stop? No.\n\nThe sun came out. Everyone went home.\n"
CUTS = ("sentences", "words", "lines", "characters")


def text(path, **settings):
    return Text.model_validate({"path": str(path), "heldout_share": 1e-9, **settings})


def answered(*texts):
    prompt = Node(None, [1], Origin.PROMPT)
    return [Node(prompt, [2], Origin.POLICY, text=given, finish="stop") for given in texts]


@pytest.fixture
def prose(tmp_path):
    place = tmp_path / "prose.txt"
    place.write_text(PROSE)
    return place


def refusal(settings):
    """What a person reads when this text cannot be used."""
    try:
        Text.model_validate(settings).build("train", 0)
    except ValidationError as error:
        return "\n".join(explain(error, Text))
    except RecipeError as error:
        return str(error)
    raise AssertionError("nothing was refused")


def test_a_paragraph_is_a_document_and_a_sentence_is_what_comes_next(prose):
    source = text(prose, per_document=20).build("train", 0)
    assert len(source) == 40
    tasks = [source[index] for index in range(40)]
    first = {(task.messages[0]["content"], task.answer) for task in tasks[:20]}
    # Each of the paragraph's places, and no other: white space is at the beginning of what comes next.
    assert first == {
        ("It rained.", " It rained all day!"),
        ("It rained. It rained all day!", " Did it stop?"),
        ("It rained. It rained all day! Did it stop?", " No."),
    }
    assert {task.answer for task in tasks[20:]} == {" Everyone went home."}
    assert tasks[0].columns["rest"].startswith(tasks[0].answer)
    assert [source[index] for index in range(40)] == tasks, "a task is a function of its index"


def test_places_are_drawn_within_their_bounds_and_pieces_counted(prose):
    source = text(prose, cut="words", pieces=2, earliest=3, latest=4, per_document=30, context=9).build("train", 0)
    tasks = [source[index] for index in range(30)]
    assert {task.columns["pieces_before"] for task in tasks} == {3, 4}
    assert {(task.messages[0]["content"], task.answer) for task in tasks} == {
        ("ained. It", " rained all"),
        ("It rained", " all day!"),
    }


def test_a_mark_ends_a_piece(tmp_path):
    place = tmp_path / "sums"
    place.write_text("1+2=3\n4+5=9\n")
    source = text(place, documents="lines", cut="mark", mark="=").build("train", 0)
    assert [(task.messages[0]["content"], task.answer) for task in map(source.__getitem__, range(2))] == [
        ("1+2=", "3"),
        ("4+5=", "9"),
    ]


def test_the_middle_is_asked_with_what_follows_where_something_follows(prose):
    settings = {"middle_share": 1.0, "middle_template": "{context}|{following}", "per_document": 20}
    source = text(prose, **settings).build("train", 0)
    tasks = [source[index] for index in range(40)]
    assert {(task.columns["mode"], task.messages[0]["content"], task.answer) for task in tasks} == {
        ("middle", "It rained.|Did it stop?", " It rained all day!"),
        ("middle", "It rained. It rained all day!|No.", " Did it stop?"),
        ("next", "It rained. It rained all day! Did it stop?", " No."),
        ("next", "The sun came out.", " Everyone went home."),
    }


@given(st.text("aB .!?\n\"')", max_size=60), st.sampled_from(CUTS))
def test_the_pieces_are_the_text_without_the_white_space_at_its_end(given_text, cut):
    pieces = text("x", cut=cut).pieces_of(given_text)
    assert "".join(pieces) == given_text.rstrip()
    assert all(pieces)


def test_documents_of_tasks_are_made_on_demand_and_keep_their_levels():
    source = Text.model_validate({"tasks": {"kind": "chain", "levels": [2]}, "cut": "mark", "mark": "="}).build(
        "train", 0
    )
    inner = {"kind": "chain", "levels": [2]}
    assert len(source) == 100_000
    task = source[5]
    context, answer = task.messages[0]["content"], task.answer
    assert context.endswith("=")
    assert str(sum(map(int, context[:-1].replace("-", "+-").split("+"))) % 100) == answer
    assert task.columns["level"] == 2
    solved = Text.model_validate({"tasks": inner, "document": "{prompt}{solution}", "cut": "mark", "mark": "|"})
    assert solved.build("train", 0)[5].messages[0]["content"] == f"{context}|"


def test_a_text_is_its_own_verifier(prose):
    task = (source := text(prose).build("train", 0))[1]
    grades = asyncio.run(source.grader()(task, answered("everyone went home.", "Everyone stayed."), NO_MODEL))
    assert [grade.correct for grade in grades] == [True, False]


def test_held_out_documents_are_other_ones_whatever_the_seed(tmp_path):
    place = tmp_path / "rows.jsonl"
    place.write_text("".join(json.dumps({"text": f"One {n}. Two {n}."}) + "\n\n" for n in range(300)))
    settings = Text(path=str(place), heldout_share=0.2)
    train, heldout = settings.build("train", 0), settings.build("heldout", 1)
    contexts = [{source[i].messages[0]["content"] for i in range(len(source))} for source in (train, heldout)]
    assert len(train) + len(heldout) == 300
    assert len(heldout) == 60, "a fifth, and not what a hash of each happens to leave"
    assert not contexts[0] & contexts[1]
    other = tmp_path / "other.txt"
    other.write_text("Here. There.")
    assert len(Text(path=str(place), heldout_path=str(other)).build("train", 0)) == 300
    assert Text(path=str(place), heldout_path=str(other)).build("heldout", 0)[0].answer == " There."


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.json"])
def test_a_limit_leaves_both_splits_their_share_of_the_same_documents(name, tmp_path):
    rows = [{"text": f"One {n}. Two {n}."} for n in range(200)]
    lines = "\n".join(map(json.dumps, rows))
    (tmp_path / name).write_text(lines if name.endswith("l") else json.dumps(rows))
    settings = Text(path=str(tmp_path / name), heldout_share=0.25, limit=60)
    train, heldout = settings.build("train", 0), settings.build("heldout", 0)
    assert (len(train), len(heldout)) == (60, 20)
    seen = {int(re.search(r"\d+", source[i].answer)[0]) for source in (train, heldout) for i in range(len(source))}
    assert seen == set(range(80))


def test_other_tables_and_limits(tmp_path):
    place = tmp_path / "rows.json"
    place.write_text(json.dumps([{"body": "One. Two."}, {"body": "Alone."}, {"body": "Three. Four. Five."}]))
    assert [text(place, column="body").build("train", 0)[i].answer for i in (0,)] == [" Two."]
    assert len(text(place, column="body").build("train", 0)) == 2, "a document of one piece has nothing that follows"
    assert len(text(place, column="body", limit=1).build("train", 0)) == 1
    assert len(text(place, column="body", longest=7).build("train", 0)) == 1


@pytest.mark.parametrize(
    ("content", "settings", "line"),
    [
        (b"\x89PNG\r\n\x1a\n\xff\xfe", {}, "tasks.path: line 1 of .*no UTF-8 text"),
        (b"One. Two.\n\nThree\0. Four.", {}, "tasks.path: line 3 of .*NUL"),
        (b"", {}, "tasks.path: no train document.*allowed"),
        (b"One", {}, "tasks.path: no train document.*2 pieces.*'sentences'"),
        (b'{"text": "a. b."}\n[1]\n', {"jsonl": True}, "tasks.path: line 2 of .*a list; allowed: an object"),
        (
            b'{"text": "a. b."}\n{"body": 1}\n',
            {"jsonl": True},
            "tasks.column: line 2 of .*no column 'text'.*allowed: body",
        ),
        (b'{"text": 3}\n', {"jsonl": True}, "tasks.path: line 1 of .*a number in column 'text'; allowed: a text"),
        (b"{", {"jsonl": True}, "tasks.path: line 1 of .*not JSON"),
        (b"One. Two.", {"template": "{following}"}, "template: got {following}; allowed: {context}"),
        (b"One. Two.", {"template": "none"}, "template: got 'none'; allowed"),
        (b"One. Two.", {"mark": "="}, "mark: got '=' with cut 'sentences'"),
        (b"One. Two.", {"tasks": "chain"}, "got path and tasks; allowed: one of them"),
        (b"One. Two.", {"latest": 1, "earliest": 2}, "latest: got 1; allowed"),
        (b"One. Two.", {"verifier": "task"}, "verifier: got 'task'"),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_place(tmp_path, content, settings, line):
    place = tmp_path / f"file.{'jsonl' if settings.pop('jsonl', False) else 'txt'}"
    place.write_bytes(content)
    assert re.search(line, refusal({"path": str(place), "heldout_share": 1e-9, **settings}))


def test_a_paragraph_that_would_not_fit_in_memory_is_refused_by_its_line(tmp_path, monkeypatch):
    monkeypatch.setattr("lyceum.papers.rlpt._documents.MOST_BYTES", 20)
    place = tmp_path / "long.txt"
    place.write_text("\ufeffOne. Two.\n\nOne. Two.\nThree. Four.\n")
    assert "the paragraph from line 3 on" in refusal({"path": str(place)})
    source = text(place, documents="lines").build("train", 0)
    assert [source[i].messages[0]["content"] for i in range(3)] == ["One.", "One.", "Three."]
    place.write_text("x" * 30)
    assert "line 1 of" in refusal({"path": str(place)})


def test_a_file_that_is_not_there_a_pipe_and_one_that_changed_are_refused(tmp_path, prose):
    assert "which does not exist" in refusal({"path": str(tmp_path / "none.txt")})
    os.mkfifo(tmp_path / "pipe.txt")
    assert "tasks.path: got" in refusal({"path": str(tmp_path / "pipe.txt")})
    source = text(prose).build("train", 0)
    prose.write_bytes(b"\xff" * 100)
    with pytest.raises(RecipeError, match="no UTF-8"):
        source[0]
    prose.unlink()
    with pytest.raises(RecipeError, match="cannot be read"):
        source[0]


def test_what_prompts_leave_out_of_the_context_is_written_by_the_template(tmp_path):
    place = tmp_path / "sum.txt"
    place.write_text("1+2= 3 |1")
    settings = {
        "cut": "words",
        "latest": 1,
        "omit": "=",
        "template": "{context}?",
        "middle_template": "{context}{following}=",
    }
    for middle_share, prompt in ((0.0, "1+2?"), (1.0, "1+2|1=")):
        task = text(place, middle_share=middle_share, **settings).build("train", 0)[0]
        assert (task.messages[0]["content"], task.answer) == (prompt, " 3")


def test_documents_of_tasks_are_refused_where_they_have_no_such_text_or_are_too_many():
    assert "tasks.document: got {answers} (did you mean 'answer'?)" in refusal(
        {"tasks": "chain", "document": "{answers}"}
    )
    assert "at most 100000000 tasks in all" in refusal({"tasks": "chain", "per_document": 10_000})
    assert "has a list there" in refusal({"tasks": "chain", "document": "{hints}"})


def test_a_recipe_reads_a_text_file(prose):
    assert load_recipe("rlp", [f"tasks={{kind: text, path: {prose}, heldout_share: 0.5}}"])
