import contextlib
import errno
import json
import os
import signal
import socket
import subprocess
import sys
import time
from decimal import Decimal
from pathlib import Path

import pyarrow.parquet as parquet
import pytest
import torch
import yaml
from begun_run import begun_run
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from lyceum.core.tree import Node, Tree
from lyceum.core.types import Continuation, Grade, Origin, Task
from lyceum.run import folder
from lyceum.run.trackers import TensorBoard
from lyceum.utils.atomic_files import atomic_write
from lyceum.utils.errors import RecipeError

torch.set_num_threads(1)

RECIPE = {"seed": 0, "learner": {"lr": 1e-4}, "stages": [{"kind": "online", "steps": 4}], "stop": []}
FINE = ("stages.*.steps", "name")


def start(root, recipe=RECIPE, name="demo", rollouts_every=1, **how):
    return begun_run(root, name, recipe, rollouts_every=rollouts_every, **how)


def read_metrics(path):
    whole = [line for line in (path / "metrics.jsonl").read_text().splitlines(keepends=True) if line.endswith("\n")]
    return [json.loads(line) for line in whole]


def steps(path):
    return [line["step"] for line in read_metrics(path)]


def test_a_new_run_holds_its_recipe_and_what_it_was_made_with(tmp_path):
    with start(tmp_path) as run:
        assert yaml.safe_load((run.path / "recipe.yaml").read_text()) == RECIPE
        summary = json.loads((run.path / "summary.json").read_text())
    assert summary["finished"] is False
    assert summary["versions"]["torch"] == torch.__version__
    assert summary["versions"]["cores"] >= 1
    assert run.path == tmp_path / "demo"


# -- who may write a folder ---------------------------------------------------------------------------------------


def test_a_run_that_is_there_is_not_touched_without_a_word(tmp_path):
    with start(tmp_path) as run:
        run.record(1, {"loss": 1.0})
        run.checkpoint(1, {})
    with pytest.raises(RecipeError, match=r"holds a run, saved at step 1; allowed: resume=true .* overwrite=true"):
        start(tmp_path)
    assert steps(tmp_path / "demo") == [1]


def test_another_recipe_is_refused_by_key(tmp_path):
    start(tmp_path).close()
    other = {"seed": 1, "learner": {"lr": 1e-4, "clip": 1.0}, "stages": [{"kind": "online", "steps": 9}], "stop": []}
    with pytest.raises(RecipeError) as error:
        start(tmp_path, other, resume="auto", may_differ=FINE)
    assert error.value.lines[0].startswith("seed: got 1, but ")
    assert error.value.lines[0].endswith(" began with 0")
    assert error.value.lines[1].startswith("learner.clip: got 1.0, but ")
    assert "another name, or overwrite=true" in error.value.lines[2]
    assert len(error.value.lines) == 3  # the number of steps may differ
    assert yaml.safe_load((tmp_path / "demo" / "recipe.yaml").read_text()) == RECIPE


def test_what_may_differ_is_written_down_anew(tmp_path):
    start(tmp_path).close()
    longer = {**RECIPE, "stages": [{"kind": "online", "steps": 9}]}
    with start(tmp_path, longer, resume=True, may_differ=FINE) as run:
        assert run.resumed
        assert yaml.safe_load((run.path / "recipe.yaml").read_text()) == longer


def test_tuples_and_small_floats_do_not_make_another_recipe(tmp_path):
    # YAML has no tuples, and reads a bare 1e-05 as text.
    start(tmp_path, {"betas": (0.9, 0.95), "lr": 1e-05}).close()
    with start(tmp_path, {"betas": (0.9, 0.95), "lr": 1e-05}, resume=True) as run:
        assert run.resumed


def test_a_finished_run_is_not_written_over(tmp_path):
    with start(tmp_path) as run:
        run.summary({"finished": True})
        run.report.write_text("")
    for resume in (False, True, "auto"):
        # What may differ changes nothing that was done: it is finished all the same.
        for recipe in (RECIPE, {**RECIPE, "stages": [{"kind": "online", "steps": 9}]}):
            with pytest.raises(RecipeError, match="has finished; allowed: another name, or overwrite=true"):
                start(tmp_path, recipe, resume=resume, may_differ=FINE)


def test_a_finished_run_without_its_report_is_resumed_for_that_alone(tmp_path):
    with start(tmp_path) as run:
        run.summary({"finished": True})
    before = (run.path / "summary.json").read_bytes()
    with pytest.raises(RecipeError, match=r"lacks nothing but its report; allowed: resume=true .* to write it"):
        start(tmp_path)
    for resume in (True, "auto"):
        with start(tmp_path, resume=resume) as run:
            assert run.complete
    assert (run.path / "summary.json").read_bytes() == before


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("recipe.yaml", "a: [1", "recipe.yaml: not YAML"),
        ("recipe.yaml", "", "recipe.yaml: got None, should be a mapping"),
        ("recipe.yaml", "stages: 3", "recipe.yaml: stages: got 3, input should be a valid list"),
        ("recipe.yaml", "\0", "recipe.yaml: not YAML"),
    ],
)
def test_a_run_whose_recipe_was_damaged_is_refused_by_the_files_name(tmp_path, file, content, said):
    start(tmp_path).close()
    (tmp_path / "demo" / file).write_text(content)
    with pytest.raises(RecipeError, match=said):
        start(tmp_path, resume=True)
    start(tmp_path, overwrite=True).close()


def test_overwriting_removes_the_run_and_nothing_else(tmp_path):
    with start(tmp_path) as run:
        run.record(1, {"loss": 1.0})
        run.checkpoint(1, {"a": 1})
        run.summary({"before": 3})
        (run.path / "value").mkdir()  # of a stage that the new run may not have
        (run.path / "notes.txt").write_text("mine")
    with start(tmp_path, {"seed": 7}, overwrite=True) as run:
        assert run.restore() is None
        assert "before" not in run.summary()
    left = {path.name for path in run.path.iterdir()}
    assert left == {".lock", "recipe.yaml", "summary.json", "notes.txt"}


def test_a_folder_that_is_no_run_is_not_overwritten(tmp_path):
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / "thesis.tex").write_text("")
    with pytest.raises(RecipeError, match="is not a run"):
        start(tmp_path, overwrite=True)
    assert [path.name for path in (tmp_path / "demo").iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "a b"])
def test_a_name_stays_inside_the_root(tmp_path, name):
    with pytest.raises(RecipeError, match="name: got"):
        begun_run(tmp_path / "runs", name, RECIPE)
    assert list(tmp_path.iterdir()) == []


def test_resuming_nothing_says_so(tmp_path):
    with pytest.raises(RecipeError, match="there is no run in"):
        start(tmp_path, resume=True)
    assert list(tmp_path.iterdir()) == []
    with start(tmp_path, resume="auto") as run:
        assert not run.resumed


def test_two_processes_do_not_write_one_run(tmp_path):
    begin = f"from lyceum.run.folder import Run; Run.claim({str(tmp_path)!r}, 'demo', {RECIPE!r}).begin()"
    code = f"{begin}; print('up', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "up\n"
        with pytest.raises(RecipeError, match=f"is being written by process {other.pid}"):
            start(tmp_path, resume="auto")
        other.kill()
        other.wait()
        start(tmp_path, resume="auto").close()  # the dead hold nothing


def test_a_child_that_outlives_a_killed_run_does_not_hold_it(tmp_path):
    # A flock would pass to the child: the run could not be resumed before the last verifier's process has ended.
    reader, writer = os.pipe()
    parent = os.fork()
    if parent == 0:
        start(tmp_path)
        child = os.fork()
        if child:
            os.write(writer, str(child).encode())
        time.sleep(60)
        os._exit(0)
    child = int(os.read(reader, 20))
    try:
        os.kill(parent, signal.SIGKILL)
        os.waitpid(parent, 0)
        start(tmp_path, resume="auto").close()
    finally:
        os.kill(child, signal.SIGKILL)


def test_one_process_does_not_hold_a_run_twice(tmp_path):
    with start(tmp_path), pytest.raises(RecipeError, match=f"process {os.getpid()}"):
        start(tmp_path, resume="auto")
    start(tmp_path, resume="auto").close()


# -- what is recorded ---------------------------------------------------------------------------------------------


def test_figures_that_json_lacks_are_null_and_say_which(tmp_path):
    with start(tmp_path) as run:
        run.record(1, {"loss": float("nan"), "norm": torch.tensor(float("inf")), "stage": "rl", "n": 3, "x": None})
        (line,) = read_metrics(run.path)
    assert line["loss"] is None
    assert line["loss/nonfinite"] == "nan"
    assert line["norm"] is None
    assert line["norm/nonfinite"] == "inf"
    assert (line["stage"], line["n"], line["x"]) == ("rl", 3, None)
    assert line["time"] >= 0


def test_a_figure_that_is_no_figure_is_refused_by_name(tmp_path):
    with start(tmp_path) as run, pytest.raises(TypeError, match="rewards: got a list"):
        run.record(1, {"rewards": [1, 2]})


def test_steps_only_grow(tmp_path):
    with start(tmp_path) as run:
        run.record(3, {})
        with pytest.raises(ValueError, match="got step 3 after step 3"):
            run.record(3, {})


def test_a_line_says_the_seconds_since_the_line_before(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    with start(tmp_path) as run:
        for step in (1, 2):
            with run.timed("train"):
                now[0] += 2 * step
            run.record(step, {})
        with contextlib.suppress(KeyError), run.timed("train"):
            now[0] += 1
            raise KeyError  # time spent counts however it ends
        run.summary({})
        first, second = read_metrics(run.path)
        # 2 s, then 4 s, at 2 s and 6 s of running; 7 s in all. Summing up instead of differing would give 6 at step 2.
        assert (first["seconds/train"], second["seconds/train"]) == (2.0, 4.0)
        assert (first["time"], second["time"]) == (2.0, 6.0)
        assert run.summary()["seconds"] == {"checkpoint": 0.0, "train": 7.0}


def test_a_resumed_run_reads_as_if_never_interrupted(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])

    def train(run, first, last):
        for step in range(first, last + 1):
            with run.timed("train"):
                now[0] += 1
            run.record(step, {"loss": 1 / step})
            run.rollouts(step, [tree_of(["1"])], None, decode)
            if step == 3:
                run.checkpoint(step, {"w": torch.tensor(step)})

    with start(tmp_path) as run:
        train(run, 1, 5)
    with open(run.path / "metrics.jsonl", "a") as file:
        file.write('{"step": 6, "lo')  # killed while writing
    now[0] += 1000
    with start(tmp_path, resume=True) as run:
        with pytest.raises(RuntimeError, match="call restore"):
            run.record(4, {})
        found = run.restore()
        assert found is not None
        step, state = found
        assert (step, state) == (3, {"w": torch.tensor(3)})
        assert steps(run.path) == [1, 2, 3]
        assert sorted(path.name for path in (run.path / "rollouts").iterdir()) == [
            f"step-00000{i}.parquet" for i in (1, 2, 3)
        ]
        train(run, 4, 5)
    with start(tmp_path, name="never") as never:
        train(never, 1, 5)
    assert (run.path / "metrics.jsonl").read_text() == (never.path / "metrics.jsonl").read_text()
    curve = EventAccumulator(str(run.path / "tensorboard")).Reload().Scalars("loss")
    assert [event.step for event in curve] == [1, 2, 3, 4, 5]  # unpurged, 4 and 5 would be there twice


def test_curves_of_a_run_that_is_resumed_within_the_second_are_read_in_order(tmp_path, monkeypatch):
    # Readers sort files by name: second, host, ... The second writer's name would come first.
    for host, step, gone_back in (("b", 1, False), ("a", 2, True)):
        monkeypatch.setattr(socket, "gethostname", lambda host=host: host)
        board = TensorBoard(tmp_path)
        board.draw(step, {"loss": 1.0}, gone_back=gone_back)
        board.close()
    assert [event.step for event in EventAccumulator(str(tmp_path)).Reload().Scalars("loss")] == [1, 2]
    assert len(list(tmp_path.iterdir())) == 2


def test_what_is_timed_before_restoring_adds_up(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    for again in (False, True):
        with start(tmp_path, resume=again) as run:
            with run.timed("load"):
                now[0] += 2
            run.restore()
            if not again:
                run.checkpoint(0, {})
    assert run.seconds["load"] == 4.0  # loaded twice; taking over what was saved would say 2


def test_resumed_before_the_first_checkpoint_it_begins_again(tmp_path):
    with start(tmp_path) as run:
        run.record(1, {})
        run.rollouts(1, [tree_of(["1"])], None, decode)
    with start(tmp_path, resume="auto") as run:
        assert run.restore() is None
        assert steps(run.path) == []
        assert list((run.path / "rollouts").iterdir()) == []
        run.record(1, {})


def test_a_kill_before_old_checkpoints_are_removed_leaves_none_too_many(tmp_path, monkeypatch):
    with start(tmp_path) as run, monkeypatch.context() as killed:
        killed.setattr("lyceum.run.checkpoint.prune", lambda *_: None)
        for step in (1, 2, 3):
            run.checkpoint(step, {})
    with start(tmp_path, resume=True) as run:
        run.restore()
    assert sorted(path.name for path in run.checkpoints.iterdir()) == ["step-000002", "step-000003"]


def test_lines_that_went_missing_are_told(tmp_path):
    with start(tmp_path) as run:
        run.record(1, {})
        run.checkpoint(1, {})
    (run.path / "metrics.jsonl").unlink()
    with (
        start(tmp_path, resume=True) as run,
        pytest.warns(UserWarning, match=r"metrics\.jsonl: damaged: 0 lines .* 1 were"),
    ):
        run.restore()


def test_a_line_without_its_end_is_not_there_yet(tmp_path):
    with start(tmp_path) as run:
        run.record(1, {})
        run.record(2, {})
        run.checkpoint(2, {})
    file = run.path / "metrics.jsonl"
    file.write_bytes(file.read_bytes()[:-1])  # whole JSON, but whatever is appended would stand in the same line
    assert steps(run.path) == [1]
    with start(tmp_path, resume=True) as run:
        with pytest.warns(UserWarning, match="1 lines up to step 2, 2 were written"):
            run.restore()
        run.record(3, {})
    assert steps(run.path) == [1, 3]


def test_a_summary_gathers_and_a_nan_in_it_is_null(tmp_path):
    with start(tmp_path) as run:
        run.summary({"before": {"overall": {"mean": 0.5}}})
        run.summary({"after": {"mean": float("nan")}, "steps": torch.tensor(3)})
        summary = json.loads((run.path / "summary.json").read_text())
        run.examples([{"task_id": "a", "answer": 3}])
        assert json.loads((run.path / "examples.json").read_text()) == [{"task_id": "a", "answer": 3}]
    assert summary["before"] == {"overall": {"mean": 0.5}}
    assert summary["after"] == {"mean": None}
    assert summary["steps"] == 3


def test_a_full_disk_names_the_file_and_leaves_the_old_content(tmp_path, monkeypatch):
    with start(tmp_path) as run:
        run.summary({"steps": 1})

        def full(_):
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match=r"no space left on the disk \(.* free\).*summary\.json"):
            run.summary({"steps": 2})
        monkeypatch.undo()
        assert run.summary()["steps"] == 1
    assert not list(run.path.glob(".partial-*"))


def test_an_atomic_write_that_fails_leaves_what_was_there(tmp_path, monkeypatch):
    file = tmp_path / "a"
    atomic_write(file, "old")
    atomic_write(file, b"new")
    assert file.read_text() == "new"
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(PermissionError(errno.EACCES, "denied")))
    with pytest.raises(PermissionError):
        atomic_write(file, "newest")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert file.read_text() == "new"


# -- rollouts -----------------------------------------------------------------------------------------------------

WORDS = {1: "2+2=", 2: "4", 3: "5", 4: " hint", 5: ".", 6: "\ud800"}


def decode(tokens):
    return "".join(WORDS[token] for token in tokens)


def drawn(node, tokens, logprobs):
    return node.add_drawn(Continuation(tokens, logprobs, logprobs, [0] * len(tokens), "stop"), decode(tokens))


def tree_of(answers, level: object = 2):
    root = Node(None, [1, 5], Origin.PROMPT, text="2+2=.")
    tree = Tree(Task("sum-1", (), columns={"level": level}), [root], metadata={"tier": 1})
    for i, answer in enumerate(answers):
        leaf = drawn(root, [2 if answer == "4" else 3], [-0.5 * (i + 1)])
        leaf.grade = Grade(float(answer == "4"), answer == "4", parts={"exact": 1.0})
    return tree


def written(run, step, trees, advantage, **how):
    path = run.rollouts(step, trees, advantage, decode, **how)
    assert path is not None
    return parquet.read_table(path).to_pylist()


def test_a_row_holds_its_completion_token_by_token(tmp_path):
    root = Node(None, [1, 5], Origin.PROMPT, text="2+2=.")
    hint = root.add([4], Origin.HINT, " hint")
    wrong, right = drawn(root, [3], [-1.0]), drawn(hint, [2, 5], [-0.25, -0.5])
    wrong.grade = Grade.ungraded("timed out")
    right.grade = Grade(1.0, True, parts={"exact": 1.0})
    tree = Tree(Task("sum-1", (), columns={"level": 2}), [root], metadata={"tier": 1, "odd": {1}})
    # One graded row of five tokens: the prompt's two, the hint's, and two that the policy wrote.
    advantage = torch.tensor([[9.0, 9, 9, 1, 2]])
    with start(tmp_path) as run:
        first, second = sorted(written(run, 1, [tree], advantage), key=lambda row: row["tokens"])
    assert second == {
        **{
            "step": 1,
            "task_id": "sum-1",
            "level": "2",
            "tree": 0,
            "row": 0,
            "prompt": "2+2=.",
            "completion": " hint4.",
        },
        **{"outcome": 1.0, "correct": True, "reason": None, "parts": '{"exact": 1.0}', "tokens": 3, "finish": "stop"},
        "logged": None,
        "advantage": 1.5,  # of the two tokens the policy wrote; with the hint's it would be 4
        "nodes": [0, 1, 2],  # parents first, in the order they were added: the wrong answer is 3
        "node_texts": ["2+2=.", " hint", "4."],
        "node_stats": None,
        "token_texts": [" hint", "4", "."],
        "token_logprobs": [None, -0.25, -0.5],
        "token_advantages": [9.0, 1.0, 2.0],
        "metadata": '{"tier": 1, "odd": "{1}"}',
        "task": '{"answer": null, "columns": {"level": 2}}',
    }
    assert (first["outcome"], first["correct"], first["reason"], first["row"]) == (None, None, "timed out", None)
    assert (first["advantage"], first["token_advantages"], first["nodes"]) == (None, [None], [0, 3])


def test_rows_of_the_forest_are_counted_over_all_trees_without_the_ungraded(tmp_path):
    trees = [tree_of(["4", "5"]), tree_of(["5", "4"])]
    ungraded = trees[0].trajectories[0]
    ungraded.grade = None
    with start(tmp_path) as run:
        rows = written(run, 1, trees, torch.tensor([[0.0, 0, 1], [0, 0, 2], [0, 0, 3]]))
    assert [(row["tree"], row["row"], row["advantage"]) for row in rows] == [
        (0, None, None),
        (0, 0, 1),
        (1, 1, 2),
        (1, 2, 3),
    ]


def test_advantages_of_other_trees_are_refused(tmp_path):
    with start(tmp_path) as run, pytest.raises(ValueError, match="3 rows of advantages for 2 graded"):
        run.rollouts(1, [tree_of(["4", "5"])], torch.zeros(3, 3), decode)


def test_only_some_steps_and_whole_trees_are_written(tmp_path, monkeypatch):
    trees = [tree_of(["4", "5", "5"]) for _ in range(3)]
    monkeypatch.setattr(folder, "MOST_TRAJECTORIES", 7)
    with start(tmp_path, rollouts_every=2) as run:
        assert run.rollouts(1, trees, None, decode) is None
        assert len(written(run, 3, trees, None, always=True)) == 6
        assert [row["tree"] for row in written(run, 2, trees, None)] == [0, 0, 0, 1, 1, 1]
    monkeypatch.setattr(folder, "MOST_TRAJECTORIES", 2)
    with start(tmp_path, overwrite=True) as run:
        assert len(written(run, 1, trees, None)) == 2  # a tree that is too large is cut, not left out


def test_no_trees_and_no_trajectories_are_a_table_all_the_same(tmp_path):
    with start(tmp_path) as run:
        assert written(run, 1, [], None) == []
        assert written(run, 2, [tree_of([])], None) == []


def test_what_is_not_finite_is_null_in_every_column(tmp_path):
    def read(text):
        return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))

    nan, inf = float("nan"), float("inf")
    root = Node(None, [1], Origin.PROMPT)
    leaf = drawn(root, [2, 3], [nan, -0.5])
    leaf.grade = Grade(1e308, parts={"a": nan, "b": inf, "c": 1e308})
    leaf.value, leaf.stats = nan, {"log": {"x": nan, "y": [Decimal("1.5"), 10**400]}}
    tree = Tree(Task("t", ()), [root], metadata={"rate": inf})
    with start(tmp_path) as run:
        (row,) = written(run, 1, [tree], torch.tensor([[0.0, nan, 3.0]]))
    assert (row["outcome"], row["advantage"]) == (1e308, 3.0)
    assert (row["token_logprobs"], row["token_advantages"]) == ([None, -0.5], [None, 3.0])
    assert read(row["parts"]) == {"a": None, "b": None, "c": 1e308}
    assert read(row["node_stats"][1]) == {"log": {"x": None, "y": [1.5, None]}, "value": None}
    assert read(row["metadata"]) == {"rate": None}


def test_text_that_no_file_takes_is_escaped(tmp_path):
    tree = tree_of(["4"], level=None)
    drawn(tree.root, [6], [-1.0])
    with start(tmp_path) as run:
        rows = written(run, 1, [tree], None)
    assert rows[1]["completion"] == rows[1]["token_texts"][0] == "\\ud800"
    assert rows[0]["level"] is None


# -- killed at any moment -----------------------------------------------------------------------------------------


def trained(root: Path, last: int) -> None:
    """A little run whose weight is a function of every step before, checkpointed on each third."""
    with start(root, resume="auto") as run:
        found = run.restore()
        step, state = found or (0, {"w": torch.tensor(1, dtype=torch.int64)})
        w = state["w"]
        while step < last:
            step += 1
            w = (w * 1_103_515_245 + step) % 2**31
            run.record(step, {"w": int(w), "time": 0})
            run.rollouts(step, [tree_of(["4"])], None, decode)
            if step % 3 == 0:
                run.checkpoint(step, {"w": w})
        run.summary({"finished": True})


def test_killed_again_and_again_it_ends_as_if_never_interrupted(tmp_path):
    trained(tmp_path / "never", 60)
    deaths = 0
    for attempt in range(200):
        child = os.fork()
        if child == 0:
            try:
                trained(tmp_path / "killed", 60)
                os._exit(0)
            finally:
                os._exit(1)
        if attempt < 12:
            time.sleep(0.03 + 0.02 * (attempt % 5))
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        assert status in (0, signal.SIGKILL)
        deaths += status != 0
        if status == 0:
            break
    assert deaths > 0

    def left(name):
        # Phases differ in their seconds, nothing else may.
        lines = read_metrics(tmp_path / name / "demo")
        return [{key: value for key, value in line.items() if not key.startswith("seconds/")} for line in lines]

    assert left("killed") == left("never")
    rollouts = [
        sorted(path.name for path in (tmp_path / name / "demo" / "rollouts").iterdir()) for name in ("killed", "never")
    ]
    assert rollouts[0] == rollouts[1]
    saved = [
        sorted(path.name for path in (tmp_path / name / "demo" / "checkpoints").iterdir())
        for name in ("killed", "never")
    ]
    assert saved[0] == saved[1] == ["step-000057", "step-000060"]
