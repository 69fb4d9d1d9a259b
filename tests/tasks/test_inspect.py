"""Tasks of Inspect, unchanged: ``make test-engines`` installs it."""

import importlib.util
from pathlib import Path

import pytest
from agent_fixtures import leaves_of, trees_of

from lyceum.core.types import Origin, Sampling
from lyceum.engine.constraint.regex import RegexConstraint
from lyceum.rollout.agent import Agent
from lyceum.tasks.inspect import InspectTasks
from lyceum.utils.errors import RecipeError

FILE = Path(__file__).parent / "sums_inspect.py"
pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        importlib.util.find_spec("inspect_ai") is None, reason="inspect_ai is not installed: make test-engines"
    ),
]


def test_a_task_as_published_is_played_and_scored_by_itself():
    settings = InspectTasks(task=f"{FILE}@sums", arguments={"count": 2}, processes=2, heldout_share=0.0)
    source = settings.build("train", 0)
    assert [(source[i].messages[0]["content"], source[i].answer) for i in range(2)] == [
        ("What is 0+2?", "2"),
        ("What is 1+2?", "3"),
    ]
    constraint = RegexConstraint(pattern="It is [23]")
    rollout = Agent(samples=3, sampling=Sampling(max_completion_tokens=20, constraint=constraint))
    rollout, trees = trees_of(rollout=rollout, tasks=[source[0], source[1]], grader=source.grader())
    assert rollout.metrics(trees)["requests"] == 1
    for tree in trees:
        for leaf in tree.trajectories:
            right = float(tree.task.answer in leaf.completion)
            assert leaf.grade.outcome == right
            assert leaf.grade.parts == {"includes": right, "match": right}
            assert [node.origin for node in leaf.path()] == [Origin.PROMPT, Origin.POLICY]
            assert "Answer in a word." in leaf.root.text
    assert {leaf.grade.outcome for leaf in leaves_of(trees)} == {0.0, 1.0}


def test_one_that_is_not_there_is_named():
    with pytest.raises(RecipeError, match=r"inspect .* does not begin"):
        InspectTasks(task=f"{FILE}@no_such").build("train", 0)
