"""Reports of folders that are empty, half written, whole, large, and written by a hostile model."""

import base64
import hashlib
import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lyceum.training.view.report import MAX_POINTS, write_report
from lyceum.training.view.rollouts import number, sample_rollouts
from lyceum.utils.errors import RecipeError

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>"
INTERVAL = {"mean": 0.25, "low": 0.2, "high": 0.31}


def _rows(step, tasks=2, samples=3, completion="4 2", **columns):
    return [
        {
            "step": step,
            "task_id": f"task-{tree}",
            "level": str(tree),
            "tree": tree,
            "row": row,
            "prompt": f"What is {tree}?",
            "completion": completion,
            "outcome": float(row == 0),
            "correct": row == 0,
            "reason": None,
            "parts": '{"correct": 1.0}',
            "tokens": 2,
            "finish": "stop",
            "advantage": 0.5,
            "nodes": [0, row + 1],
            "node_texts": [f"What is {tree}?", completion],
            "token_texts": [completion[:1], completion[1:]],
            "token_logprobs": [-0.1, -2.0],
            "token_advantages": [0.5, 0.5],
            "metadata": "{}",
        }
        | columns
        for tree in range(tasks)
        for row in range(samples)
    ]


def _rollouts(folder: Path, step, rows) -> None:
    (folder / "rollouts").mkdir(exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), folder / "rollouts" / f"step-{step:06d}.parquet")


def _full(folder: Path, text="4 2") -> Path:
    evaluation = {
        "overall": INTERVAL,
        "by_level": {"1": INTERVAL},
        "greedy": {"overall": INTERVAL, "by_level": {}},
        "pass_at": {"1": INTERVAL, "8": {"mean": 0.5, "low": 0.4, "high": 0.6}},
        "maj_at": {},
        "tasks": 40,
        "samples": 8,
    }
    summary = {
        "recipe": "grpo",
        "title": text,
        "seed": 3,
        "before": evaluation,
        "after": {**evaluation, "overall": {"mean": 0.75, "low": 0.7, "high": 0.8}},
        "tokens_sampled": 12345,
        "seconds": {"generate": 200.0},
        "steps": 2,
        "versions": {"torch": "2.13"},
        "finished": True,
    }
    (folder / "summary.json").write_text(json.dumps(summary))
    (folder / "metrics.jsonl").write_text('{"step": 1, "loss": 0.5, "stage": "online"}\n{"step": 2, "loss": 0.25}\n')
    (folder / "recipe.yaml").write_text(f"model: {text}\n")
    side = {"completion": text, "correct": False}
    example = {"task_id": "e", "level": "1", "prompt": text, "answer": "42", "before": side, "after": side}
    (folder / "examples.json").write_text(json.dumps([example]))
    _rollouts(folder, 1, _rows(1, completion=text))
    return folder


def _data(page: str):
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    assert found is not None
    return json.loads(found[1])


def test_an_empty_folder_gives_a_page_that_says_what_is_missing(tmp_path):
    page = write_report(tmp_path).read_text()
    for said in ("no summary.json yet", "No step has been recorded", "No evaluation has been", "no recipe.yaml"):
        assert said in page


def test_a_run_in_progress_has_curves_and_no_result(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 7, "loss": 0.5}\n{"step": 8, "lo')
    page = write_report(tmp_path).read_text()
    assert "in progress, step 7" in page
    assert _data(page)["curves"]["series"]["loss"] == [[7], [0.5]]
    assert "still being written" in page


def test_a_full_run_shows_its_figures(tmp_path):
    page = write_report(_full(tmp_path)).read_text()
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]*>", "", page[page.index("<main>") :]))
    assert "25.0 %→75.0 %" in text.replace("&rarr;", "→")
    # change 0.75 - 0.25; arms: down hypot(0.75 - 0.7, 0.31 - 0.25), up hypot(0.8 - 0.75, 0.25 - 0.2)
    assert "+50.0 +42.2 to +57.1" in text
    assert "finished after 2 steps" in page
    assert "3 min 20 s" in page
    data = _data(page)
    assert len(data["rollouts"]["rows"]) == 6
    assert data["rollouts"]["trees"][0]["nodes"][0]["text"] == "What is 0?"
    assert data["levels"][0]["before"] == INTERVAL


def test_a_full_run_without_before_still_has_a_report(tmp_path):
    folder = _full(tmp_path)
    summary = json.loads((folder / "summary.json").read_text())
    (folder / "summary.json").write_text(json.dumps({**summary, "before": None}))
    assert "not measured" in write_report(folder).read_text()


def test_what_a_model_wrote_is_never_markup(tmp_path):
    page = write_report(_full(tmp_path, HOSTILE)).read_text()
    # Once in the title, once in the recipe, and in the data everywhere: none may open a tag.
    assert HOSTILE not in page
    assert "<img" not in page
    assert page.count("<script") == 2  # the data and the page's own
    assert _data(page)["rollouts"]["rows"][0]["tokens"] == ["<", HOSTILE[1:]]  # and nothing is lost


def test_only_the_packages_own_script_may_run_and_nothing_is_fetched(tmp_path):
    page = write_report(_full(tmp_path)).read_text()
    script = page.rsplit("<script>", 1)[1].split("</script>")[0]
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    # Escaping can fail once; the policy then still refuses what it has no hash of, and every request.
    assert f"script-src 'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" in policy[1]
    assert policy[1].startswith("default-src 'none'")
    assert "innerHTML" not in script
    assert not re.search(r"""(src|href)=["']?(https?:)?//""", page)


def test_long_runs_are_shortened_and_rare_figures_kept(tmp_path):
    lines = [
        {"step": i, "loss": float(i % 2)} | ({"heldout/overall": 0.5} if i % 100 == 0 else {}) for i in range(1000)
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    page = write_report(tmp_path).read_text()
    series = _data(page)["curves"]["series"]
    # 1000 steps in blocks of 3 = 334 points; the ten evaluations stay ten
    assert len(series["loss"][0]) == 334 <= MAX_POINTS
    assert len(series["heldout/overall"][0]) == 10
    assert "means of 3 neighbouring steps" in page


def test_the_sample_of_rollouts_keeps_within_its_size_and_says_so(tmp_path):
    for step in range(20):
        _rollouts(tmp_path, step, _rows(step, tasks=10))
    found, notes = sample_rollouts(tmp_path / "rollouts", max_bytes=20_000)
    assert len(json.dumps(found["rows"])) < 20_000
    # Steps take turns: a small limit leaves a little of each step and not all of the first.
    assert {row["step"] for row in found["rows"]} == {0, 3, 5, 8, 11, 14, 16, 19}
    assert "of the 20 recorded steps" in notes[0]


def test_long_completions_are_cut_and_counted(tmp_path):
    many = [str(i % 10) for i in range(700)]
    row = {"token_texts": many, "token_logprobs": [-1.0] * 700, "token_advantages": [0.0] * 700, "tokens": 700}
    _rollouts(tmp_path, 1, _rows(1, tasks=1, samples=1, completion="".join(many), **row))
    found, notes = sample_rollouts(tmp_path / "rollouts")
    assert (len(found["rows"][0]["tokens"]), found["rows"][0]["length"], found["rows"][0]["whole"]) == (600, 700, False)
    assert len(found["trees"][0]["nodes"][1]["text"]) == 600
    assert notes == ["1 completions are longer than 600 tokens and truncated here."]


def test_ungraded_trajectories_stay_ungraded(tmp_path):
    rows = _rows(1, tasks=1, samples=2)
    rows[1] |= {"outcome": None, "correct": None, "reason": "no number"}
    _rollouts(tmp_path, 1, rows)
    shown = sample_rollouts(tmp_path / "rollouts")[0]["rows"][1]
    assert (shown["outcome"], shown["correct"], shown["reason"]) == (None, None, "no number")


def test_a_broken_rollout_file_is_named_and_the_rest_shown(tmp_path):
    _rollouts(tmp_path, 1, _rows(1))
    (tmp_path / "rollouts" / "step-000002.parquet").write_bytes(b"PAR1 half")
    found, notes = sample_rollouts(tmp_path / "rollouts")
    assert len(found["rows"]) == 6
    assert notes[0].startswith("step-000002.parquet could not be read")


@pytest.mark.parametrize(("value", "expected"), [(0.123456, 0.1235), (float("nan"), None), (7, 7), (None, None)])
def test_numbers_are_short_and_never_nan(value, expected):
    assert number(value) == expected


def _data(page: str):
    """What the page's script reads, as strictly as a browser does."""

    def refuse(name):
        raise AssertionError(f"Unexpected token: {name}")

    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    return json.loads(text, parse_constant=refuse)


def test_numbers_that_json_lacks_leave_a_page_that_a_browser_can_read(tmp_path):
    # All of it as a version before this one wrote it.
    _full(tmp_path)
    nan, inf = float("nan"), float("inf")
    stats = ["{}", '{"log": {"x": NaN, "y": [Infinity, 1e999]}}']
    odd = {"parts": '{"a": NaN, "b": "text", "c": 1}', "outcome": inf, "advantage": nan, "token_logprobs": [nan, -inf]}
    _rollouts(tmp_path, 1, _rows(1, **odd, node_stats=stats))
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write('{"step": 99, "loss": NaN, "reward/mean": -Infinity}\n')
    examples = [{"task_id": "t", "level": nan, "prompt": "p", "answer": None, "before": None, "after": None}]
    (tmp_path / "examples.json").write_text(json.dumps(examples))
    data = _data(write_report(tmp_path).read_text())
    row = data["rollouts"]["rows"][0]
    assert row["parts"] == {"a": None, "b": None, "c": 1}
    assert (row["outcome"], row["advantage"], row["logprob"]) == (None, None, [None, None])
    assert data["examples"][0]["level"] is None
    assert data["curves"]["series"]["loss"][1][-1] is None


def test_a_step_without_its_number_is_a_gap_in_the_curve_and_no_zero(tmp_path):
    lines = ['{"step": 1, "loss": 3.0, "heldout/overall": 0.5}', '{"step": 2, "loss": null, "loss/nonfinite": "nan"}']
    lines += ['{"step": 3, "loss": 1.0, "heldout/overall": 0.75}', '{"step": 4, "loss": 1e308, "x": null}']
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    series = _data(write_report(tmp_path).read_text())["curves"]["series"]
    assert series["loss"] == [[1, 2, 3, 4], [3.0, None, 1.0, 1e308]]
    assert series["heldout/overall"] == [[1, 3], [0.5, 0.75]]  # not measured at step 2: no gap
    assert "x" not in series


def test_means_of_huge_neighbouring_steps_are_numbers(tmp_path):
    lines = [json.dumps({"step": i, "reward/mean": 1.5e308}) for i in range(1, MAX_POINTS * 3 + 1)]
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    series = _data(write_report(tmp_path).read_text())["curves"]["series"]
    assert set(series["reward/mean"][1]) == {1.5e308}


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(RecipeError, match="nowhere"):
        write_report(tmp_path / "nowhere")
