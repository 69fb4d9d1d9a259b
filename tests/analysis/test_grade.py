"""``lyceum grade``: any reward on completions in a file; whatever the rows hold, each gets its line, in order."""

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lyceum
from lyceum.analysis.grading import rows as rows_to_grade
from lyceum.cli import main
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Grade, Origin, Task
from lyceum.reward import pool as pools
from lyceum.run.rollout_table import trajectory_table
from lyceum.utils.errors import RecipeError

pytestmark = pytest.mark.usefixtures("small_scratch")

TABLE = "CREATE TABLE t (a INTEGER); INSERT INTO t VALUES (1), (2), (3), (4), (5);"
GOOD = {"prompt": "1+1", "completion": "2", "answer": "2"}
BAD = [
    ("[1]", "the row is a list"),
    ("3", "the row is a number"),
    ("not json", "not JSON"),
    ('{"completion": "2", "completion": "3"}', "appears twice"),
    ('{"prompt": "x", "answer": "2"}', "'completion' holds nothing"),
    ('{"completion": 2}', "'completion' holds a number"),
    ('{"completion": "2", "prompt": 3}', "'prompt' holds a number"),
    ('{"completion": "2", "prompt": [{"role": "user"}]}', "'prompt' holds a list"),
    ('{"completion": "2", "answer": {"a": 1}}', "is no text or number to compare with"),
    ('{"completion": "2", "answer": NaN}', "not JSON"),
    ('{"completion": "2", "answer": "2", "tokens": -1}', "'tokens' holds a number"),
    ('{"completion": "2", "answer": "2", "id": [1]}', "'id' holds a list"),
    ('{"completion": "\\ud800", "answer": "2"}', "surrogate"),
    ('{"completion": "2"}', "no answer to compare with"),
    ("\x00\xff", "not"),
]


@pytest.fixture(autouse=True)
def in_its_own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def write(name, *rows):
    with open(name, "w", encoding="latin-1") as file:
        file.writelines((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows)
    return name


def grade(file, reward, *keys, **more):
    lines = []
    lyceum.grade(file, reward, keys, each=lines.append, progress="silent", **more)
    return lines


def test_the_answer_of_gsm8k_stands_after_its_mark():
    told = {"question": "48 and half of 48?", "answer": "48/2 = <<48/2=24>>24\n48+24 = <<48+24=72>>72\n#### 72"}
    write(
        "gsm8k.jsonl",
        {**told, "completion": "so it is 72"},
        {**told, "completion": "24"},
        {**told, "completion": "7", "answer": ["x #### 8", "#### 7"]},
        {**told, "completion": "72", "answer": "72"},
    )
    lines = grade("gsm8k.jsonl", "number", "columns.prompt=question", "columns.answer_after=####")
    assert [line["score"] for line in lines] == [1.0, 0.0, 1.0, None]
    assert lines[3]["reason"] == "column 'answer' has nothing after '####'"


def test_every_row_gets_its_line_in_order_whatever_it_holds(capsys):
    write("rows.jsonl", GOOD, *(row for row, _ in BAD), "", {**GOOD, "completion": "3"})
    assert main(["grade", "rows.jsonl", "--reward", "exact", "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["row"] for line in lines] == list(range(len(BAD) + 2))
    assert [lines[0]["score"], lines[-1]["score"]] == [1.0, 0.0]
    assert lines[0] == {"row": 0, "score": 1.0, "correct": True, "parts": {"exact": 1.0}}
    for line, (_, reason) in zip(lines[1:-1], BAD, strict=True):
        assert line["score"] is None
        assert reason in line["reason"]


def test_the_table_counts_what_was_graded_and_why_not(capsys):
    write("rows.jsonl", GOOD, GOOD, {**GOOD, "completion": "3"}, "[]", "[]")
    assert main(["grade", "rows.jsonl", "--reward", "exact", "--output", "out.jsonl"]) == 0
    said = capsys.readouterr().out
    assert "66.7 %" in said
    assert "2 ungraded: the row is an empty list" in said
    with open("out.jsonl") as file:
        assert [json.loads(line)["score"] for line in file] == [1.0, 1.0, 0.0, None, None]


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["nowhere.jsonl", "--reward", "exact"], "which does not exist"),
        (["rows.txt", "--reward", "exact"], "'rows.txt', a file named .txt; allowed: .jsonl, .json, .parquet, .csv"),
        ([".", "--reward", "exact"], "which is not a regular file"),
        (["no.parquet", "--reward", "exact"], "cannot be read as parquet"),
        (["rows.jsonl"], "reward: got none"),
        (["rows.jsonl", "--reward", "exakt"], "did you mean 'exact'?"),
        (["rows.jsonl", "--reward", "exact", "reward.cas=1"], "did you mean 'case'?"),
        (["rows.jsonl", "--reward", "exact", "steps=1"], "steps: unknown key"),
        (["rows.jsonl", "--reward", "exact", "columns.promt=x"], "did you mean 'prompt'?"),
        (["rows.jsonl", "--reward", "exact", "model.dtype=bfloat16"], "together with --model"),
        (["rows.jsonl", "--reward", "exact", "model=base"], "the option --model"),
        (["~nobody-of-this-name/rows.jsonl", "--reward", "exact"], "does not exist"),
        (["rows.jsonl", "--reward", "regex", "reward.pattern=("], "allowed: a regular expression of RE2"),
        (["rows.jsonl", "--reward", "json-schema", "reward.json_schema={type: nope}"], "allowed: a JSON schema"),
        (["rows.jsonl", "--reward", "sql", "reward.path=rows.txt"], "no SQLite file"),
        (["rows.jsonl", "--reward", "sql", "reward.ngrams=1"], "which an incorrect query may earn"),
        (["rows.jsonl", "--reward", "answer-consistency"], "which asks a model"),
        (["rows.jsonl", "--reward", "task"], "rows.jsonl"),
        (["rows.jsonl", "--reward", "exact", "--output", "rows.jsonl"], "which file is read from"),
        (["rows.jsonl", "--reward", "exact", "--output", "rows.txt"], "not written by lyceum grade"),
        (["rows.jsonl", "--reward", "exact", "--output", "."], "is a folder"),
    ],
)
def test_what_cannot_be_graded_is_refused_and_nothing_is_written(capsys, argv, said):
    write("rows.jsonl", GOOD)
    write("rows.txt", "no grades")
    write("no.parquet", "no parquet")
    if said == "rows.jsonl":  # a recipe's tasks from a file that is none of its own
        argv = [*argv, "tasks=nowhere/rows.jsonl"]
    before = {name: Path(name).read_text() for name in ("rows.jsonl", "rows.txt")}
    assert main(["grade", *argv]) == 2
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    assert said in " ".join(captured.err.split())
    assert {name: Path(name).read_text() for name in before} == before


def test_any_reward_takes_part_with_a_recipes_whole_reward_and_functions(capsys):
    rows = [{**GOOD, "completion": text, "tokens": tokens} for text, tokens in (("2", 10), ("3", 80), ("2", 90))]
    write("rows.jsonl", *rows)
    parts = "[{kind: number}, {kind: overlong, max_tokens: 80, buffer_tokens: 16, weight: 0.5}]"
    lines = grade("rows.jsonl", parts)
    assert [line["score"] for line in lines] == [1.0, -0.5, 0.5]
    assert lines[1]["parts"] == {"number": 0.0, "overlong": -1.0}
    write("mine.yaml", "extends: grpo\nreward: [{kind: exact}, {kind: repetition, weight: 0.0}]")
    assert [line["parts"]["exact"] for line in grade("rows.jsonl", "mine.yaml")] == [1.0, 0.0, 1.0]
    assert [line["score"] for line in grade("rows.jsonl", lambda completion, answer: len(completion) + 1)] == [2.0] * 3
    # A reward that counts tokens where nobody says how many there are: no score, and not the score of 0 tokens.
    write("rows.jsonl", GOOD)
    [line] = grade("rows.jsonl", parts)
    assert line["score"] is None
    assert "only the completion's text is known" in line["reason"]


def test_rows_of_one_group_are_graded_together():
    # dynamic-length pulls the wrong answer to the mean length of the group's right ones; alone it has none.
    rows = [{**GOOD, "completion": text, "tokens": n, "group": 1} for text, n in (("2", 20), ("3", 20), ("2", 20))]
    reward = "[exact, dynamic-length]"
    together = grade(write("rows.jsonl", *rows), reward)
    assert [line["score"] for line in together] == [1.0, 0.0, 1.0]
    alone = grade(write("rows.jsonl", *({**row, "group": None} for row in rows)), reward)
    assert alone[1]["score"] < -0.2


def test_grades_do_not_depend_on_workers_order_of_rows_or_repetition(monkeypatch):
    write("queries.jsonl")
    texts = [
        "SELECT sum(a) FROM t WHERE a <> 9",
        *(f"SELECT sum(a) FROM t WHERE a < {n % 7}" for n in range(30)),
        "DELETE FROM t",
        "",
        "SELECT 15",
    ]
    rows = [
        {"completion": text, "answer": "SELECT sum(a) FROM t WHERE a <> 9", "schema": TABLE, "id": n}
        for n, text in enumerate(texts)
    ]
    keys = ("reward.syntax=0.5", "reward.ngrams=0.25")
    first = grade(write("rows.jsonl", *rows), "sql", *keys, "reward.workers=1")
    assert {0.0, 1.75} <= {line["score"] for line in first}
    assert len({line["score"] for line in first}) > 3
    assert grade("rows.jsonl", "sql", *keys, "reward.workers=4") == first
    # Its processes are killed between two files: the pool starts others.
    for shared in list(pools._shared.values()):
        for process in shared._state.processes:
            if process is not None:
                process._process.kill()
    assert grade("rows.jsonl", "sql", *keys, "reward.workers=4") == first
    backwards = grade(write("rows.jsonl", *rows[::-1]), "sql", *keys, "reward.workers=4")
    assert [{**line, "row": 0} for line in backwards[::-1]] == [{**line, "row": 0} for line in first]


def test_a_parquet_file_is_read_like_json_lines_and_a_row_too_long_is_skipped(monkeypatch):
    rows = [{"prompt": "?", "completion": str(n), "answer": "3"} for n in range(200)]
    pq.write_table(pa.Table.from_pylist(rows), "rows.parquet", row_group_size=50)
    write("rows.jsonl", *rows)
    expected = grade("rows.jsonl", "exact")
    assert [line["row"] for line in expected if line["score"]] == [3]
    assert grade("rows.parquet", "exact") == expected
    for path, content in (
        ("rows.json", json.dumps(rows).encode()),
        ("rows.jsonl.gz", gzip.compress(Path("rows.jsonl").read_bytes())),
    ):
        Path(path).write_bytes(content)
        assert grade(path, "exact") == expected, path
    monkeypatch.setattr(rows_to_grade, "LONGEST_ROW", 1000)
    write("rows.jsonl", rows[3], {**GOOD, "completion": "x" * 5000}, rows[3])
    lines = grade("rows.jsonl", "exact")
    assert [line["score"] for line in lines] == [1.0, None, 1.0]
    assert "more than 1000 bytes" in lines[1]["reason"]


def test_rows_are_read_only_as_far_ahead_as_their_size_allows(monkeypatch):
    write("rows.jsonl", *({**GOOD, "completion": "x" * 1000} for _ in range(300)))
    monkeypatch.setattr("lyceum.analysis.grading.grade.WAITING_BYTES", 20_000)
    ahead, read, written = [], [0], [0]

    def counted(*args):
        for row in rows_to_grade.read_completions(*args):
            read[0] += 1
            ahead.append(read[0] - written[0])
            yield row

    monkeypatch.setattr("lyceum.analysis.grading.grade.read_completions", counted)

    def each(line):
        written[0] += 1

    lyceum.grade("rows.jsonl", "exact", each=each, progress="silent")
    assert written == [300]
    assert max(ahead) <= 20_000 // 1000 + 2


def run_folder(tmp_path):
    folder = tmp_path / "run"
    (folder / "rollouts").mkdir(parents=True)
    (folder / "recipe.yaml").write_text("reward: [{kind: exact}]\n")
    (folder / "summary.json").write_text('{"finished": true}')
    for step in (1, 2):
        tree = Tree(Task(f"t/{step}", (), "5", {"level": 2}), [Node.prompt([1], "2+3=")])
        for text, outcome in (("5", 0.25), ("6", None)):
            leaf = Node(tree.root, [3], Origin.POLICY, [-1.0], [-1.0], [0], "stop", text, grade=Grade(outcome))
            tree.root.children.append(leaf)
        tree.chosen = list(tree.root.children)
        table = trajectory_table(step, [tree], None, lambda tokens: "")
        pq.write_table(table, folder / "rollouts" / f"step-00000{step}.parquet")
    return folder


def test_a_runs_rollouts_are_graded_again_by_its_own_reward_or_another(tmp_path):
    folder = run_folder(tmp_path)
    lines = grade(folder, None)
    assert [(line["step"], line["task"], line["recorded"]) for line in lines] == [
        *((1, "t/1", 0.25), (1, "t/1", None), (2, "t/2", 0.25), (2, "t/2", None))
    ]
    assert [(line["score"], line["correct"]) for line in lines] == [(1.0, True), (0.0, False)] * 2
    assert [line["score"] for line in grade(folder, "regex", 'reward.pattern="[56]"')] == [1.0] * 4
    with pytest.raises(RecipeError, match="is part of the run"):
        lyceum.grade(folder, output=folder / "metrics.jsonl")
    for file in (folder / "rollouts").iterdir():
        file.unlink()
    with pytest.raises(RecipeError, match="has written no rollouts"):
        lyceum.grade(folder)


def test_json_lines_are_the_whole_standard_output_though_a_reward_prints(capfd, tmp_path):
    write("rows.jsonl", GOOD)
    (tmp_path / "loud.py").write_text("def score(completion):\n    print('loud')\n    return 1.0\n")
    assert main(["grade", "rows.jsonl", "--reward", "loud.py:score", "--json"]) == 0
    assert [json.loads(line)["score"] for line in capfd.readouterr().out.splitlines()] == [1.0]


def test_a_model_counts_tokens_and_answers_rewards_that_score_under_one():
    rows = [{"prompt": "1+1=", "completion": text, "answer": "2", "group": 1} for text in ("1+1=2#2", "1+1=3#2", "#3")]
    parts = "[{kind: exact, extract: {after: '#'}}, {kind: consistency-bonus, extract: {after: '#'}}]"
    write("rows.jsonl", *rows)
    first = grade("rows.jsonl", parts, model="scratch")
    # Of the two correct answers the one that its own reasoning makes likelier is paid half a point.
    assert sorted(line["score"] for line in first[:2]) == [1.0, 1.5]
    assert first[2]["score"] == 0.0
    assert grade("rows.jsonl", parts, model="scratch") == first
    # Tokens: seven signs, which the scratch model's tokenizer keeps apart, and the end of sequence.
    overlong = "[{kind: exact}, {kind: overlong, max_tokens: 9, buffer_tokens: 2}]"
    assert [line["score"] for line in grade("rows.jsonl", overlong, model="scratch")] == [-0.5, -0.5, 0.0]


def test_an_accuracy_is_of_the_parts_whose_numbers_are_all_0_or_1(capsys):
    def accuracy(completions, answer, **columns):
        return [float(text == right) for text, right in zip(completions, answer, strict=True)]

    def short(completions, **columns):
        return [-len(text) / 80 for text in completions]

    file = write("short.jsonl", GOOD, GOOD | {"completion": "3"}, GOOD | {"completion": ""})
    found = lyceum.grade(file, [accuracy, short], progress="silent")
    assert (found.judged, found.correct) == (3, 1)
    # A row alone does not tell which part judges: shortness is exactly 0 in the last.
    assert [line["correct"] for line in grade(file, [accuracy, short])] == [None, None, None]
    assert [line["correct"] for line in grade(file, [accuracy, short], "reward.0.correct_at=1")] == [True, False, False]
    # 1 row of 3 is exactly 0, and says nothing.
    assert lyceum.grade(file, short, progress="silent").judged == 0
    Path("mine.py").write_text("def half(completion):\n    return len(completion) / 2\n")
    assert main(["grade", file, "--reward", "mine.py:half"]) == 0
    assert "accuracy" not in (said := capsys.readouterr().out)
    assert "reward.correct_at=VALUE" in said


def test_a_part_that_is_not_finite_is_left_out_of_its_mean():
    def shares(completion):
        return {"reward": 1.0, "share": float("nan") if completion == "3" else 0.5}

    file = write("shares.jsonl", GOOD, GOOD | {"completion": "3"})
    found = lyceum.grade(file, shares, progress="silent")
    assert (found.graded, found.parts["shares/share"]) == (2, 0.5)


def test_a_file_that_cannot_be_graded_at_all_is_no_success(capsys):
    file = write("said.jsonl", {"prompt": "1+1", "said": "2", "answer": "2"})
    assert main(["grade", file, "--reward", "exact"]) == 2
    assert "they have 'prompt', 'said', 'answer'; allowed: columns.completion=NAME" in capsys.readouterr().err
    assert main(["grade", file, "--reward", "exact", "columns.completion=said"]) == 0
    assert main(["grade", write("rows.jsonl", GOOD), "--reward", "task"]) == 2
    assert "reward: got 'task', the verifier of the tasks" in capsys.readouterr().err
    objects = write("objects.jsonl", GOOD | {"answer": {"a": 1}})
    assert main(["grade", objects, "--reward", "exact"]) == 3
    assert "none of the 1 rows could be graded: exact: the answer" in capsys.readouterr().err
    assert main(["grade", objects, "--reward", "exact", "--json"]) == 3
    assert [json.loads(line)["score"] for line in capsys.readouterr().out.splitlines()] == [None]
