"""Agents of other frameworks, unchanged, trained for two steps: ``make test-engines`` installs them."""

import importlib.util
import json
from pathlib import Path

import pytest
import torch
from chat_templates import QWEN3, chat_tokenizer
from tiny_models import plain_model

from lyceum.core.forest import build_forest
from lyceum.core.types import Origin
from lyceum.engine.constraint.regex import RegexConstraint
from lyceum.learner.local import LocalConfig
from lyceum.models.load import ModelSettings, load_policy
from lyceum.recipe.schema import load_recipe
from lyceum.run.trees import read_trees
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
    folder, tokenizer = tmp_path_factory.mktemp("model"), chat_tokenizer(QWEN3)
    vocabulary = {"vocab_size": len(tokenizer), "eos_token_id": tokenizer.eos_token_id}
    plain_model("qwen3", spread=0.15, **vocabulary, max_position_embeddings=32768).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


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
    policy = load_policy(ModelSettings(path=str(model)))
    trees = [group.tree for group in read_trees(sorted(run.glob("trees/*"))[0]).groups]
    forest = build_forest(trees, temperature=1.0, constraint=RegexConstraint(**constraint).build(policy))
    of_policy, rows = forest.origin == int(Origin.POLICY), forest.rows()
    sampled = sum(len(node.tokens) for tree in trees for node in tree.nodes() if node.origin is Origin.POLICY)
    assert of_policy.sum() == sampled
    assert torch.equal(forest.trainable(rows), rows.gather(of_policy.long()).bool()), "all that was sampled is trained"
    learner = LocalConfig().build(policy, total_steps=1, needs=frozenset({"old_logprob"}))
    learned = learner.annotate(forest, frozenset({"old_logprob"})).columns["old_logprob"]
    gap = (learned[of_policy] - forest.behaviour_logprob[of_policy]).abs().max()
    leaves = [leaf for tree in trees for leaf in tree.trajectories]
    print(
        f"{name}: {[line['rollout/agent/requests'] for line in steps]} requests and "
        f"{sum(len(leaf.episode) for leaf in leaves) / len(leaves):g} leaves an episode, {sampled} tokens sampled, "
        f"rows {sum(len(each.path_tokens()) for leaf in leaves for each in leaf.episode)} -> {forest.n_tokens} tokens, "
        f"gap {gap:.1e}"
    )
    assert gap < 3e-5
