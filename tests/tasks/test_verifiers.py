"""Environments of verifiers 0.4, unchanged: ``make test-engines`` installs it, with versions that it pins."""

import json
from pathlib import Path

import pytest
from agent_fixtures import SAMPLING, leaves_of, model_folder, trained_trees, trees_of

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


def test_an_environment_as_published_is_trained_by_its_own_reward(tmp_path):
    tasks = {
        "kind": "verifiers",
        "taskset": "sums_taskset",
        "agent": {"harness": {"id": "null"}},
        "python": str(PYTHON),
        "heldout_share": 0,
    }
    constraint = {"kind": "regex", "pattern": "[a-z]{4} is [2-4]"}
    rollout = {"kind": "agent", "samples": 4, "sampling": {"max_completion_tokens": 60, "constraint": constraint}}
    model = model_folder(tmp_path / "model")
    keys = [
        *(f"tasks={json.dumps(tasks)}", f"rollout={json.dumps(rollout)}", f"model={model}", "tasks_per_step=2"),
        *("steps=2", "evaluate.n=0", "track=[]", "trees_every=1", "threads=1", f"output={tmp_path}", "name=run"),
    ]
    run = train(load_recipe("grpo", keys))
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    steps = [line for line in lines if "rollout/agent/requests" in line]
    assert [(line["rollout/agent/requests"], line["ungraded"]) for line in steps] == [(1.0, 0), (1.0, 0)]
    trees, forest, gap = trained_trees(run, model, constraint)
    for leaf in leaves_of(trees):
        assert leaf.grade.outcome == float(leaf.grade.parts["correct"])
        assert leaf.grade.parts["letters"] == len(leaf.completion)
    print(f"verifiers: {len(leaves_of(trees))} episodes, {forest.n_tokens} tokens, gap {gap:.1e}")


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
