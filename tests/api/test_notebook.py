"""What a notebook shows of results, and that the module's names are the documented ones."""

from __future__ import annotations

import pickle
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

import lyceum
from lyceum.analysis.boundary.result import Against, Boundary
from lyceum.analysis.comparison.result import AccuracyDifference, Comparison, RecipeResult
from lyceum.analysis.grading.grade import Graded
from lyceum.analysis.measure import Accuracy
from lyceum.analysis.sparsity import Share, Sparsity
from lyceum.analysis.test_time.result import SearchResult
from lyceum.core.types import Grade
from lyceum.evaluation.intervals import Interval
from lyceum.run.rollout_table import SCHEMA
from lyceum.utils.errors import NothingLearnt, RecipeError
from lyceum.utils.numbers import to_json
from lyceum.utils.progress import Progress, using

HALF = {"mean": 0.5, "low": 0.25, "high": 0.75}
MORE = {"mean": 0.75, "low": 0.5, "high": 1.0}


@pytest.fixture
def run(tmp_path: Path) -> lyceum.Trained:
    """Files as a run writes them, with a name that HTML would read."""
    folder = tmp_path / "<b>"
    folder.mkdir()
    summary = {"finished": True, "learnt": True, "before": {"overall": HALF}}
    summary["after"] = {"overall": MORE, "greedy": {"overall": HALF}, "pass_at": {"1": MORE, "8": MORE}}
    (folder / "summary.json").write_text(to_json(summary))
    lines: list[dict[str, Any]] = [{"step": step, "reward/mean": step / 4, "stage": "a"} for step in (1, 2)]
    lines[0] |= {"heldout/overall": 0.5, "heldout/low": 0.25, "heldout/high": 0.75}
    (folder / "metrics.jsonl").write_text("".join(to_json(line) + "\n" for line in lines))
    return lyceum.Trained(folder)


def cells(page: str) -> list[list[str]]:
    rows = re.findall(r"<tr>(.*?)</tr>", page)
    return [re.findall(r"<t[hd]>(.*?)</t[hd]>", row) for row in rows]


def test_a_run_is_a_table_of_before_and_after(run: lyceum.Trained):
    page = run._repr_html_()
    assert cells(page) == [
        ["held-out", "before", "after"],
        ["one sample", "50.0 % [25.0, 75.0]", "75.0 % [50.0, 100.0]"],
        ["greedy", "-", "50.0 % [25.0, 75.0]"],
        ["pass@8", "-", "75.0 % [50.0, 100.0]"],
    ]
    assert "&lt;b&gt;" in page
    assert "<b>" not in page


def test_curves_are_frames_and_figures(run: lyceum.Trained):
    assert list(run.curves["reward/mean"]) == [0.25, 0.5]
    assert list(run.curves.index) == [1, 2]
    assert run.plot()._repr_png_()[:4] == b"\x89PNG"
    heldout, reward = run.plot().axes
    # The evaluations before and after stand at step 0 and at the last step, each with its interval.
    assert [list(values) for values in heldout.lines[-1].get_data()] == [[0, 1, 2], [0.5, 0.5, 0.75]]
    assert [line.tolist() for line in heldout.collections[0].get_segments()][1] == [[1, 0.25], [1, 0.75]]
    assert all(tick == int(tick) for tick in heldout.get_xticks())
    assert [list(values) for values in reward.lines[-1].get_data()] == [[1, 2], [0.25, 0.5]]
    with pytest.raises(RecipeError, match=r"no number 'reward/men' \(did you mean 'reward/mean'\?\); allowed: "):
        run.plot("reward/men")
    with pytest.raises(RecipeError, match=r"\(completion_tokens/mean is verl's response_length/mean\); allowed: "):
        run.plot("response_length/mean")
    with pytest.raises(RecipeError, match="no number 'stage'"):
        run.plot("stage")
    with pytest.raises(RecipeError, match="has no rollouts"):
        _ = run.rollouts


def test_a_run_that_is_not_there_is_refused_at_once():
    with pytest.raises(RecipeError, match="run folder: got 'runs/nothing', which is not a folder"):
        lyceum.Trained("runs/nothing")


def test_a_run_without_a_line_has_an_empty_frame_and_no_figure(tmp_path: Path):
    run = lyceum.Trained(tmp_path)
    assert run.curves.empty
    with pytest.raises(RecipeError, match="has no metrics yet"):
        run.plot()


def test_an_evaluation_is_a_table_by_level():
    metrics: dict[str, Any] = {"model": "base", "tasks": 4, "overall": HALF, "pass_at": {"1": HALF, "8": MORE}}
    page = Accuracy(metrics | {"levels": {"3": {"overall": MORE}}})._repr_html_()
    assert cells(page) == [
        ["", "one sample", "pass@8"],
        ["all", "50.0 % [25.0, 75.0]", "75.0 % [50.0, 100.0]"],
        ["level 3", "75.0 % [50.0, 100.0]", "-"],
    ]


def test_a_comparison_is_a_table_with_its_sentence():
    first = RecipeResult("grpo", [1, 2], Interval(**HALF), None, None, None, None, {}, [])
    gain = Interval(0.25, -0.25, 0.75)
    second = RecipeResult("a<b", [1], Interval(**MORE), gain, None, None, None, {}, [], AccuracyDifference(gain, "", 1))
    page = Comparison([first, second], "No difference is shown.", [])._repr_html_()
    assert cells(page)[1:] == [
        ["grpo", "1, 2", "50.0 % [25.0, 75.0]", "-", "-"],
        ["a&lt;b", "1", "75.0 % [50.0, 100.0]", "25.0 % [-25.0, 75.0]", "25.0 % [-25.0, 75.0]"],
    ]
    assert "No difference is shown." in page


def test_other_results_are_tables_too_and_short_in_a_line():
    searched = {"strategy": "beam", "size": 4, "accuracy": HALF, "pass_oracle": MORE, "tokens_spent": 80.4}
    search = SearchResult({"model": "base", "tasks_from": {"kind": "chain"}, "results": [searched]})
    assert cells(search._repr_html_())[1] == ["beam", "4", "50.0 % [25.0, 75.0]", "75.0 % [50.0, 100.0]", "80"]
    assert repr(search) == "SearchResult(beam 4: 50.0 % [25.0, 75.0])"
    accuracy = Accuracy({"model": "base", "tasks": 4, "overall": HALF, "greedy": {"overall": MORE}, "levels": {}})
    assert repr(accuracy) == "Accuracy(base, 4 tasks: one sample 50.0 % [25.0, 75.0], greedy 75.0 % [50.0, 100.0])"
    graded = Graded()
    graded.add({"row": 0, "score": 0.5, "correct": None, "parts": {"a<b": 0.5}}, Grade(0.5, None))
    graded.add({"row": 1, "score": None, "correct": None, "parts": {}, "reason": "no answer"}, Grade(None, None))
    assert ["mean of a&lt;b", "0.500"] in cells(graded._repr_html_())
    assert ["ungraded: no answer", "1"] in cells(graded._repr_html_())
    whole = Share(tensors=2, elements=8, equal=0.25, close=0.5, close_bfloat16=0.75, rank=None)
    sparse = Sparsity("base", "runs/a", 1e-5, whole, {"mlp": whole}, [], [], [], [])
    assert cells(sparse._repr_html_())[1:] == [[of, "2", "75.0 %", "50.0 %", "25.0 %"] for of in ("mlp", "all")]


def test_no_result_fills_a_screen_with_its_fields():
    gain = Interval(0.25, -0.25, 0.75)
    first = RecipeResult("grpo", [1], Interval(**HALF), None, None, None, None, {}, [])
    assert repr(Comparison([first], "No difference is shown.", [])) == "Comparison(No difference is shown.)"
    whole = Share(tensors=2, elements=8, equal=0.25, close=0.5, close_bfloat16=0.75, rank=None)
    sparse = repr(Sparsity("base", "runs/a", 1e-5, whole, {"mlp": whole}, [], [], [], []))
    assert sparse == (
        "Sparsity(weights of runs/a that are unchanged from base: 75.0 % in bfloat16, 50.0 % within 1e-05)"
    )
    against = Against("a", {"1": gain}, [], [], [], [], [], None, None)
    found = Boundary(["base", "a"], 1, 4, 0, {"base": {"1": Interval(**HALF)}}, [against], 0.95, [])
    assert repr(found).startswith("Boundary(pass@k of 4 tasks. a: ")
    # Each reason names its task: 256 rows without an answer are 256 reasons.
    graded = Graded()
    for row in range(8):
        line = {"row": row, "score": None, "correct": None, "parts": {}, "reason": f"task {row} has no answer"}
        graded.add(line, Grade(None, None))
    assert ["ungraded: others", "3"] in cells(graded._repr_html_())
    assert "'others': 3" in repr(graded)
    assert len(graded.to_json()["reasons_ungraded"]) == 8


def test_rewards_that_are_no_verdicts_are_shown_as_rewards(tmp_path: Path):
    reward = {"mean": 2.5, "low": 2.0, "high": 3.0}
    metrics: dict[str, Any] = {"model": "base", "tasks": 0, "overall": None, "reward": reward, "unjudged": 40}
    accuracy = Accuracy(metrics)
    unread = "base, 40 samples whose reward does not say whether they are correct"
    assert repr(accuracy) == f"Accuracy({unread}: mean reward 2.50 [2.00, 3.00])"
    assert cells(accuracy._repr_html_()) == [["", "mean reward"], ["all", "2.50 [2.00, 3.00]"]]
    (tmp_path / "summary.json").write_text(to_json({"finished": True, "before": metrics, "after": metrics}))
    run = lyceum.Trained(tmp_path)
    assert repr(run).endswith("held-out 2.5 -> 2.5 mean reward)")
    assert ["mean reward", "2.50 [2.00, 3.00]", "2.50 [2.00, 3.00]"] in cells(run._repr_html_())


def test_metrics_are_read_as_a_mapping_is():
    assert dict(Accuracy({"overall": HALF})) == {"overall": HALF}
    assert list(SearchResult({"results": []})) == ["results"]


def test_rollouts_can_be_asked_for_what_is_not_correct(tmp_path: Path):
    samples = [("7#7", True), ("8#8", False), ("?", None)]
    rows = [{"completion": said, "correct": right, "task": '{"answer": "7"}'} for said, right in samples]
    (tmp_path / "rollouts").mkdir()
    table = pa.Table.from_pylist([dict.fromkeys(SCHEMA.names) | row for row in rows], schema=SCHEMA)
    parquet.write_table(table, tmp_path / "rollouts/step-000001.parquet")
    rollouts = lyceum.Trained(tmp_path).rollouts
    # Of objects True, False and None, pandas negates none: TypeError.
    assert list(rollouts.query("not correct").completion) == ["8#8"]
    assert list(rollouts[~rollouts.correct].completion) == ["8#8"]
    assert rollouts.correct.mean() == 0.5
    assert list(rollouts.answer) == ["7"] * 3


def test_a_run_is_found_from_another_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "runs/a").mkdir(parents=True)
    (tmp_path / "runs/a/summary.json").write_text(to_json({"finished": True}))
    monkeypatch.chdir(tmp_path)
    run = lyceum.Trained("runs/a")
    assert run.path == Path("runs/a")
    monkeypatch.chdir(tmp_path / "runs")
    assert run.summary == {"finished": True}
    assert run.model == tmp_path / "runs/a/model"


def test_a_run_that_samples_nothing_plots_its_loss(tmp_path: Path):
    (tmp_path / "metrics.jsonl").write_text(to_json({"step": 1, "loss": 0.5, "lr": 1e-4}) + "\n")
    assert [axes.get_title() for axes in lyceum.Trained(tmp_path).plot().axes] == ["loss"]


def test_an_error_of_the_user_is_its_lines_and_no_traceback():
    error = RecipeError(["steps: got 0; allowed: 1 or more", "name: got none"])
    shown = ["RecipeError: steps: got 0; allowed: 1 or more", "RecipeError: name: got none"]
    assert error._render_traceback_() == shown  # IPython asks for this method
    assert NothingLearnt("no reward differed")._render_traceback_() == ["NothingLearnt: no reward differed"]


def test_progress_is_one_output_that_is_redrawn(monkeypatch, capsys):
    drawn: list[str] = []
    texts: list[str] = []

    class Handle:
        def update(self, shown):
            drawn.append(shown._repr_html_())

    def display(shown, *, display_id):
        assert display_id
        texts.append(repr(shown))
        drawn.append(shown._repr_html_())
        return Handle()

    kernel = SimpleNamespace(kernel=object())
    ipython = SimpleNamespace(get_ipython=lambda: kernel, display=SimpleNamespace(display=display))
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    with Progress(4, title="a<b") as progress:
        assert texts == ["a<b    step 0/4"]  # where a frontend shows no HTML
        progress.step(2, {"reward/mean": 0.5})
        progress.phase("generating")
        progress.say("a line that stays")
    assert "a&lt;b  <progress value='0' max='4'></progress>  step 0/4" in drawn[0]
    assert "step 2/4" in drawn[-1]
    assert "reward 0.500   stopped" in drawn[-1]
    assert capsys.readouterr().err == "a line that stays\n"
    with using("plain"), Progress(1):
        pass
    assert "step 0/1" in capsys.readouterr().err  # where it was asked for, lines as everywhere


def test_results_can_be_pickled(run: lyceum.Trained):
    assert pickle.loads(pickle.dumps(run)).summary == run.summary
    assert pickle.loads(pickle.dumps(Accuracy({"overall": HALF})))["overall"] == HALF


def test_the_names_of_the_module_are_those_of_its_page():
    page = (Path(__file__).parents[2] / "docs/api.md").read_text()
    documented = [line.split(".")[-1] for line in page.splitlines() if line.startswith("::: ")]
    assert sorted(documented) == dir(lyceum)
