"""A run that is to be replaced: whole again after a kill at any moment, gone once the new one is worth keeping."""

import errno
import json
import os
import shlex
import shutil
import signal
import sys
import warnings
from pathlib import Path

import pytest
import tiny_rewards  # noqa: F401 - its reward
from begun_run import begun_run
from folder_digest import digest
from transformers import BertConfig, BertLMHeadModel

from lyceum.cli import main
from lyceum.models.scratch import build_scratch
from lyceum.run.checkpoint import CheckpointError
from lyceum.run.folder import Run, recover
from lyceum.run.set_aside import discard, is_set_aside, put_back, set_aside
from lyceum.utils.errors import RecipeError

NAMES = ("recipe.yaml", "summary.json", "model", "rollouts")
RECIPE = {"seed": 0}
OTHER = {"seed": 1}


class Killed(BaseException):
    pass


def old_run(folder: Path) -> dict[str, str]:
    (folder / "model").mkdir(parents=True)
    (folder / "model" / "weights").write_text("old")
    (folder / "recipe.yaml").write_text("old")
    (folder / "notes.txt").write_text("mine")
    return digest(folder)


def new_run(folder: Path) -> None:
    (folder / "recipe.yaml").write_text("new")
    (folder / "rollouts").mkdir()
    (folder / "rollouts" / "step-1").write_text("new")


def killed_at(monkeypatch, number: int) -> None:
    """Whatever changes names raises from its ``number``-th use on: a process that is dead does nothing more."""
    left = number

    def dying(call):
        def die(*given, **how):
            nonlocal left
            left -= 1
            if left < 0:
                raise Killed
            return call(*given, **how)

        return die

    for owner, name in ((Path, "rename"), (Path, "mkdir"), (Path, "rmdir"), (Path, "unlink"), (shutil, "rmtree")):
        monkeypatch.setattr(owner, name, dying(getattr(owner, name)))


@pytest.mark.parametrize("then", ["put back", "discarded"])
def test_a_kill_at_any_moment_leaves_the_old_run_or_the_new_one_and_nothing_between(tmp_path, monkeypatch, then):
    moments = 0
    while True:
        folder = tmp_path / f"killed-{moments}"
        before = old_run(folder)
        after = None
        with monkeypatch.context() as killing:
            killed_at(killing, moments)
            try:
                set_aside(folder, NAMES)
                with monkeypatch.context() as alive:
                    alive.undo()
                    new_run(folder)
                after = digest(folder, without=(".replaced", ".discarded"))
                put_back(folder, NAMES) if then == "put back" else discard(folder)
                finished = True
            except Killed:
                finished = False
        put_back(folder, NAMES)  # what the next command does
        discard(folder)
        found = digest(folder)
        assert found == before or (then == "discarded" and found == after)
        if finished:
            break
        moments += 1
    assert moments > 4  # at least: mkdir, two entries, the name, and one of the way back


def start(root: Path, recipe=RECIPE, **how) -> Run:
    return begun_run(root, "demo", recipe, **how)


def finished(root: Path) -> dict[str, str]:
    with start(root) as run:
        run.record(1, {"loss": 1.0})
        run.checkpoint(1, {"w": 1})
        run.model.mkdir()
        (run.model / "model.safetensors").write_text("weights")
        (run.path / "notes.txt").write_text("mine")
        run.report.write_text("")
        run.summary({"finished": True})
    return digest(root, without=(".lock",))


@pytest.mark.parametrize("error", [RuntimeError, RecipeError, KeyboardInterrupt])
@pytest.mark.parametrize("steps", [0, 3])
def test_a_run_that_fails_before_its_first_checkpoint_gives_back_the_one_it_was_to_replace(tmp_path, error, steps):
    before = finished(tmp_path)
    with pytest.raises(error) as raised, start(tmp_path, OTHER, overwrite=True) as run:  # noqa: PT012
        assert not run.model.exists()
        for step in range(steps):
            run.record(step, {"loss": 2.0})
        raise error("no more")
    assert digest(tmp_path, without=(".lock",)) == before
    assert "holds the run again that was to be replaced" in raised.value.__notes__[0]


@pytest.mark.parametrize("how", ["a checkpoint", "a finished summary", "an end"])
def test_a_run_is_replaced_once_the_new_one_is_worth_keeping(tmp_path, how):
    finished(tmp_path)
    with start(tmp_path, OTHER, overwrite=True) as run:
        assert is_set_aside(run.path)
        run.record(1, {})
        if how == "a checkpoint":
            run.checkpoint(1, {"w": 2})
        elif how == "a finished summary":
            run.summary({"finished": True})
        assert is_set_aside(run.path) == (how == "an end")
    assert not list(run.path.glob(".[rd]*"))
    assert not run.model.exists()
    assert "seed: 1" in (run.path / "recipe.yaml").read_text()
    assert (run.path / "notes.txt").read_text() == "mine"


def test_a_disk_that_is_full_at_the_beginning_or_the_first_checkpoint_leaves_the_old_run(tmp_path, monkeypatch):
    before = finished(tmp_path)

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as at_once:
        at_once.setattr("lyceum.utils.atomic_files.write_file", full)
        with pytest.raises(OSError, match="no space left"):
            start(tmp_path, OTHER, overwrite=True)
    assert digest(tmp_path, without=(".lock",)) == before
    with pytest.raises(CheckpointError), start(tmp_path, OTHER, overwrite=True) as run:  # noqa: PT012
        monkeypatch.setattr("lyceum.run.checkpoint.write_file", full)
        run.checkpoint(1, {})
    assert digest(tmp_path, without=(".lock",)) == before


@pytest.mark.parametrize("command", ["train", "view"])
def test_killed_before_its_first_checkpoint_the_next_command_puts_the_old_run_back(tmp_path, command):
    before = finished(tmp_path)
    child = os.fork()
    if child == 0:
        try:
            run = start(tmp_path, OTHER, overwrite=True)
            run.record(1, {})
            os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert status == signal.SIGKILL
    assert digest(tmp_path, without=(".lock",)) != before
    with pytest.warns(UserWarning, match="holds the run again that a command was to replace"):  # noqa: PT031
        if command == "view":
            recover(tmp_path / "demo")
        else:
            with pytest.raises(RecipeError, match="holds a finished run of another recipe"):
                start(tmp_path, OTHER, resume=True)
    assert digest(tmp_path, without=(".lock",)) == before


def test_what_a_living_process_has_set_aside_is_left_alone(tmp_path):
    finished(tmp_path)
    with start(tmp_path, OTHER, overwrite=True) as run:
        recover(run.path)
        with pytest.raises(RecipeError, match="is being written by process"):
            start(tmp_path, OTHER, resume="auto")
        assert is_set_aside(run.path)


# -- what is refused leaves nothing behind ------------------------------------------------------------------------


@pytest.mark.parametrize("error", [RecipeError, RuntimeError, KeyboardInterrupt])
def test_a_run_that_never_began_leaves_nothing_not_even_the_folders_above(tmp_path, error):
    before = digest(tmp_path)
    with pytest.raises(error), Run.claim(tmp_path / "a" / "b", "demo", RECIPE):
        raise error("the model cannot be loaded")
    assert digest(tmp_path) == before
    start(tmp_path / "a" / "b", OTHER).close()  # the corrected command


def test_a_folder_that_was_there_stays_and_what_others_put_into_it_too(tmp_path):
    (tmp_path / "runs" / "demo").mkdir(parents=True)
    before = digest(tmp_path)
    with pytest.raises(RecipeError), Run.claim(tmp_path / "runs", "demo", RECIPE):
        raise RecipeError("refused")
    assert digest(tmp_path) == before
    with pytest.raises(RecipeError), Run.claim(tmp_path / "new", "demo", RECIPE):  # noqa: PT012
        (tmp_path / "new" / "of-another-process").write_text("")
        raise RecipeError("refused")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["of-another-process"]


def test_a_run_refused_at_its_first_step_leaves_nothing_and_one_that_failed_later_stays(tmp_path):
    with pytest.raises(RecipeError), start(tmp_path / "runs"):
        raise RecipeError("refused")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(RecipeError), start(tmp_path / "runs") as run:  # noqa: PT012
        run.record(1, {})
        raise RecipeError("of a later stage")
    assert (run.path / "metrics.jsonl").exists()


def test_a_refused_claim_on_a_run_changes_none_of_its_bytes(tmp_path):
    finished(tmp_path)
    before = digest(tmp_path, without=(".lock",))
    for how in ({}, {"resume": True}, {"recipe": OTHER, "resume": "auto"}):
        with pytest.raises(RecipeError):
            start(tmp_path, **how)
        assert digest(tmp_path, without=(".lock",)) == before
    with pytest.raises(RecipeError), Run.claim(tmp_path, "demo", OTHER, overwrite=True):
        raise RecipeError("the model cannot be loaded")
    assert digest(tmp_path, without=(".lock",)) == before


def test_somebodys_own_recipe_does_not_make_a_folder_a_run(tmp_path):
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / "recipe.yaml").write_text("extends: grpo  # by hand\n")
    before = digest(tmp_path)
    with pytest.raises(RecipeError, match="is not a run"):
        start(tmp_path, overwrite=True)
    assert digest(tmp_path) == before


def test_a_lock_whose_file_was_removed_meanwhile_is_taken_anew(tmp_path, monkeypatch):
    from lyceum.utils.atomic_files import Lock

    file, locked = tmp_path / ".lock", Lock._locked
    removed = []

    def late(self):
        descriptor = locked(self)
        if not removed:  # a refused process takes its folder away between our opening and our locking
            removed.append(file.unlink())
        return descriptor

    monkeypatch.setattr(Lock, "_locked", late)
    lock = Lock(file)
    assert os.path.samestat(os.fstat(lock._descriptor), file.stat())
    lock.release()


# -- the command line ---------------------------------------------------------------------------------------------

TINY = [
    *("steps=1", "tasks_per_step=2", "rollout.samples=2", "rollout.sampling.max_completion_tokens=4", "evaluate.n=2"),
    *("evaluate.samples=1", "evaluate.k=[1]", "reward=test-letters"),
]


@pytest.fixture
def models(tmp_path, monkeypatch) -> None:
    """``good``, and two that only loading finds out about: ``torn`` and ``sees_ahead``."""
    monkeypatch.chdir(tmp_path)
    for folder in ("good", "torn", "sees_ahead"):
        for part in build_scratch(width=16, layers=1, heads=2, feed_forward=32, context=64):
            part.save_pretrained(folder)
    Path("torn/model.safetensors").write_bytes(b"garbage")
    sizes = {"vocab_size": 99, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    BertLMHeadModel(BertConfig(**sizes, is_decoder=False)).save_pretrained("sees_ahead")


WRONG = [["model=torn"], ["model=sees_ahead"], ["model=good", "model.lora.target_modules=[nothing]"]]


@pytest.mark.parametrize("wrong", WRONG)
def test_a_command_whose_model_cannot_be_loaded_leaves_the_old_run_or_nothing_and_corrected_it_works(models, wrong):
    before = digest(".")
    assert main(["train", "grpo", *TINY, *wrong]) == 2
    assert digest(".") == before
    assert main(["train", "grpo", *TINY, "model=good"]) == 0
    before = digest(".", without=(".lock",))
    assert main(["train", "grpo", *TINY, *wrong, "--overwrite"]) == 2
    assert digest(".", without=(".lock",)) == before
    assert main(["train", "grpo", *TINY, "model=good", "--overwrite"]) == 0


def test_ctrl_c_before_there_is_anything_to_go_on_with_gives_the_command_that_begins_again(models, monkeypatch, capsys):
    command = ["train", "grpo", *TINY, "model=good"]

    def stopped(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as loading:
        loading.setattr("lyceum.training.train.load_policy", stopped)
        assert main([*command, "--json"]) == 130
    told = json.loads(capsys.readouterr().out)
    assert told["error"][:2] == ["nothing was written to runs/grpo", "to begin again:"]
    assert told["resume"] == shlex.join(["lyceum", *command, "--json"])
    assert main(command) == 0
    capsys.readouterr()
    with monkeypatch.context() as sampling:
        sampling.setattr("lyceum.training.train._stages", stopped)
        assert main([*command, "--overwrite"]) == 130
    err = capsys.readouterr().err
    assert "runs/grpo holds the run again that was to be replaced" in err
    assert err.strip().endswith("--overwrite")
    assert json.loads(Path("runs/grpo/summary.json").read_text())["finished"]


def test_warnings_are_told_without_the_place_in_the_program(capsys, monkeypatch):
    monkeypatch.setattr("lyceum.cli.outcome._run", lambda *_, **__: warnings.warn("a \x1b[2J b", stacklevel=1) or 0)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = lambda *told: sys.stderr.write(warnings.formatwarning(*told[:4]))
        assert main([]) == 0
    assert capsys.readouterr().err == "warning: a \\x1b[2J b\n"
