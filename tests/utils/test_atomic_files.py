"""A folder that is replaced is never lost, whenever the process is killed."""

import os
import shutil
import subprocess
import sys

import pytest

from lyceum.utils import atomic_files
from lyceum.utils.atomic_files import atomic_lines, replace_folder

_kill_at: list[int] = []


class Killed(BaseException):
    """Stands for SIGKILL: nothing between the step that raises it and the test catches it."""


def _count(event: str, args: tuple) -> None:
    if _kill_at and event in ("os.rename", "os.remove", "os.rmdir", "shutil.rmtree"):
        _kill_at[0] -= 1
        if _kill_at[0] < 0:
            raise Killed


sys.addaudithook(_count)  # cannot be removed; does nothing outside these tests


@pytest.mark.parametrize("exchanges", [True, False])
def test_a_kill_at_any_moment_leaves_a_whole_folder(tmp_path, exchanges, monkeypatch):
    if not exchanges:
        monkeypatch.setattr(atomic_files, "_exchanged", lambda one, other: False)
    moments = 0
    while True:
        place, new = tmp_path / str(moments) / "model", tmp_path / str(moments) / "model.partial"
        for folder, text in ((place, "old"), (new, "new")):
            folder.mkdir(parents=True)
            for name in ("config.json", "model.safetensors"):
                (folder / name).write_text(text)
        _kill_at[:] = [moments]
        try:
            replace_folder(new, place)
            break
        except Killed:
            pass
        finally:
            _kill_at.clear()
        # Where folders cannot be exchanged, there is a moment in which the old one is beside its place.
        there = place if exchanges or place.is_dir() else place.with_name("model.previous")
        texts = {file.read_text() for file in there.iterdir()}
        assert len(list(there.iterdir())) == 2
        assert texts in ({"old"}, {"new"})
        moments += 1
        # What the kill left does not stand in the way of the next one.
        shutil.rmtree(new, ignore_errors=True)
        shutil.copytree(there, new)
        replace_folder(new, place)
        assert {file.read_text() for file in place.iterdir()} == texts
        assert [entry.name for entry in place.parent.iterdir()] == ["model"]
    assert moments > 2
    assert {file.read_text() for file in place.iterdir()} == {"new"}
    assert [entry.name for entry in place.parent.iterdir()] == ["model"]


def test_what_a_killed_process_left_of_a_file_is_removed_by_the_next(tmp_path):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    left, other, alive = (
        tmp_path / f".partial-{dead.pid}-out.jsonl",
        tmp_path / f".partial-{dead.pid}-other.jsonl",
        tmp_path / f".partial-{os.getppid()}-out.jsonl",
    )
    for file in (left, other, alive):
        file.write_text("half a li")
    with atomic_lines(tmp_path / "out.jsonl") as write:
        write("whole")
    assert (tmp_path / "out.jsonl").read_text() == "whole\n"
    assert [file.exists() for file in (left, other, alive)] == [False, True, True]
