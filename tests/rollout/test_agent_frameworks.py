"""Agents of other frameworks, unchanged, trained for two steps: ``make test-engines`` installs them."""

import importlib.util
import json
from pathlib import Path

import pytest
from agent_fixtures import model_folder, trained_trees

from lyceum.core.types import Origin
from lyceum.recipe.schema import load_recipe
from lyceum.training.train import train

FILE = Path(__file__).parent / "framework_agents.py"
CALL = r'[a-m]<tool_call>\{{"name": "{name}", "arguments": \{{{arguments}\}}\}}</tool_call>'
TIMES = CALL.format(name="times", arguments=r'"a": [1-9], "b": [1-9]')
ENDS = CALL.format(name="final_answer", arguments=r'"answer": "[1-9]"').replace("a-m", "n-z")
ANSWER = r"[n-z] is [1-9]\."
CODE = r"[a-m]\n<code>\nprint\(times\([1-9], [1-9]\)\)\n</code>|[n-z]\n<code>\nfinal_answer\([1-9]\)\n</code>"
FRAMEWORKS = {
    "langgraph": ("langgraph", f"{TIMES}|{ANSWER}"),
    "openai_agents": ("agents", f"{TIMES}|{ANSWER}"),
    "openai_agents_responses": ("agents", f"{TIMES}|{ANSWER}"),
    "pydantic_ai": ("pydantic_ai", f"{TIMES}|{ANSWER}"),
    "smolagents_tools": ("smolagents", f"{TIMES}|{ENDS}"),
    "smolagents_code": ("smolagents", CODE),
}
"""Agent -> its package, and what a model of random weights may say: calls of its tools, and answers."""


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return model_folder(tmp_path_factory.mktemp("model"))


@pytest.mark.engines
@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_frameworks_first_example_is_trained_unchanged(name, model, tmp_path):
    package, pattern = FRAMEWORKS[name]
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed: make test-engines")
    constraint = {"kind": "regex", "pattern": pattern}
    rollout = {
        "kind": "agent",
        "function": f"{FILE}:{name}",
        "samples": 4,
        "max_requests": 6,
        "sampling": {"max_completion_tokens": 600, "constraint": constraint},
    }
    keys = [
        *(f"rollout={json.dumps(rollout)}", f"model={model}", "tasks_per_step=2", "steps=2", "evaluate.n=0"),
        *("track=[]", "trees_every=1", "threads=1", f"output={tmp_path}", "name=run"),
        *('reward={kind: regex, pattern: "8", match: search}', "digests=true"),
    ]
    run = train(load_recipe("grpo", keys))
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    steps = [line for line in lines if "rollout/agent/requests" in line]
    assert len(steps) == 2
    for line in steps:
        counted = {what: line[f"rollout/agent/{what}"] for what in ("failed", "late", "silent", "vanished")}
        assert counted == {"failed": 0, "late": 0, "silent": 0, "vanished": 0}
    assert sum(line["rollout/agent/requests"] for line in steps) > 2, "tools are called"
    trees, forest, gap = trained_trees(run, model, constraint)
    sampled = int((forest.origin == int(Origin.POLICY)).sum())
    leaves = [leaf for tree in trees for leaf in tree.trajectories]
    print(
        f"{name}: {[line['rollout/agent/requests'] for line in steps]} requests and "
        f"{sum(len(leaf.episode) for leaf in leaves) / len(leaves):g} leaves an episode, {sampled} tokens sampled, "
        f"rows {sum(len(each.path_tokens()) for leaf in leaves for each in leaf.episode)} -> {forest.n_tokens} tokens, "
        f"gap {gap:.1e}"
    )
