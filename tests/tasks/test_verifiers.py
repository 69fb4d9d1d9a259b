"""Environments of verifiers 0.4, unchanged: ``make test-engines`` installs it, with versions that it pins."""

import json
from pathlib import Path

import pytest
from agent_fixtures import POLICY, SAMPLING, leaves_of, model_folder, trained_trees, trees_of

from lyceum.core.types import Origin
from lyceum.recipe.schema import load_recipe
from lyceum.rollout.agent import Agent
from lyceum.tasks.verifiers import VerifiersTasks
from lyceum.training.train import train

PYTHON = Path(__file__).parents[2] / ".venv-verifiers" / "bin" / "python"
pytestmark = [
    pytest.mark.engines,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(not PYTHON.exists(), reason="verifiers is not installed: make test-engines"),
]


@pytest.fixture(autouse=True)
def here(monkeypatch):
    monkeypatch.chdir(Path(__file__).parent)


def trained(taskset, pattern, tmp_path, *, tasks_per_step=1, **limits):
    """The trees of the first step of a run of two, what the steps counted, and how they are trained."""
    tasks = {
        "kind": "verifiers",
        "taskset": taskset,
        "agent": {"harness": {"id": "null"}},
        "python": str(PYTHON),
        "heldout_share": 0,
    }
    constraint = {"kind": "regex", "pattern": pattern}
    sampling = {"max_completion_tokens": 200, "constraint": constraint}
    rollout = {"kind": "agent", "samples": 4, "sampling": sampling, **limits}
    model = model_folder(tmp_path / "model")
    keys = [
        *(f"tasks={json.dumps(tasks)}", f"rollout={json.dumps(rollout)}", f"model={model}"),
        *("steps=2", "evaluate.n=0", "track=[]", "trees_every=1", "threads=1", f"output={tmp_path}", "name=run"),
        *("max_steps_without_signal=0", f"tasks_per_step={tasks_per_step}"),
    ]
    run = train(load_recipe("grpo", keys))
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    steps = [line for line in lines if "rollout/agent/requests" in line]
    assert [(line["ungraded"], line["rollout/agent/failed"]) for line in steps] == [(0, 0), (0, 0)]
    trees, forest, gap = trained_trees(run, model, constraint)
    print(f"{taskset}: {len(leaves_of(trees))} episodes, {forest.n_tokens} tokens, gap {gap:.1e}")
    return trees, [line["rollout/agent/requests"] for line in steps]


def test_an_environment_is_trained_by_its_own_reward(tmp_path):
    trees, requests = trained("sums_taskset", "[a-z]{4} is [2-4]", tmp_path, tasks_per_step=2)
    assert requests == [1.0, 1.0]
    for leaf in leaves_of(trees):
        assert leaf.grade.outcome == float(leaf.grade.parts["correct"])
        assert leaf.grade.parts["letters"] == len(leaf.completion)


# Published by its authors, who test verifiers with them: a question, a user who is simulated, tools of an MCP server.
def test_a_published_environment_of_one_turn_is_trained_unchanged(tmp_path):
    trees, requests = trained("echo_v1", "hello world|ping|verifiers|other", tmp_path)
    assert requests == [1.0, 1.0]
    for tree in trees:
        asked = tree.task.messages[-1]["content"]
        for leaf in leaves_of([tree]):
            assert leaf.grade.outcome == float(asked.endswith(leaf.completion))


def test_a_published_environment_with_a_simulated_user_is_trained_unchanged(tmp_path):
    trees, requests = trained("echo_user_sim_v1", "hello world|goodbye world", tmp_path)
    assert requests == [2.0, 2.0]
    for leaf in leaves_of(trees):
        said = [POLICY.tokenizer.decode(node.tokens) for node in leaf.path() if node.origin is Origin.POLICY]
        echoed = sum(asked in text for asked, text in zip(("hello world", "goodbye world"), said, strict=True))
        assert leaf.grade.outcome == echoed / 2


def test_a_published_environment_with_tools_of_a_server_is_trained_unchanged(tmp_path):
    call = r'[a-m]<tool_call>\{"name": "counter_bump", "arguments": \{\}\}</tool_call>'
    trees, requests = trained("counter_tool_v1", f"{call}|[n-z] is done", tmp_path, max_requests=6)
    assert max(requests) > 1, "no tool was called"
    for leaf in leaves_of(trees):
        answers = sum(node.origin is Origin.TOOL for node in leaf.path())
        assert leaf.grade.outcome == float(answers >= 2)


def test_a_reward_that_raises_hangs_or_dies_is_named_and_the_run_goes_on():
    settings = {"taskset": "hostile_taskset", "python": str(PYTHON), "heldout_share": 0.0, "timeout_seconds": 20}
    source = VerifiersTasks.model_validate(settings).build("train", 0)
    tasks = {source[i].messages[0]["content"]: source[i] for i in range(len(source))}

    def played(prompt, **limits):
        agent = Agent(**{"samples": 2, "sampling": SAMPLING, **limits})
        return leaves_of(trees_of(rollout=agent, tasks=[tasks[prompt]], grader=source.grader())[1])

    for prompt, said in {"raise": "KeyError", "die": "died with status 3", "hang": "no result within 20 s"}.items():
        for leaf in played(prompt):
            assert leaf.grade.outcome is None
            assert said in leaf.grade.reason
        assert [leaf.grade.outcome for leaf in played("good")] == [2.0, 2.0]
    assert [leaf.grade.outcome for leaf in played("good", max_requests=1)] == [1.0, 1.0], "scored as it stands"
