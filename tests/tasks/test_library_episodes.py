"""Environments of other libraries that play episodes themselves: in processes, scored there, trained here."""

from typing import ClassVar, Literal

import pytest
from agent_fixtures import leaves_of, trees_of

from lyceum.core.types import Origin, Task
from lyceum.recipe.schema import load_recipe
from lyceum.reward.base import allow_code
from lyceum.rollout.agent import Agent
from lyceum.tasks import episodes
from lyceum.tasks.episodes import DATA, EPISODES, EpisodeTasks, host_of
from lyceum.tasks.verifiers import VerifiersTasks
from lyceum.training.train import check
from lyceum.utils.errors import RecipeError


class FakeTasks(EpisodeTasks):
    library: ClassVar[str] = "fake_episodes"
    kind: Literal["fake-episodes"] = "fake-episodes"
    heldout_share: float = 0.0
    prompts: tuple[str, ...]

    @property
    def name(self):
        return "fake"

    @property
    def made(self):
        return {"prompts": self.prompts, "alone": self.at_once == 1}


@pytest.fixture(autouse=True)
def fake_library(monkeypatch):
    monkeypatch.setitem(episodes.LIBRARIES, "fake_episodes", "fake_episodes")


def played(*prompts, tasks=None, **settings):
    """Rollout and leaves of one episode of each prompt."""
    source = FakeTasks(prompts=prompts, **(tasks or {})).build("train", 0)
    rollout = Agent(**{"samples": 1, "sampling": {"max_completion_tokens": 8}, **settings})
    rollout, trees = trees_of(rollout=rollout, tasks=[source[i] for i in range(len(source))], grader=source.grader())
    return rollout.metrics(trees), leaves_of(trees)


def test_the_library_plays_and_scores_and_what_it_sampled_is_trained():
    counted, leaves = played("one", "two", "three")
    assert counted["requests"] == 1
    for leaf in leaves:
        assert leaf.grade.outcome == 1.0
        assert leaf.grade.correct
        assert leaf.grade.parts == {"correct": len(leaf.completion), "limits": 64 + 8}
        assert [node.origin for node in leaf.path()] == [Origin.PROMPT, Origin.POLICY]


def test_a_reward_below_the_mark_is_not_solved():
    _, [leaf] = played("one", tasks={"solved_at": 1.5})
    assert leaf.grade.correct is False


def test_an_episode_without_a_reward_is_ungraded_and_the_others_are_not():
    counted, [good, bad, none] = played("one", "raise", "nothing")
    assert good.grade.outcome == 1.0
    assert (bad.grade.outcome, none.grade.outcome) == (None, None)
    assert "KeyError: 'no such thing'" in bad.grade.reason
    assert "the reward is nan" in none.grade.reason
    assert counted["failed"] == 2


@pytest.mark.parametrize(("prompt", "said"), [("die", "died with status 3"), ("hang", "no result within 2 seconds")])
def test_an_episode_that_takes_its_process_with_it_is_named_and_the_next_ones_are_played(prompt, said):
    source = FakeTasks(prompts=(prompt, "one"), timeout_seconds=2).build("train", 0)
    agent = Agent(samples=2, sampling={"max_completion_tokens": 8})
    _, [bad] = trees_of(rollout=agent, tasks=[source[0]], grader=source.grader())
    assert [said in leaf.grade.reason for leaf in bad.trajectories] == [True, True]
    _, [good] = trees_of(rollout=agent, tasks=[source[1]], grader=source.grader())
    assert [leaf.grade.outcome for leaf in good.trajectories] == [1.0, 1.0]


def test_an_episode_that_is_late_ends_alone():
    counted, [late, good] = played("wait", "one", timeout_seconds=3)
    assert late.grade.outcome is None
    assert "no result within 3 seconds" in late.grade.reason
    assert good.grade.outcome == 1.0
    assert counted["late"] == 1


def test_one_that_ends_at_a_limit_without_a_result_is_ungraded():
    counted, [leaf] = played("ask on", max_requests=3, sampling={"max_completion_tokens": 200})
    assert leaf.grade.outcome is None
    assert "limit" in leaf.grade.reason
    assert counted["cut"] == 1


def test_a_file_may_not_name_code_by_a_column():
    source = FakeTasks(prompts=("one",)).build("train", 0)
    column = source[0].columns[EPISODES].replace('"one"', '"two"')
    with pytest.raises(RecipeError, match="'fake' is code"):
        host_of(column)
    with allow_code(), pytest.raises(RecipeError, match="got episodes of 'os'"):
        host_of(column.replace('"library": "fake_episodes"', '"library": "os"'))
    tasks = [Task("t", ({"role": "user", "content": "one"},), None, {EPISODES: column, DATA: "one"})]
    with pytest.raises(RecipeError, match="'fake' is code"):
        trees_of(rollout=Agent(samples=1), tasks=tasks)


def test_one_process_that_plays_one_at_a_time_keeps_no_other_episode_waiting_for_the_engine(monkeypatch):
    monkeypatch.setattr(FakeTasks, "at_once", 1)
    source = FakeTasks(prompts=("one", "two")).build("train", 0)
    assert host_of(source[0].columns[EPISODES]).most == 1
    agent = Agent(samples=3, sampling={"max_completion_tokens": 8}, timeout_seconds=60)
    trees = trees_of(rollout=agent, tasks=[source[0], source[1]], grader=source.grader())[1]
    assert [leaf.grade.outcome for leaf in leaves_of(trees)] == [1.0] * 6


def test_a_share_of_the_tasks_is_held_out():
    settings = FakeTasks(prompts=tuple(f"number {i}" for i in range(200)), heldout_share=0.25, size=100)
    parts = [settings.build(split, 0) for split in ("train", "heldout")]
    ids = [{source[i].id for i in range(len(source))} for source in parts]
    assert [len(each) for each in ids] == [75, 25]
    assert not ids[0] & ids[1]
    with pytest.raises(RecipeError, match="leaves none for heldout"):
        FakeTasks(prompts=("one",)).build("heldout", 0)


def test_a_library_that_is_not_there_is_named_before_a_model_is_loaded():
    class Absent(FakeTasks):
        library: ClassVar[str] = "absent_library"

    with pytest.raises(RecipeError, match=r"absent_library is not installed; allowed: after pip install 'lyceum-rl"):
        Absent(prompts=()).build("train", 0)
    with pytest.raises(RecipeError, match="does not begin"):
        FakeTasks(prompts=("one",), python="no/such/python").build("train", 0)


def test_an_agent_of_their_own_needs_tasks_that_have_one():
    with pytest.raises(RecipeError, match=r"got neither; allowed: one, .*those of verifiers and inspect_ai"):
        check(load_recipe("grpo", ["rollout={kind: agent}"]))
    assert VerifiersTasks.model_validate({"taskset": "mine", "python": "here"}).code() == ("mine", "here")
