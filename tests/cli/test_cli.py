"""The commands: what they print, what they write, how they end."""

from __future__ import annotations

import errno
import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import tiny_rewards  # noqa: F401, its kind is asked for below
import yaml
from safetensors import SafetensorError
from transformers import PreTrainedModel

from lyceum.analysis.run_plan import plan, warmup_notes
from lyceum.analysis.sizes import told as told_sizes
from lyceum.analysis.tables import held_out_table, side_by_side
from lyceum.cli import main
from lyceum.cli.train import resume_command
from lyceum.recipe.schema import load_recipe
from lyceum.utils import progress

pytestmark = pytest.mark.usefixtures("small_scratch")

TINY = [
    *("steps=2", "tasks_per_step=2", "evaluate.n=2", "evaluate.samples=2", "evaluate.k=[1,2]", "model=scratch"),
    *("rollout.samples=2", "rollout.sampling.max_completion_tokens=8", "reward=test-letters"),
]
ASKED_WHILE_EVALUATING = 4
"""Each of two tasks is sampled, and answered greedily."""


@pytest.fixture(autouse=True)
def here(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)


def text_of(renderable) -> str:
    from rich.console import Console

    console = Console(width=120, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(renderable)
    return console.export_text()


def test_train_shows_its_plan_and_closes_with_what_was_reached_and_where_to_look(capsys, tmp_path):
    assert main(["train", "grpo", *TINY]) == 0
    out, err = capsys.readouterr()
    for said in (
        "recipe",
        "online: 2 steps of 2 tasks x 2 samples, completions of at most 8 tokens, credit",
        "runs/grpo",
    ):
        assert said in " ".join(out.split())
    for said in ("held-out accuracy, %", "before: incorrect", "tokens sampled", "report.html", "lyceum eval runs/grpo"):
        assert said in out
    assert "step 2/2" in err
    # transformers' own bars would run across the display.
    assert "Writing model shards" not in err
    assert "Loading weights" not in err
    assert (tmp_path / "runs/grpo/report.html").exists()

    assert main(["train", "grpo", *TINY]) == 2
    assert "has finished" in capsys.readouterr().err
    assert main(["train", "grpo", *TINY, "steps=9", "--resume"]) == 2
    assert "; to train its model further: model=runs/grpo/model and another name\n" in capsys.readouterr().err
    assert load_recipe("grpo", ["model=runs/grpo"]).model.path == "runs/grpo/model"
    assert main(["train", "grpo", *TINY, "--name", "second", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["finished"]
    assert document["path"] == "runs/second"
    assert document["recipe"] == "grpo"

    # Killed before its report was written, it is gone on with for that alone.
    (tmp_path / "runs/second/report.html").unlink()
    assert main(["train", "grpo", *TINY, "--name", "second", "--resume", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == document
    assert (tmp_path / "runs/second/report.html").exists()

    assert main(["view", "runs/second"]) == 0
    assert capsys.readouterr().out == "runs/second/report.html\n"


def test_a_dry_run_checks_everything_shows_the_first_prompt_and_writes_nothing(capsys, tmp_path):
    def contents():
        return {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    assert main(["train", "grpo", *TINY, "--dry-run", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert not any(tmp_path.iterdir())
    assert told["recipe"]["stages"][0]["steps"] == 2
    assert told["first"] == {"task_id": "chain/train/0/0", "prompt": "54-2=", "tokens": 5, "answer": "52"}
    assert main(["train", "grpo", *TINY, "--dry-run"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "online: 2 steps of 2 tasks x 2 samples" in shown
    assert "The prompt of chain/train/0/0, 5 tokens: 54-2= answer '52' nothing was trained or written" in shown

    (tmp_path / "rows.jsonl").write_text('{"prompt": "2+3=", "answer": "5"}\n{"prompt": "\u4f60", "answer": "5"}\n')
    assert main(["train", "grpo", *TINY, "tasks=rows.jsonl", "evaluate.n=0", "--dry-run"]) == 2
    assert "the model's vocabulary does not fit" in capsys.readouterr().err
    assert main(["train", "grpo", *TINY, "--resume", "--dry-run"]) == 2
    assert "there is no run in runs/grpo" in capsys.readouterr().err
    assert main(["train", "grpo", *TINY]) == 0
    before = contents()
    assert main(["train", "grpo", *TINY, "--dry-run"]) == 2
    assert main(["train", "grpo", *TINY, "--overwrite", "--dry-run"]) == 0
    assert contents() == before


def test_a_dry_run_on_pairs_shows_the_first_of_them(capsys, tmp_path):
    (tmp_path / "pairs.jsonl").write_text('{"prompt": "2+3=", "chosen": "5", "rejected": "6"}\n' * 2)
    assert main(["train", "dpo", "data=pairs.jsonl", "steps=1", "--dry-run", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["tasks"], told["first"]["task_id"], told["first"]["prompt"]) == (None, "pairs.jsonl/0", "2+3=")
    assert main(["train", "dpo", "data=pairs.jsonl", "steps=1", "--dry-run"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "The prompt of pairs.jsonl/0, 4 tokens: 2+3= nothing was trained or written" in shown
    assert "to train on" not in shown


def test_a_reward_that_always_fails_stops_the_run_and_says_why(capsys, tmp_path):
    (tmp_path / "mine.py").write_text("def reward(completion):\n    raise ValueError('my bug')\n")
    assert main(["train", "grpo", *TINY, "steps=9", "reward=mine.py:reward"]) == 3
    err = capsys.readouterr().err
    assert err.count("not graded: reward: ValueError: my bug") == 1  # at once, and once
    assert (
        "nothing graded in 3 steps in a row: none of 12 completions could be graded: reward: ValueError: my bug" in err
    )
    assert len((tmp_path / "runs/grpo/metrics.jsonl").read_text().splitlines()) == 3


def test_a_run_closes_with_what_was_wrong_with_its_completions(capsys, caplog, tmp_path):
    (tmp_path / "mine.py").write_text(
        "import itertools\nvalues = itertools.cycle([0.25, 0.5])\n"
        "def reward(id):\n    if int(id[-1]) % 2:\n        raise ValueError('odd')\n    return next(values)\n"
    )
    assert main(["train", "grpo", *TINY, "reward=mine.py:reward", "tasks_per_step=4", "max_tokens=1"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"note    training ended after 1 of 2 steps: \d+ tokens are sampled \(max_tokens=1\)", out)
    assert "100 % of the completions were truncated" in out  # of an untrained model
    ungraded = json.loads((tmp_path / "runs/grpo/summary.json").read_text())["ungraded"]
    assert 0 < ungraded < 8
    assert f"could not be graded and were left out:\n        {ungraded} x reward: ValueError: odd" in out
    assert "mean reward [95 % interval]" not in out  # one held-out task of two is graded: no interval
    assert "2 samples are left out of the accuracy: rewards that are not all 0 or 1" in out
    assert "reward.correct_at=VALUE" in out
    # The command that it names works: the folder's recipe could not trust its own code.
    assert "lyceum eval runs/grpo --k 1,8,64 trust_code=true" in out
    assert main(["eval", "runs/grpo", "--k", "1", "--n", "2", "trust_code=true"]) == 0
    # Of other tasks it says who grades.
    (tmp_path / "rows.jsonl").write_text('{"prompt": "2+3=", "answer": "5"}\n')
    (tmp_path / "more.jsonl").write_text('{"prompt": "2+4=", "answer": "6"}\n')
    others = ["eval", "runs/grpo", "--tasks", "[rows.jsonl, more.jsonl]", "--k", "1", "--no-greedy", "--json"]
    capsys.readouterr()
    assert main(others) == 0
    assert json.loads(capsys.readouterr().out)["tasks"] == 2
    assert "the tasks' own verifier grades, as these are not the run's tasks, whose reward is mine.py:" in caplog.text
    caplog.clear()
    assert main([*others, "--reward", "number"]) == 0
    assert "own verifier" not in caplog.text


def test_steps_that_never_end_are_pointed_out(capsys):
    # The base model writes no line breaks: mcts by lines is then flat sampling.
    tiny = [word for word in TINY if word not in ("rollout.samples=2", "model=scratch")]
    search = ["rollout=mcts", "credit=node-value", "rollout.step.by=lines", "rollout.sampling.max_completion_tokens=16"]
    assert main(["train", "grpo", *search, *tiny]) == 0
    assert capsys.readouterr().err.count("rollout.step: no trajectory has '\\n' in it") == 1


def test_a_rate_for_the_small_model_is_pointed_out_with_another_one(capsys, tmp_path):
    from lyceum.models.scratch import build_scratch

    for part in build_scratch():  # any folder is somebody's model
        part.save_pretrained(tmp_path / "mine")
    assert main(["train", "grpo", *TINY, "model=mine"]) == 0
    assert "lr 0.0001 suits the small base model" in capsys.readouterr().out
    assert main(["train", "grpo", *TINY, "model=mine", "learner.lr=1e-6", "--overwrite"]) == 0
    assert "suits the small base model" not in capsys.readouterr().out


def test_json_is_the_only_thing_on_standard_output_whatever_a_reward_prints(capfd, tmp_path):
    noise = "def reward(completion):\n    print('noise')\n    os.system('echo of a child')\n"
    (tmp_path / "mine.py").write_text(f"import os\n{noise}    return sum(map(ord, completion)) % 8\n")
    part = "reward={kind: function, function: mine.py:reward, processes: 0}"
    assert main(["train", "grpo", *TINY, part, "--json"]) == 0
    out, err = capfd.readouterr()
    assert json.loads(out)["steps"] == 2
    assert {"noise", "of a child"} <= set(err.splitlines())


def test_nothing_follows_the_json_when_python_exits():
    # What a library registers to be done then comes after the command.
    said = "import atexit, os, sys; atexit.register(os.system, 'echo goodbye'); atexit.register(print, 'goodbye')"
    code = f"{said}; from lyceum.cli import main; sys.exit(main())"
    done = subprocess.run([sys.executable, "-c", code, "recipes", "--json"], capture_output=True, text=True, check=True)
    assert "grpo" in json.loads(done.stdout)
    assert done.stderr == "goodbye\ngoodbye\n"


def test_ctrl_c_leaves_a_checkpoint_and_the_command_that_resumes(capsys, monkeypatch):
    asked = iter([*[False] * ASKED_WHILE_EVALUATING, False, True])
    monkeypatch.setattr("lyceum.utils.interrupts.Interrupts.interrupted", lambda self: next(asked, False))
    keys = [*TINY, "steps=3", "tasks.levels=[1, 2]"]
    assert main(["train", "grpo", *keys]) == 130
    err = capsys.readouterr().err
    assert "runs/grpo has a checkpoint of step 2; to continue:" in err
    command = err.strip().splitlines()[-1].strip()
    assert command == resume_command("grpo", keys, None, as_json=False)
    assert "'tasks.levels=[1, 2]' --resume" in command  # quoted: it is typed into a shell
    for model in ("runs/grpo", "runs/grpo/checkpoints/step-000002"):  # it has no weights for others yet
        assert main(["eval", model, "--tasks", "chain"]) == 2
        assert (
            "the run runs/grpo has no model yet; allowed: a run that has finished (--resume)" in capsys.readouterr().err
        )
    import shlex

    assert main([*shlex.split(command)[1:], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["steps"] == 3


@pytest.mark.parametrize(
    ("after", "saved"), [(2, "no checkpoint yet"), (ASKED_WHILE_EVALUATING + 2 + 2, "a checkpoint of step 2")]
)
def test_ctrl_c_is_heeded_in_the_evaluations_too(after, saved, capsys, monkeypatch):
    keys = ["train", "grpo", *TINY, "--json"]
    assert main([*keys, "--name", "whole"]) == 0
    asked = iter([False] * after + [True])
    monkeypatch.setattr("lyceum.utils.interrupts.Interrupts.interrupted", lambda self: next(asked, False))
    capsys.readouterr()
    assert main([*keys, "--name", "cut"]) == 130
    assert f"runs/cut has {saved}" in json.loads(capsys.readouterr().out)["error"][0]
    summary = json.loads(Path("runs/cut/summary.json").read_text())
    assert ("before" in summary, "after" in summary) == ("step" in saved, False)
    assert main([*keys, "--name", "cut", "--resume"]) == 0
    whole, cut = (json.loads(Path(f"runs/{name}/summary.json").read_text()) for name in ("whole", "cut"))
    for key in ("before", "after", "steps", "tokens_sampled"):
        assert whole[key] == cut[key]


def test_a_second_ctrl_c_ends_at_once_and_tells_where_the_run_stands(capsys, monkeypatch):
    def killed(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("lyceum.api.run_recipe", killed)
    assert main(["train", "grpo", *TINY, "--json"]) == 130
    document = json.loads(capsys.readouterr().out)
    assert document["resume"].endswith("--resume --json")
    assert "no checkpoint yet" in document["error"][0]


def test_ctrl_c_before_anything_was_begun_says_so(capsys, monkeypatch):
    def stopped(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("lyceum.recipe.schema.load_recipe", stopped)
    assert main(["train", "grpo", "--json"]) == 130
    assert json.loads(capsys.readouterr().out) == {"error": ["stopped"]}
    assert main(["train", "grpo"]) == 130
    assert capsys.readouterr().err == "stopped: stopped\n"


def failing(monkeypatch, error: BaseException):
    def fail(*args, **kwargs):
        raise error

    monkeypatch.setattr("lyceum.api.run_recipe", fail)


def test_without_a_command_the_help_is_shown(capsys):
    assert main([]) == 0
    out, err = capsys.readouterr()
    assert "Commands:" in out
    assert not err


def test_what_fails_while_running_ends_with_1_and_no_traceback(capsys, monkeypatch):
    from lyceum.learner.local import Diverged
    from lyceum.run.checkpoint import CheckpointError

    full = OSError(errno.ENOSPC, "No space left on device", "runs/grpo/metrics.jsonl")
    for error, said in (
        (CheckpointError("the disk is full"), "the disk is full"),
        (Diverged("not finite in 5 steps"), "not finite in 5 steps"),
        (full, "No space left on device: runs/grpo/metrics.jsonl; free some space"),
    ):
        failing(monkeypatch, error)
        assert main(["train", "grpo", *TINY]) == 1
        err = capsys.readouterr().err
        assert said in err
        assert "Traceback" not in err


def test_training_on_pairs_shows_the_pairs_and_neither_tasks_nor_reward(capsys):
    pair = {"prompt": "1+1=", "chosen": "2", "rejected": "3"}
    Path("pairs.jsonl").write_text(json.dumps(pair) + "\n")
    words = ["data=pairs.jsonl", "model=scratch", "steps=1", "learner.warmup_steps=0", "evaluate.n=0"]
    assert main(["train", "dpo", *words]) == 0
    out, err = capsys.readouterr()
    assert "data        file: path pairs.jsonl" in out
    assert "evaluation  none" in out
    assert not re.search("^(tasks|reward|note) ", out, flags=re.MULTILINE)
    assert "loss 0.6931, accuracy 0.000, margin 0.000" in err
    assert "reward" not in err
    card = Path("runs/dpo/model/README.md").read_text()
    assert "- data: `pairs.jsonl`" in card
    assert "- tasks:" not in card
    assert "graded samples" not in card


def test_the_plan_says_where_a_warm_up_is_longer_than_its_stage():
    # After 5 of 20 steps of a linear rise to 1e-4 it is 2.5e-5; with 5 of 5 the rate is reached.
    keys = ["steps=5", "learner.lr=1e-4"]
    assert warmup_notes(load_recipe("grpo", [*keys, "learner.warmup_steps=5"])) == []
    long = load_recipe("grpo", [*keys, "learner.warmup_steps=20"])
    [told] = warmup_notes(long)
    assert told.startswith("the learning rate rises to 2.5e-05 and never to learner.lr=0.0001: learner.warmup_st")
    sizes = told_sizes(long, prompt=20, demonstration=20, evaluated=0)
    assert told in " ".join(text_of(plan(long, resume=False, threads=1, evaluated=0, sizes=sizes)[0]).split())


def test_the_plan_says_what_is_evaluated_and_what_is_held_out_in_vain(capsys):
    assert main(["train", "grpo", *TINY, "--dry-run"]) == 0
    assert "evaluation  2 held-out tasks, 2 samples each" in capsys.readouterr().out
    rows = [{"prompt": f"{i}+1=", "completion": str(i + 1)} for i in range(40)]
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert main(["train", "sft", "tasks=rows.jsonl", "model=scratch", "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "evaluation  none" in out
    assert "10 % of the rows are held out, though nothing is evaluated" in out
    assert main(["train", "sft", "tasks=rows.jsonl", "model=scratch", "tasks.heldout_share=0", "--dry-run"]) == 0
    assert "held out" not in capsys.readouterr().out


def test_a_full_disk_in_the_end_keeps_the_trained_steps(capsys, monkeypatch):
    def full(*args, **kwargs):
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    with monkeypatch.context() as patched:
        patched.setattr(PreTrainedModel, "save_pretrained", full)
        assert main(["train", "grpo", *TINY, "--name", "full"]) == 1
    err = capsys.readouterr().err
    assert "error: no space left on the disk (" in err
    assert "needed): runs/full/model; free some space\n" in err
    assert "runs/full has a checkpoint of step 2; to continue:\n" in err
    assert err.rstrip().endswith("--name full --resume")
    assert "Traceback" not in err
    assert not list(Path("runs/full").glob("model*"))
    assert main(["train", "grpo", *TINY, "--name", "full", "--resume"]) == 0
    assert len({file.stat().st_mode for file in Path("runs/full/model").iterdir()}) == 1


def test_a_disk_without_space_for_the_model_is_told_before_training(capsys, monkeypatch):
    monkeypatch.setattr("lyceum.training.train.disk_usage", lambda _: SimpleNamespace(free=1000))
    assert main(["train", "grpo", *TINY, "--name", "small"]) == 1
    assert re.search(
        r"the trained model needs .* in runs/small/model, and 1\.0 kB are free: free", capsys.readouterr().err
    )
    assert not Path("runs/small").exists()


def test_a_mistake_of_the_program_keeps_its_traceback(capsys, monkeypatch):
    failing(monkeypatch, ZeroDivisionError("in the middle"))
    assert main(["train", "grpo", *TINY, "--json"]) == 1
    out, err = capsys.readouterr()
    assert json.loads(out)["error"] == ["ZeroDivisionError: in the middle"]
    assert "Traceback" in err


def test_a_users_code_that_exits_does_not_end_the_command_in_silence(capsys, tmp_path):
    (tmp_path / "script.py").write_text("import sys\ndef reward(completion): return 1.0\nsys.exit(0)\n")
    assert main(["train", "grpo", *TINY, "reward=script.py:reward", "--json"]) == 2
    (line,) = json.loads(capsys.readouterr().out)["error"]
    assert "script.py' cannot be imported" in line
    assert "it called sys.exit(0)" in line


def test_eval_gives_every_figure_with_its_interval_by_level(capsys, tmp_path):
    argv = ["eval", "scratch", "--tasks", "chain", "tasks.levels=[1,2]", "--n", "4", "--k", "1,2", "--max-tokens", "8"]
    assert main([*argv, "--json", "--output", "metrics.json"]) == 0
    metrics = json.loads(capsys.readouterr().out)
    assert metrics == json.loads((tmp_path / "metrics.json").read_text())
    assert set(metrics["pass_at"]) == {"1", "2"} == set(metrics["maj_at"])
    assert set(metrics["avg_at"]) == {"2"}
    assert set(metrics["pass_at"]["2"]) == {"mean", "low", "high"}
    assert set(metrics["levels"]) == {"1", "2"}
    assert metrics["tasks"] == 4
    assert set(metrics["levels"]["1"]["pass_at"]) == {"1", "2"}
    assert "mean" in metrics["levels"]["1"]["greedy"]
    assert metrics["sampling"]["max_completion_tokens"] == 8
    assert main(argv) == 0
    out = capsys.readouterr().out
    assert "of 2 samples per task" in out
    assert "greedy" in out
    assert "…" not in out  # a terminal of 80 columns cuts nothing
    assert "were truncated at 8 tokens" in out


def test_eval_of_a_file_takes_every_row_and_of_a_run_its_own_tasks(capsys, tmp_path):
    rows = [{"prompt": f"{i}+1=", "answer": str(i + 1)} for i in range(30)]
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    argv = ["--k", "1", "--max-tokens", "4", "--json", "--no-greedy"]
    assert main(["eval", "scratch", "--tasks", "data.jsonl", *argv]) == 0
    assert json.loads(capsys.readouterr().out)["tasks"] == 30
    assert main(["eval", "scratch", "tasks=data.jsonl", *argv]) == 0  # as one types it for training
    assert json.loads(capsys.readouterr().out)["tasks"] == 30
    assert main(["eval", "scratch", "--tasks", "data.jsonl", "tasks.heldout_share=0.2", *argv]) == 0
    assert 0 < json.loads(capsys.readouterr().out)["tasks"] < 20

    assert main(["train", "grpo", *TINY, "tasks.levels=[3]", "--json"]) == 0
    capsys.readouterr()
    assert main(["eval", "runs/grpo", "--n", "2", "--k", "1", "--json"]) == 0
    metrics = json.loads(capsys.readouterr().out)
    assert metrics["model"] == "runs/grpo/model"
    assert set(metrics["levels"]) == {"3"}
    assert metrics["sampling"]["max_completion_tokens"] == 8  # as it was trained


def test_compare_runs_each_recipe_and_seed_once_and_goes_on_where_it_was_stopped(capsys, monkeypatch, tmp_path):
    words = ["compare", "grpo", "grpo", "grpo-2:objective.clip_high=0.3", *TINY, "--seeds", "2", "--json"]
    folder = tmp_path / "runs/compare-grpo-grpo-2"
    asked = iter([False] * (2 * ASKED_WHILE_EVALUATING + 2 + ASKED_WHILE_EVALUATING) + [True])
    monkeypatch.setattr("lyceum.utils.interrupts.Interrupts.interrupted", lambda self: next(asked, False))
    assert main(words) == 130
    assert json.loads(capsys.readouterr().out)["resume"].startswith("lyceum compare grpo grpo grpo-2:")
    assert json.loads((folder / "grpo-seed0/summary.json").read_text())["finished"]
    began = (folder / "grpo-seed0/summary.json").stat().st_mtime_ns
    assert main(words) == 0
    document = json.loads(capsys.readouterr().out)
    assert [(recipe["recipe"], recipe["seeds"]) for recipe in document["recipes"]] == [
        ("grpo", [0, 1]),
        ("grpo-2", [0, 1]),
    ]
    assert (folder / "grpo-seed0/summary.json").stat().st_mtime_ns == began
    clip = yaml.safe_load((folder / "grpo-2-seed1/recipe.yaml").read_text())["stages"][0]["objective"]["clip_high"]
    assert clip == 0.3
    assert (folder / "comparison.json").exists()
    assert (folder / "comparison.png").exists()
    words[3] = "grpo-2:objective.clip_high=0.4"
    assert main(words) == 2
    (line, more, ways) = json.loads(capsys.readouterr().out)["error"]
    assert "grpo-2-seed0 began with 0.3" in line
    assert "clip_high: got 0.4" in line
    assert "grpo-2-seed1" in more
    assert ways.endswith("allowed: theirs, or name=NAME (--name NAME)")


def test_recipes_are_listed_with_their_papers(capsys):
    assert main(["recipes", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["dapo"]["paper"] == "arXiv:2503.14476"


@pytest.mark.parametrize("name", ["dapo", "ppo"])
def test_a_shown_recipe_is_the_recipe_with_every_key_explained(capsys, name):
    from lyceum.recipe.schema import load_recipe

    assert main(["recipes", "show", name, "steps=7"]) == 0
    out = capsys.readouterr().out
    assert yaml.safe_load(out) == load_recipe(name, ["steps=7"]).resolved()
    assert "# Lower clip: the ratio is clipped at 1 - clip_low (no unit). (> 0, <= 1)" in out
    assert "One of: action-gae, aepo" in out


def test_components_teach_settings_bounds_and_defaults(capsys):
    assert main(["components", "credit", "gae", "--json"]) == 0
    settings = {line["key"]: line for line in json.loads(capsys.readouterr().out)["credit"]["gae"]["settings"]}
    assert settings["lam"]["default"] == 0.95
    assert settings["lam"]["bounds"] == ">= 0, <= 1"
    assert settings["kl_in_reward.estimator"]["type"] == "k1 | k2 | k3"
    assert main(["components"]) == 0
    assert "leave-one-out" in capsys.readouterr().out
    assert main(["components", "rollout"]) == 0
    out = capsys.readouterr().out
    assert "one kind with its settings: lyceum components rollout KIND" in out
    assert out.count("\n") < 300
    assert main(["components", "reward", "overlong"]) == 0
    assert "(needed)" in capsys.readouterr().out


def test_components_name_their_papers_and_files(capsys, monkeypatch):
    assert main(["components", "credit", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["credit"]
    hapo = {key: found["hapo"][key] for key in ("paper", "title", "arxiv", "file")}
    assert hapo == {"paper": "hapo", "title": "HAPO", "arxiv": "2509.16591", "file": "papers/hapo/credit_hapo.py"}
    assert found["prime"]["arxiv"], "its row has no number, its recipe does"
    assert (found["group"]["paper"], found["group"]["file"]) == (None, "credit/group.py")
    [equation] = found["group"]["equations"]
    assert equation["equation"].startswith("A_i = (r_i - mean_g) / (std + eps)")
    assert "arXiv:2402.03300" in equation["source"]
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["components", "credit"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert any(line.strip() == "HAPO, arXiv:2509.16591" for line in lines)
    assert all(any(of["file"] in line for line in lines) for of in found.values())


def test_help_does_not_wait_for_a_models_library():
    code = "import sys; from lyceum.cli import main; main(['--help']); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


def test_a_pipe_that_closes_early_is_no_error():
    command = f"{sys.executable} -c 'from lyceum.cli import main; import sys; sys.exit(main())' recipes"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", f"{command} | true"], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_models_text_cannot_command_the_terminal():
    evil = {"prompt": "p\x1b]0;x\x07", "answer": "1", "level": 1}
    sides = {when: {"completion": "\x1b[31m[bold]", "correct": when == "after"} for when in ("before", "after")}
    shown = text_of(side_by_side([evil | sides]))
    assert "\x1b" not in shown
    assert "[bold]" in shown
    assert "before: incorrect" in shown
    assert "after: correct" in shown


def test_a_change_is_coloured_only_where_the_intervals_are_apart():
    from lyceum.analysis.tables import change

    low, high = {"mean": 0.5, "low": 0.4, "high": 0.6}, {"mean": 0.7, "low": 0.61, "high": 0.8}
    assert change(low, high).plain == "+20.0"
    assert change(low, high).spans[0].style == "green"
    assert change(high, low).spans[0].style == "red"
    assert change(low, high | {"low": 0.59}).spans == []
    before = {"overall": low, "by_level": {"1": low}, "greedy": None, "tasks": 9}
    after = {"overall": high, "by_level": {"1": high}, "greedy": {"overall": high, "by_level": {}}, "tasks": 9}
    assert "50.0 [40, 60]" in text_of(held_out_table(before, after))


def test_progress_mode_is_put_back(capsys):
    assert main(["train", "grpo", *TINY, "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert (lines[-1]["phase"], lines[-1]["done"]) == ("done", 2)
    assert progress._mode == "auto"
