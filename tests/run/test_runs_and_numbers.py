"""Whole runs whose numbers are odd: what is finite trains, what is not is null, and what diverges says so."""

from __future__ import annotations

import json
import math
import re

import pyarrow.parquet as pq
import pytest

from lyceum.cli import main

pytestmark = pytest.mark.usefixtures("small_scratch")

TINY = [
    *("steps=2", "tasks_per_step=2", "evaluate.n=2", "evaluate.samples=2", "evaluate.k=[1]", "model=scratch"),
    *("rollout.samples=4", "rollout.sampling.max_completion_tokens=8"),
]
REWARDS = """
import math

def huge(completion):
    return 1e308 if sum(map(ord, completion)) % 2 else -1e308

def logs(completions, log_metric, log_extra, **kwargs):
    log_metric("x", math.nan)
    log_metric("y", -math.inf)
    log_extra("z", [math.nan for _ in completions])
    return [float(sum(map(ord, completion)) % 2) for completion in completions]

def noted(completion):
    return {"reward": float(sum(map(ord, completion)) % 2), "note": math.nan, "more": math.inf}
"""


@pytest.fixture(autouse=True)
def here(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rew.py").write_text(REWARDS)


def strictly(text):
    def refuse(name):
        raise AssertionError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


def train(*arguments: str) -> int:
    return main(["train", *arguments, *TINY])


def test_a_nan_that_a_reward_logs_does_not_blank_the_report(tmp_path):
    assert train("grpo", "reward={kind: trl, function: 'rew.py:logs', processes: 0}", "rollouts_every=1") == 0
    page = (tmp_path / "runs/grpo/report.html").read_text()
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert strictly(text)["rollouts"]["trees"]
    for line in map(strictly, (tmp_path / "runs/grpo/metrics.jsonl").read_text().splitlines()):
        assert [line[f"reward/log/{name}"] for name in ("x", "y")] == [None, None]
        assert [line[f"reward/log/{name}/nonfinite"] for name in ("x", "y")] == ["nan", "-inf"]
    for row in pq.read_table(tmp_path / "runs/grpo/rollouts/step-000001.parquet").to_pylist():
        assert strictly(row["logged"]) == {"z": None}


def test_parts_that_are_not_finite_are_null_and_say_which(capsys, tmp_path):
    reward = "reward={kind: function, function: 'rew.py:noted', processes: 0}"
    assert train("grpo", reward, "--json") == 0
    strictly(capsys.readouterr().out)
    for file in ("summary.json", "examples.json"):
        strictly((tmp_path / "runs/grpo" / file).read_text())
    for line in map(strictly, (tmp_path / "runs/grpo/metrics.jsonl").read_text().splitlines()):
        assert line["reward/part/noted/note"] is None
        assert line["reward/part/noted/note/nonfinite"] == "nan"
        assert line["reward/part/noted/more/nonfinite"] == "inf"


def test_rewards_that_float32_cannot_hold_are_ungraded_and_say_so(capsys, tmp_path):
    assert train("grpo", "reward={kind: function, function: 'rew.py:huge', processes: 0}") == 3
    out, err = capsys.readouterr()
    assert "the reward is too large a number (1e+308); allowed: magnitudes up to 1e+15" in out + err
    assert "Traceback" not in err
    assert not re.search(r"\d{20}", out + err)  # no number of 300 digits


@pytest.fixture
def without_bounds(monkeypatch) -> None:
    """Settings that diverge within two steps lie beyond what a recipe may say; within it takes many more."""
    monkeypatch.setattr("lyceum.core.component.LARGEST_REAL", math.inf)


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("learner.lr=1e10", "logits are not finite"),
        ("learner.lr=1e300", "diverged at step 1: a weight became"),
        ("learner.weight_decay=1e300", "diverged at step 1: a weight became"),
        ("objective.kl.coefficient=1e300", "loss or gradient was not finite in all of the 2 updates"),
    ],
)
def test_a_run_that_diverges_says_so_and_leaves_no_model(setting, said, capsys, tmp_path, without_bounds):
    reward = "reward={kind: trl, function: 'rew.py:logs', processes: 0}"  # half of the group is right: a gradient
    assert train("grpo", reward, setting) == 1
    err = " ".join(capsys.readouterr().err.split())
    assert said in err
    assert "Traceback" not in err
    assert not (tmp_path / "runs/grpo/model").exists()
    assert not strictly((tmp_path / "runs/grpo/summary.json").read_text()).get("finished")


def test_fine_tuning_that_diverges_says_so_too(capsys, without_bounds):
    assert main(["train", "sft", *TINY[:6], "learner.lr=1e300"]) == 1
    assert "diverged at step 1" in capsys.readouterr().err


@pytest.mark.parametrize("setting", ["temperature=0.001", "top_p=1e-6", "temperature=100"])
def test_the_ends_of_samplings_settings_are_settings(setting, tmp_path):
    assert train("grpo", f"rollout.sampling.{setting}") in (0, 3)  # near to greedy all samples are the same
    for line in (tmp_path / "runs/grpo/metrics.jsonl").read_text().splitlines():
        assert math.isfinite(strictly(line)["entropy"])
