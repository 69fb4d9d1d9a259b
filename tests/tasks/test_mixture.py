import asyncio
from collections import Counter

import pytest
from fake_task import NO_MODEL
from hypothesis import given
from hypothesis import strategies as st

from lyceum.analysis.run_plan import brief
from lyceum.core.solution import ladder_of
from lyceum.core.tree import Node
from lyceum.core.types import Origin
from lyceum.tasks.countdown import Countdown
from lyceum.tasks.logic import Logic
from lyceum.tasks.mixture import Mixture, spread
from lyceum.utils.errors import RecipeError, errors_name


@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=5))
def test_shares_are_kept_within_one_task_at_every_moment(weights: list[float]):
    # Behind its share by a whole task would be a source that comes in bursts.
    pattern = spread(weights, 200)
    for end in (1, 10, 57, 200):
        for source, weight in enumerate(weights):
            assert abs(pattern[:end].count(source) - end * weight / sum(weights)) < len(weights)


def test_three_to_one():
    # Behind after each place: (0.75, 0.25) -> 0; (0.5, 0.5) -> 0; (0.25, 0.75) -> 1; (1, 0) -> 0.
    assert spread([3, 1], 8) == [0, 0, 1, 0, 0, 0, 1, 0]


def test_every_task_of_each_source_comes_once_before_any_comes_again():
    parts = [{"tasks": {"kind": "countdown", "size": 30}, "weight": 3}, {"tasks": {"kind": "logic", "size": 10}}]
    source = Mixture.model_validate({"parts": parts}).build("train", 0)
    assert len(source) == 40
    ids = Counter(source[index].id for index in range(40))
    assert set(ids.values()) == {1}
    longer = Mixture.model_validate({"parts": parts, "size": 2500}).build("train", 0)
    assert Counter(longer[index].id for index in range(2000))["1:logic/train/0/7"] == 50  # 500 draws of 10 tasks


def test_equal_sources_have_different_ids_and_each_task_its_own_verifier():
    settings = Mixture.model_validate({"parts": [{"tasks": "countdown"}, {"tasks": "logic"}, {"tasks": "countdown"}]})
    source = settings.build("heldout", 4)
    tasks = [source[index] for index in range(6)]
    assert len({task.id for task in tasks}) == 6
    assert tasks[0].messages == Countdown().build("heldout", 4)[0].messages
    assert tasks[1].messages == Logic().build("heldout", 4)[0].messages

    async def right(task):
        text = f"<answer>{task.columns.get('solution', task.answer)}</answer>"
        leaf = Node(Node(None, [1], Origin.PROMPT), [2], Origin.POLICY, finish="stop", text=text)
        return await source.grader()(task, [leaf], NO_MODEL)

    assert [asyncio.run(right(task))[0].outcome for task in tasks] == [1.0] * 6
    hinted = source.hinted(tasks[1], ladder_of(tasks[1])[0])
    assert hinted.id == tasks[1].id
    assert "Hint: " in hinted.messages[0]["content"]


def test_an_error_of_a_source_names_its_part(tmp_path):
    part = {"tasks": {"kind": "dataset", "path": str(tmp_path / "missing.jsonl")}}
    mixture = Mixture.model_validate({"parts": [{"tasks": {"kind": "countdown"}}, part]})
    with pytest.raises(RecipeError, match=r"^tasks\.parts\.1\.tasks\.path: "):
        mixture.check_paths()
    with pytest.raises(RecipeError, match=r"^tasks\.parts\.1\.tasks\.path: "):
        mixture.build("train", 0)
    with (
        pytest.raises(RecipeError, match=r"^evaluate\.tasks\.parts\.1\.tasks\.path: "),
        errors_name("evaluate.tasks", "tasks"),
    ):
        mixture.check_paths()


def test_a_mixture_is_described_by_its_sources():
    parts = [{"tasks": {"kind": "countdown", "levels": [2, 3]}, "weight": 2}, {"tasks": {"kind": "chain"}}]
    assert brief(Mixture.model_validate({"parts": parts})) == (
        "mixture: parts countdown: levels 2, 3 (weight 2.0) + chain"
    )
