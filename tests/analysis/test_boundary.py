"""Two models by their samples of the same tasks: on counts worked by hand, on files, and sampled by the command."""

import json
import math
from itertools import count

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lyceum
from lyceum.analysis.boundary import plan as boundary_plan
from lyceum.analysis.boundary.plan import labels_of
from lyceum.analysis.boundary.result import Crossing, boundary, crossings, pass_curve, sentences, shown_ks
from lyceum.analysis.boundary.samples import ModelSamples, TaskSamples, read_samples
from lyceum.cli import main
from lyceum.evaluation.statistics import pass_at_k
from lyceum.tasks.rows import read_rows
from lyceum.utils.errors import NothingGraded, RecipeError

pytestmark = pytest.mark.usefixtures("small_scratch")


def samples(label, hint=None, level=None, **correct):
    """``A="1100"``: two correct samples and two incorrect ones of task A; ``-`` could not be graded."""
    verdict = {"1": True, "0": False, "-": None}
    return [TaskSamples(task, level, hint, tuple(verdict[c] for c in text)) for task, text in correct.items()]


def model(label, *of):
    return ModelSamples(label, [task for each in of for task in each], {})


def compared(base, trained):
    return boundary([model("base", samples("base", **base)), model("trained", samples("trained", **trained))])


@given(st.integers(1, 40), st.data())
def test_the_curve_is_pass_at_k_for_every_k(n, data):
    c, most = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    assert pass_curve(n, c, most) == pytest.approx([pass_at_k(n, c, k) for k in range(1, most + 1)], abs=1e-12)


def test_a_sharpened_model_is_ahead_at_one_sample_and_behind_at_three():
    # base: 1 of 4 on both tasks, so 1/4, 1/2, 3/4, 1. trained: always and never, so 1/2 for every k. Equal at 2.
    found = compared({"A": "1000", "B": "0001"}, {"A": "1111", "B": "0000"})
    assert [found.pass_at["base"][k].mean for k in ("1", "2", "4")] == pytest.approx([1 / 4, 1 / 2, 1])
    assert [found.pass_at["trained"][k].mean for k in ("1", "2", "4")] == pytest.approx([1 / 2] * 3)
    [against] = found.against
    assert [against.difference[k].mean for k in ("1", "2", "4")] == pytest.approx([1 / 4, 0, -1 / 2])
    assert against.crossings == [Crossing(3, "base")]
    assert sentences(found)[0].endswith("base is ahead from 3 samples on.")


def test_tasks_are_parted_by_who_solves_them():
    found = compared(
        {"A": "10", "B": "10", "C": "00", "D": "00", "E": "00"}, {"A": "11", "B": "00", "C": "01", "D": "00", "E": "00"}
    )
    [against] = found.against
    sets = (against.both, against.only_base, against.only_model, against.neither)
    assert [[task.task for task in tasks] for tasks in sets] == [["A"], ["B"], ["C"], ["D", "E"]]
    assert against.only_model[0].correct == {"base": (0, 2), "trained": (1, 2)}
    assert against.expansion.mean == pytest.approx(1 / 3)  # of C, D, E
    assert against.shrinkage.mean == pytest.approx(1 / 2)  # of A, B
    assert found.unsolved == ["C", "D", "E"]


def test_a_base_that_solves_everything_leaves_nothing_to_expand():
    [against] = compared({"A": "10"}, {"A": "00"}).against
    assert against.expansion is None
    assert against.shrinkage.mean == 1.0


def test_all_metrics_are_over_the_tasks_of_which_both_have_all_samples():
    # C lacks a verdict under one model, D is not there under the other: counted, and in no metric.
    found = compared({"A": "0000", "B": "0001", "C": "1111", "D": "1111"}, {"A": "0001", "B": "0001", "C": "111-"})
    assert (found.tasks, found.left_out, found.samples) == (2, 2, 4)
    assert found.pass_at["base"]["1"].mean == pytest.approx(1 / 8)


def test_a_task_that_stays_unsolved_in_64_samples_may_be_solved_once_in_22():
    found = boundary([model("base", samples("base", A="0" * 64))])
    assert found.undetected == pytest.approx(0.0457, abs=1e-4)  # (1 - p)^64 = 0.05
    assert found.against == []


def test_samples_without_a_task_in_common_are_refused():
    with pytest.raises(RecipeError, match="no graded task in common"):
        compared({"A": "1"}, {"B": "1"})
    with pytest.raises(RecipeError, match="no task with 2 graded samples in common"):
        compared({"A": "1-", "B": "11"}, {"A": "11", "B": "1-"})


def test_equal_stretches_are_no_crossing():
    base, trained = np.array([0.1, 0.5, 0.5, 0.6]), np.array([0.2, 0.5, 0.5, 0.7])
    assert crossings(base, trained, ("base", "trained")) == []
    assert crossings(trained, base, ("base", "trained")) == []
    again = np.array([0.2, 0.4, 0.5, 0.7])
    assert crossings(base, again, ("base", "trained")) == [Crossing(2, "base"), Crossing(4, "trained")]


def test_ks_are_powers_of_two_and_the_last():
    assert shown_ks(1) == [1]
    assert shown_ks(8) == [1, 2, 4, 8]
    assert shown_ks(10) == [1, 2, 4, 8, 10]


def test_help_is_the_accuracy_gained_on_the_tasks_that_have_hints():
    # A: base 1/4 -> 2/4, trained 2/4 -> 2/4. B has no hints and is in no row of them.
    plain = {"A": "1000", "B": "1111"}
    found = boundary(
        [
            model("base", samples("base", **plain), samples("base", "planning", A="1100")),
            model("trained", samples("trained", A="1100", B="1111"), samples("trained", "planning", A="0011")),
        ]
    )
    [help] = found.help
    assert (help.tier, help.level, help.tasks) == ("planning", None, 1)
    assert {label: of.mean for label, of in help.accuracy.items()} == {"base": 0.5, "trained": 0.5}
    assert {label: of.mean for label, of in help.gain.items()} == {"base": 0.25, "trained": 0.0}
    assert help.difference["trained"].mean == pytest.approx(-0.25)


def test_help_is_told_by_level():
    levels = [samples("base", level=level, **{f"{level}": "10"}) for level in ("2", "10")]
    hinted = [samples("base", "planning", level, **{f"{level}": "11"}) for level in ("2", "10")]
    found = boundary([model("base", *levels, *hinted)])
    assert [(help.level, help.tasks) for help in found.help] == [("2", 1), ("10", 1), (None, 2)]


def test_labels_are_the_last_parts_of_paths_or_what_follows_the_at():
    given = ["base", "runs/demo", "runs/demo/model", "other/model", "owner/Name-1.5B", "x/a.jsonl", "base@twin"]
    assert [*labels_of(given)] == ["base", "demo", "model", "model-2", "Name-1.5B", "a", "twin"]
    assert labels_of(["base@twin"]) == {"twin": "base"}
    with pytest.raises(RecipeError, match="label: got"):
        labels_of(["base@-x"])


# --- files of samples -------------------------------------------------------------------------------------------------


def written(file, *lines):
    file.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
    return file


def test_lines_of_one_task_are_added_up(tmp_path):
    file = written(
        tmp_path / "a.jsonl",
        {"id": 3, "correct": True, "level": 2},
        {"task": "3", "correct": [False, None]},
        {"task": "3", "hint": "planning", "correct": [True]},
    )
    plain, hinted = read_samples("models", file, "a").tasks
    assert plain == TaskSamples("3", "2", None, (True, False, None))
    assert (hinted.hint, hinted.accuracy) == ("planning", 1.0)


def test_samples_that_were_written_are_read_again(tmp_path):
    right = (boundary_plan.Scored([5, 6, 7], 2, 3),)
    before = ModelSamples("a", [TaskSamples("t", "1", None, (True, None), right)], {"samples": 2})
    before.write(tmp_path / "a.jsonl")
    assert read_samples("output", tmp_path / "a.jsonl", "a") == before


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("", "holds no samples"),
        ("{", "line 1 of .* not JSON"),
        ("[1]", "allowed: an object with 'task'"),
        ('{"task": "a"}', "allowed: an object with 'task'"),
        ('{"task": true, "correct": true}', "allowed: an object with 'task'"),
        ('{"task": "a", "correct": 1}', "correct: got 1; allowed: true, false, null"),
        ('{"task": "a", "correct": [true, "x"]}', "correct: got 'x'"),
        ('{"task": "a", "correct": true, "level": []}', r"level: got \[\]"),
        ('{"task": "a", "correct": true, "right": [[0, [1, 2]]]}', "right: got"),
        ('{"task": "a", "correct": true, "right": [[1, ["x", 2]]]}', "right: got"),
    ],
)
def test_other_files_are_refused_with_their_line(tmp_path, line, told):
    with pytest.raises(RecipeError, match=told):
        read_samples("models", written(tmp_path / "a.jsonl", line), "a")


def test_files_alone_are_compared_without_a_model(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(boundary_plan, "load_policy", lambda settings: pytest.fail("a model was loaded"))
    written(tmp_path / "before.jsonl", {"task": "<b>", "correct": [True, False, False, False]})
    written(tmp_path / "after.jsonl", {"task": "<b>", "correct": [True, True, True, True]})
    assert main(["boundary", "before.jsonl", "after.jsonl", "--output", "study", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["pass_at"]["after"]["1"]["mean"] == 1.0
    page = (tmp_path / "study/boundary.html").read_text()
    assert "&lt;b&gt;" in page
    assert "<b>: before" not in page
    assert "http" not in page.split("</style>")[1]
    assert main(["boundary", "before.jsonl", "after.jsonl", "--output", "study"]) == 0
    assert "the curves do not cross" in capsys.readouterr().out
    for further, told in (
        (["--tasks", "chain"], "files of samples alone, which tasks does not apply to"),
        (["--unsolved", "u.jsonl"], "which unsolved does not apply to"),
        (["seed=3"], "which a key does not apply to"),
        (["--output", "."], "output: got '.', which holds"),
    ):
        assert main(["boundary", "before.jsonl", "after.jsonl", *further]) == 2
        assert told in capsys.readouterr().err


# --- sampled here -----------------------------------------------------------------------------------------------------

SHORT = ("--n", "4", "--samples", "4", "--max-tokens", "40", "tasks.levels=[1,7]")


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    folder = tmp_path_factory.mktemp("boundary")
    words = ["base", "base@twin", *SHORT, "--tasks", "chain", "--hints", "solution"]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["boundary", *words, "--output", "study", "--unsolved", "hard.jsonl"]) == 0
    return folder, words


def test_a_model_given_twice_draws_other_samples_of_the_same_tasks(study):
    folder, _ = study
    found = json.loads((folder / "study/boundary.json").read_text())
    first, second = (read_samples("models", folder / f"study/{name}.jsonl", name) for name in ("base", "twin"))
    assert [*first.by_task(None)] == [*second.by_task(None)]
    assert [task.right for task in first.tasks] != [task.right for task in second.tasks]
    [against] = found["against"]
    assert sum(len(against[name]) for name in ("both", "only_base", "only_model", "neither")) == found["tasks"] == 4
    assert found["settings"]["hints"] == ["solution"]
    assert {help["tier"] for help in found["help"]} == {"solution"}


def test_samples_are_those_of_an_evaluation_and_perplexity_that_of_the_engine(study):
    folder, _ = study
    found = json.loads((folder / "study/boundary.json").read_text())
    evaluated = lyceum.evaluate(
        "base",
        "chain",
        ["tasks.levels=[1,7]"],
        k=(1, 4),
        n=4,
        greedy=False,
        max_completion_tokens=40,
        progress="silent",
    )
    for k in ("1", "4"):
        assert found["pass_at"]["base"][k] == pytest.approx(evaluated["pass_at"][k])
    perplexities = []
    for tree in evaluated.trees:
        right = [leaf for leaf in tree.trajectories if leaf.grade.verdict][: boundary_plan.RIGHT_ANSWERS]
        perplexities += [math.exp(-np.mean(leaf.model_logprob)) for leaf in right]
    assert found["perplexity"]["base"]["answers"] == len(perplexities) > 0
    assert found["perplexity"]["base"]["median"] == pytest.approx(np.median(perplexities), rel=1e-4)


@pytest.mark.parametrize("numbers", [(0.0, 1.0), (0.0, 0.5, 1.0)])
def test_numbers_that_are_not_all_0_or_1_judge_nothing_as_in_an_evaluation(numbers):
    drawn = count()

    def score(completion):
        return numbers[next(drawn) % len(numbers)]

    how = {"tasks": "chain", "n": 2, "samples": 3, "reward": score, "max_completion_tokens": 6}
    if len(numbers) == 2:
        found = lyceum.boundary(["scratch"], **how)
        assert found.pass_at["scratch"]["1"].mean == 0.5
    else:  # a 1 beside a 0.5 is no correct answer
        with pytest.raises(NothingGraded, match=r"scratch: none of its samples has a verdict:\s.*reward\.correct_at"):
            lyceum.boundary(["scratch"], **how)


def test_the_unsolved_tasks_can_be_trained_on(study):
    folder, _ = study
    found = json.loads((folder / "study/boundary.json").read_text())
    rows = read_rows(str(folder / "hard.jsonl"), subset=None, split="train", key="tasks")
    assert len(rows) == len(found["unsolved"]) > 0
    assert {row["unsolved_samples"] for row in rows} == {4}
    again = lyceum.evaluate(
        "base",
        folder / "hard.jsonl",
        k=(1,),
        n=1,
        greedy=False,
        max_completion_tokens=8,
        progress="silent",
        reward={"kind": "exact", "extract": {"after": "#"}},
    )
    assert again["ungraded"] == 0


def test_the_same_command_does_not_sample_again(study, monkeypatch, capsys):
    folder, words = study
    monkeypatch.chdir(folder)
    before = (folder / "study/boundary.json").read_text()
    with monkeypatch.context() as patch:
        patch.setattr(boundary_plan.BoundaryPlan, "_sampled", lambda *given: pytest.fail("sampled again"))
        assert main(["boundary", *words, "--output", "study"]) == 0
        assert (folder / "study/boundary.json").read_text() == before
        assert main(["boundary", "study/base.jsonl", "study/twin.jsonl", "--json"]) == 0
    capsys.readouterr()
    assert main(["boundary", *words, "--seed", "1", "--output", "study"]) == 2
    assert "was sampled with another seed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["base=3"], "models: got 0"),
        (["base", "nowhere/else/x"], "model.path: got 'nowhere/else/x'"),
        (["base", "none.jsonl"], "models: 'none.jsonl' cannot be read"),
        (["base", "--hints", "plans"], "hints: got 'plans' (did you mean 'planning'?)"),
        (["base", "--samples", "0"], "samples: got 0"),
        (["base", "--unsolved", "x.txt"], "allowed: a file named .jsonl"),
        (["base", "--unsolved", "notes.jsonl"], "was not written by lyceum boundary"),
        (["base", "--output", "full"], "output: 'full' holds other files (mine.txt)"),
        (["base", "credit=group"], "credit: unknown key"),
    ],
)
def test_what_cannot_work_is_refused_before_a_model_loads(tmp_path, monkeypatch, capsys, words, told):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(boundary_plan, "load_policy", lambda settings: pytest.fail("a model was loaded"))
    (tmp_path / "notes.jsonl").write_text('{"mine": 1}\n')
    (tmp_path / "full").mkdir()
    (tmp_path / "full/mine.txt").write_text("x")
    assert main(["boundary", *words]) == 2
    assert told in capsys.readouterr().err
    assert (tmp_path / "notes.jsonl").read_text() == '{"mine": 1}\n'


def test_samples_of_other_tasks_of_the_same_names_are_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name, seed in (("a", 0), ("b", 1)):
        written(
            tmp_path / f"{name}.jsonl", {"sampled_with": {"seed": seed}}, {"task": "chain/heldout/0", "correct": True}
        )
    assert main(["boundary", "a.jsonl", "b.jsonl"]) == 2
    assert "the samples of b are of seed 1, those of a of 0" in capsys.readouterr().err


def test_a_stopped_study_says_what_is_kept(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def stopped(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(boundary_plan.BoundaryPlan, "_loaded", stopped)
    assert main(["boundary", "base", *SHORT, "--output", "study"]) == 130
    assert "kept in study; the same command goes on from there" in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "study").exists()


def test_a_model_that_fails_after_another_was_sampled_is_no_refusal(tmp_path, monkeypatch, capsys):
    # Exit code 2 says that nothing was changed; the other model's samples are kept.
    monkeypatch.chdir(tmp_path)

    def load(plan, planned):
        if planned.label == "broken":
            raise RecipeError("model.path: weights with NaN")
        return boundary_plan.load_policy(planned.measurement.recipe.model)

    monkeypatch.setattr(boundary_plan.BoundaryPlan, "_loaded", load)
    assert main(["boundary", "base@broken", "base", *SHORT, "--output", "study"]) == 1
    assert "weights with NaN" in capsys.readouterr().err
    assert [file.name for file in (tmp_path / "study").iterdir()] == ["base.jsonl"]
    assert main(["boundary", "base@broken", *SHORT, "--output", "other"]) == 2
    assert not (tmp_path / "other").exists()


def test_samples_of_none_of_the_tasks_are_refused_before_a_model_loads(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(boundary_plan, "load_policy", lambda settings: pytest.fail("a model was loaded"))
    written(tmp_path / "a.jsonl", {"task": "mine", "correct": True})
    assert main(["boundary", "base", "a.jsonl", *SHORT]) == 2
    assert "has samples of none of the 4 tasks" in capsys.readouterr().err
