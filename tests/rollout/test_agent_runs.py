"""Whole runs of an agent's file, as a recipe names it."""

import json

import pytest

from lyceum.analysis.differences import first_difference, read_digests
from lyceum.recipe.schema import load_recipe
from lyceum.training.train import train
from lyceum.utils.errors import Interrupted, RecipeError

pytestmark = pytest.mark.usefixtures("small_scratch")

FILE = """
import json
import threading
import time
import urllib.request


def solve(base_url, api_key, prompt, answer, seed):
    messages = [{"role": "user", "content": prompt}]
    for turn in range(2):
        body = json.dumps({"messages": messages, "max_tokens": 12}).encode()
        request = urllib.request.Request(base_url + "/chat/completions", body, {"Authorization": "Bearer " + api_key})
        with urllib.request.urlopen(request) as reply:
            said = json.load(reply)["choices"][0]["message"]
        time.sleep(seed % 5 * 0.002)
        # Every third one forgets what it was told, and is an episode of two rows.
        messages = (messages if seed % 3 else []) + [said, {"role": "user", "content": prompt}]
    return {"reward": len(said["content"] or "") % 3, "correct": True}
"""
TINY = [
    *("model=scratch", "tasks_per_step=3", "rollout.samples=4", "evaluate.n=2", "evaluate.k=[1]", "evaluate.samples=2"),
    *("evaluate.greedy=false", "track=[]", "trees_every=1", "digests=true", "checkpoint_every=1", "threads=1"),
]


@pytest.fixture
def run(tmp_path):
    (tmp_path / "my_agent.py").write_text(FILE)
    rollout = (
        f"rollout={{kind: agent, function: {tmp_path}/my_agent.py:solve, sampling: {{max_completion_tokens: 30}}}}"
    )

    def start(name, *keys, **how):
        return train(load_recipe("grpo", [rollout, *TINY, *keys, f"output={tmp_path}", f"name={name}"]), **how)

    return start


def test_a_run_trains_and_evaluates_an_agent_and_resumes_to_the_same_bits(run):
    whole = run("whole", "steps=3")
    summary = json.loads((whole / "summary.json").read_text())
    assert summary["after"]["overall"]["mean"] == 1.0, "as the agent says it, and no single completion would be"
    assert summary["by_clock"] is False
    lines = [json.loads(line) for line in (whole / "metrics.jsonl").read_text().splitlines()]
    steps = [line for line in lines if "rollout/agent/requests" in line]
    assert [line["rollout/agent/requests"] for line in steps] == [2.0] * 3
    assert all(1.0 < line["rollout/agent/leaves"] <= 2.0 for line in steps)
    assert all(line["rollout/agent/failed"] == 0 for line in steps)
    with pytest.raises(Interrupted):
        run("stopped", "steps=3", interrupted=iter([True]).__next__)
    assert first_difference(read_digests(whole), read_digests(run("stopped", "steps=3", resume=True))) is None


def test_a_file_may_not_name_an_agent_that_nobody_has_typed(tmp_path):
    for of in ("function: my_agent.py:solve", "program: [python3, my_agent.py]"):
        (tmp_path / "recipe.yaml").write_text(f"extends: grpo\nstages:\n  - rollout: {{kind: agent, {of}}}\n")
        with pytest.raises(RecipeError, match="trust_code: the recipe wants to run"):
            load_recipe(str(tmp_path / "recipe.yaml"), [])


def test_what_takes_rows_for_trajectories_is_refused(run):
    with pytest.raises(RecipeError, match=r"takes each row for a trajectory, but rollout\.kind 'agent'"):
        run("gae", "credit=gae")
    with pytest.raises(RecipeError, match="but an agent writes its own prompts"):
        load_recipe("ghpo", ["rollout={kind: agent, program: python3 a.py}"])
