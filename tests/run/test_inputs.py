"""What a run reads is remembered by checksums: a resumed run says which of it changed."""

import json
import os

import pytest

from lyceum.recipe.schema import load_recipe
from lyceum.run.files import PIECE, WHOLE, changed, checksums
from lyceum.tasks.dataset import Dataset
from lyceum.training.train import train
from lyceum.utils.errors import Interrupted

REWARD = "def graded(completion, answer):\n    return float(completion[-1:] == answer[-1:])\n"


@pytest.fixture
def files(tmp_path):
    rows, reward = tmp_path / "rows.jsonl", tmp_path / "own_reward.py"
    rows.write_text("".join(json.dumps({"prompt": f"{n}+1=", "answer": str(n + 1)}) + "\n" for n in range(10, 50)))
    reward.write_text(REWARD)
    return rows, reward


def stopped_after_a_step(tmp_path, files, **how):
    rows, reward = files
    recipe = load_recipe(
        "grpo", [f"tasks={rows}", f"reward={reward}:graded", "steps=9", "tasks_per_step=2", "rollout.samples=2",
                 "rollout.sampling.max_completion_tokens=4", "evaluate.n=0", f"output={tmp_path}/runs", "name=r"],
    )  # fmt: skip
    with pytest.raises(Interrupted):
        train(recipe, interrupted=iter([True]).__next__, **how)


@pytest.mark.parametrize(("which", "key"), [(0, "tasks.path"), (1, "reward.function")])
def test_a_run_that_resumes_on_other_rows_or_another_reward_says_which(tmp_path, files, caplog, which, key):
    stopped_after_a_step(tmp_path, files)
    stopped_after_a_step(tmp_path, files, resume=True)
    assert "has changed" not in caplog.text
    file = files[which]
    # As many rows and bytes as before, and as old.
    old, times = file.read_text(), file.stat()
    file.write_text(old.replace("+1=", "+2=") if which == 0 else old.replace("== a", "!= a"))
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert file.stat().st_size == times.st_size
    stopped_after_a_step(tmp_path, files, resume=True)
    [line] = [line for line in caplog.messages if "has changed" in line]
    assert line.startswith(f"{key}: {file} has changed since the run began")


def test_a_large_file_is_read_in_pieces_and_its_size_counts(tmp_path):
    file = tmp_path / "rows.jsonl"
    with file.open("wb") as out:
        out.truncate(WHOLE + 10 * PIECE)
    task = Dataset.model_construct(path=str(file))
    first = checksums(task)
    for at in (0, WHOLE + 10 * PIECE - 1):
        with file.open("r+b") as out:
            out.seek(at)
            out.write(b"x")
        assert changed(first, checksums(task)) == ["path"]
        first = checksums(task)
    with file.open("ab") as out:
        out.write(b"\0")
    assert changed(first, checksums(task)) == ["path"]


def test_a_folder_counts_by_its_files_and_a_pipe_is_not_read(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "a.jsonl").write_text("1")
    task = Dataset.model_construct(path=str(folder))
    first = checksums(task)
    (folder / "a.jsonl").rename(folder / "b.jsonl")
    assert changed(first, checksums(task)) == ["path"]
    os.mkfifo(folder / "pipe")
    (folder / "b.jsonl").rename(folder / "a.jsonl")
    (folder / "pipe").unlink()
    assert changed(first, checksums(task)) == []
    os.mkfifo(tmp_path / "pipe")
    assert checksums(Dataset.model_construct(path=str(tmp_path / "pipe")))  # returns


def test_what_was_not_known_before_has_not_changed():
    assert changed({}, {"tasks.path": "1"}) == []
    assert changed({"tasks.path": "2", "reward.function": "1"}, {"tasks.path": "1"}) == ["tasks.path"]
