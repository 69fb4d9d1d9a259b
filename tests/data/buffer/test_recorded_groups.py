"""An online stage that trains recorded groups beside its own: which, how old, against which probabilities."""

import asyncio
import json
from types import SimpleNamespace
from typing import Literal

import pytest
import torch

from lyceum.analysis.differences import read_digests
from lyceum.analysis.replay import Replay
from lyceum.core.group import Group
from lyceum.core.settings import RewardSettings
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Continuation, Grade, Grader, Task, TaskSource
from lyceum.data.buffer.own import Own
from lyceum.papers.sapo.buffer_shared import WARN_AFTER_STEPS
from lyceum.recipe.schema import load_recipe, parse
from lyceum.reward.base import each
from lyceum.run.trees import read_trees
from lyceum.training.train import train
from lyceum.utils.errors import RecipeError

pytestmark = pytest.mark.usefixtures("small_scratch")


class Digits(RewardSettings):
    """The share of digits among what was written: an untrained model's samples differ in it."""

    kind: Literal["test-replay-digits"] = "test-replay-digits"

    def build(self, source: TaskSource) -> Grader:
        return each(lambda task, leaf: Grade(sum(map(str.isdigit, leaf.completion)) / (1 + len(leaf.completion))))


ONLINE = {
    "kind": "online",
    "steps": 4,
    "tasks_per_step": 4,
    "rollout": {"kind": "flat", "samples": 3, "sampling": {"max_completion_tokens": 4}},
    "learner": {"lr": 1e-2},
}
RUN = {
    "model": "scratch",
    "tasks": {"kind": "chain", "levels": [1, 2]},
    "reward": "test-replay-digits",
    "evaluate": {"n": 0},
    "track": [],
}


def trained(folder, name="run", replay=None, run=None, **stage):
    stages = [ONLINE | stage | ({} if replay is None else {"replay": replay})]
    return train(parse(RUN | (run or {}) | {"name": name, "output": str(folder), "stages": stages}))


def lines_of(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def column(run, name):
    return [line.get(name) for line in lines_of(run)]


def test_they_take_the_place_of_sampled_groups(tmp_path):
    run = trained(tmp_path, replay={"kind": "own", "instead": True, "max_age": 2})
    assert column(run, "replay/groups") == [0, 2, 2, 2]
    assert column(run, "groups") == [4, 2, 2, 2]
    assert all(1 <= age <= 2 for age in column(run, "replay/age")[1:])
    assert column(run, "replay/stored") == [4, 6, 8, 10]


def test_beside_the_steps_own_they_change_what_is_learnt_and_not_what_is_sampled_first(tmp_path):
    with_them, without = (trained(tmp_path, str(i), replay) for i, replay in enumerate(({"kind": "own"}, None)))
    assert column(with_them, "groups") == column(without, "groups") == [4] * 4
    assert column(with_them, "loss")[0] == column(without, "loss")[0]
    assert column(with_them, "loss")[1] != column(without, "loss")[1]
    assert column(with_them, "tokens_sampled")[0] == column(without, "tokens_sampled")[0]


def test_ratios_are_to_the_probabilities_under_which_they_were_sampled(tmp_path):
    # At the first update the policy is that at the start of the step: a ratio other than 1 is to an older one.
    behaviour, step = (
        trained(tmp_path, ratio, {"kind": "own", "ratio": ratio}, steps=2) for ratio in ("behaviour", "step")
    )
    assert column(step, "ratio")[1] == pytest.approx(1, abs=1e-6)
    assert abs(column(behaviour, "ratio")[1] - 1) > 1e-3
    assert column(behaviour, "replay/ratio")[1] == pytest.approx(column(step, "replay/ratio")[1])
    assert (column(behaviour, "ratio")[1] - 1) * (column(behaviour, "replay/ratio")[1] - 1) > 0


def group(number: int, *rewards: float, advantage: float = 1.0) -> Tree:
    root = Node.prompt([number])
    for reward in rewards:
        root.add_drawn(Continuation([7, number], [-0.5, -1.5], [-0.5, -1.5], [0, 0], "stop")).grade = Grade(reward)
    return Tree(Task(f"task-{number}", ()), [root], mean_abs_advantage=advantage)


def stored(folder, steps: int, *trees: Tree, share: int = 2, first_step: int = 0, **how) -> list[list[Group]]:
    """What each step draws of a store into which each puts these groups."""
    folder.mkdir(exist_ok=True)
    sampled = SimpleNamespace(observe=lambda done, groups: None)
    replay = Own(**how).build(sampled, folder, seed=1, stage=0, first_step=first_step)
    found = []
    for done in range(steps):
        found.append(replay.draw(done, share))
        replay.observe(done + 1, [Group(tree) for tree in trees])
    return found


FOUR = [group(number, 0.0, 1.0) for number in range(4)]


@pytest.mark.parametrize(
    ("how", "groups"),
    [
        ({"every": 2}, [0, 2, 0, 2]),
        ({"after": 2}, [0, 0, 2, 2]),
        ({"warm_up": 2}, [0, 0, 2, 2]),
        ({"least": 5}, [0, 0, 2, 2]),
        ({"share": 9}, [0, 4, 8, 9]),
        ({"share": 9, "once": True}, [0, 4, 4, 4]),
        ({"share": 9, "once": True, "most": 3}, [0, 3, 3, 3]),
        ({"share": 9, "max_age": 2}, [0, 4, 8, 8]),
    ],
)
def test_when_and_how_many_are_drawn(how, groups, tmp_path):
    assert [len(drawn) for drawn in stored(tmp_path, 4, *FOUR, **how)] == groups


class Given:
    """As many finished groups as are asked for, and one that goes on."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    async def take(self, done, size):
        self.sizes.append(size)
        return [*(Group(tree) for tree in FOUR[:size]), Group(FOUR[0], finished=False, dropped=True)]

    def observe(self, done, groups):
        """Nothing learns."""


def test_recorded_groups_stand_behind_those_that_are_finished(tmp_path):
    sampled = Given()
    replay = Own(instead=True, share=0.5, warm_up=1).build(sampled, tmp_path, seed=1, stage=0, first_step=0)
    first = asyncio.run(replay.take(0, 4))
    replay.observe(1, first)
    second = asyncio.run(replay.take(1, 4))
    assert [each.stored for each in first] == [True] * 5
    assert [(each.age, each.finished, each.stored) for each in second] == [
        *[(0, True, False)] * 2,
        *[(1, True, False)] * 2,
        (0, False, False),
    ]
    assert sampled.sizes == [4, 2]


def test_the_newest_are_the_step_before(tmp_path):
    *_, last = stored(tmp_path, 4, *FOUR, share=4, priority="newest", first_step=10)
    assert [(each.tree.task.id, each.age) for each in last] == [(f"task-{i}", 1) for i in range(4)]
    assert sorted(file.name for file in (tmp_path / "replay").iterdir())[0] == "step-000011.parquet"


def test_groups_are_stored_that_can_be_used(tmp_path):
    trees = [group(0, 0.0, 0.0), group(1, 0.0, 1.0), group(2, 1.0, 1.0), group(3)]
    for keep, expected in {"all": [0, 1, 2], "with-gradient": [1], "solved": [1, 2]}.items():
        (_, drawn) = stored(tmp_path / keep, 2, *trees, share=9, keep=keep)
        assert [each.tree.task.id for each in drawn] == [f"task-{i}" for i in expected]


def test_draws_follow_the_advantage_and_come_back_as_they_were(tmp_path):
    trees = [group(0, 0.0, 1.0, advantage=0.0), group(1, 0.0, 1.0, advantage=0.5)]
    (_, (drawn,)) = stored(tmp_path, 2, *trees, share=9, priority="advantage")
    assert drawn.tree.task.id == "task-1"
    assert drawn.age == 1
    assert [leaf.behaviour_logprob for leaf in drawn.tree.trajectories] == [[-0.5, -1.5]] * 2
    assert drawn.tree.sampled_tokens == 0  # not by the step that draws it


def test_another_run_trains_on_what_one_has_stored(tmp_path):
    first = trained(tmp_path, "first", {"kind": "own"}, steps=2)
    data = {"kind": "recorded", "path": str(first)}
    offline = {"kind": "offline", "steps": 1, "tasks_per_step": 8, "data": data, "objective": "ppo-clip"}
    run = train(parse(RUN | {"name": "second", "output": str(tmp_path), "stages": [offline]}))
    assert column(run, "data/groups") == [8]


def test_nodes_share_what_they_sample(tmp_path):
    names = ["one", "two", "alone"]
    shared = {"kind": "shared", "runs": [str(tmp_path / name) for name in (*names[:2], "nobody")], "max_age": 1}
    one, two = (
        trained(tmp_path, name, shared, {"trees_every": 1, "seed": seed}) for seed, name in enumerate(names[:2])
    )
    assert column(one, "replay/groups") == [0, 0, 0, 0]  # there is nobody yet, and its own are none of another's
    assert column(two, "replay/groups") == [2, 0, 0, 0]  # of what was there as it began: older than a step after it
    assert column(two, "replay/files") == [4] * 4
    assert column(two, "groups") == [2, 4, 4, 4]
    later = trained(tmp_path, "alone", shared | {"max_age": None, "keep": "with-gradient"})
    assert column(later, "replay/groups") == [2, 2, 2, 2]
    # What node two replayed stands in its file of that step, and is not shared a second time.
    recorded = [group for file in (two / "trees").iterdir() for group in read_trees(file).groups]
    assert sum(group.age > 0 for group in recorded) == 2
    assert column(later, "replay/stored")[0] <= 4 * 4 + 14


def test_a_damaged_file_of_another_run_is_refused_before_anything_is_written(tmp_path):
    one = trained(tmp_path, "one", run={"trees_every": 1}, steps=2)
    file = sorted((one / "trees").iterdir())[-1]
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(RecipeError, match=file.name):
        trained(tmp_path, "two", {"kind": "shared", "runs": [str(one)]})
    assert not (tmp_path / "two").exists()


def test_a_step_with_recorded_groups_can_be_replayed_by_the_command(tmp_path):
    run = trained(tmp_path, replay={"kind": "own"}, run={"trees_every": 1, "checkpoint_every": 1}, steps=2)
    found = Replay.of(run, 2, [])()
    assert found.own.gradients.loss == pytest.approx(column(run, "loss")[1], rel=1e-4)
    assert found.forest.columns["age"].unique().tolist() == [0, 1]
    assert torch.equal(found.own.credited.advantage, found.other.credited.advantage)


PPO = {"credit": {"kind": "gae"}, "objective": {"kind": "ppo-clip", "value_coefficient": 0.5}}


def test_a_warm_up_stores_what_the_policy_that_enters_samples_and_trains_nothing(tmp_path):
    of_learner = {"objective": {"kind": "oreo"}, "kind": "offline", "name": "before", "steps": 1, "tasks_per_step": 1}
    offline = ONLINE | of_learner | {"data": {"kind": "sampled", "tasks": 1}}
    online = ONLINE | PPO | {"steps": 3, "value_head": "current", "replay": {"kind": "own", "warm_up": 2}}
    keys = RUN | {"output": str(tmp_path), "name": "run", "stages": [offline, online], "digests": True}
    run = train(parse(keys))
    assert column(run, "replay/warm_up") == [None, 4, 4, 0]
    assert column(run, "replay/groups") == [None, 0, 0, 2]
    assert column(run, "value_loss")[1:3] == [None, None]
    weights = [of["weights"] for of in read_digests(run).values()]
    assert weights[0] == weights[1] == weights[2] != weights[3]


def test_a_value_head_of_the_stage_before_it_is_needed():
    with pytest.raises(RecipeError, match=r"stages\.1\.value_head: .* stage 'online' before this one leaves none"):
        parse(RUN | {"stages": [ONLINE, ONLINE | PPO | {"value_head": "current"}]})
    with pytest.raises(RecipeError, match=r"value_head: .* there is no stage before this one"):
        parse(RUN | {"stages": [ONLINE | PPO | {"value_head": "current"}]})


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        (["replay={kind: own, instead: true}", "tasks_per_step=1"], r"replay\.instead: got true, but a step has one"),
        (["replay={kind: own, share: 0}"], r"replay\.share: got 0"),
        (["replay={kind: shared}"], r"replay\.runs: missing"),
        (["replay={kind: own, most: 3, least: 10}"], r"least: got 10, but most is 3, so that none is drawn"),
        (["replay={kind: own, warm_up: 5}", "steps=5"], r"replay\.warm_up: got 5, but the stage has 5 steps"),
        (["replay={kind: own, warm_up: 1, priority: advantage}"], r"replay\.warm_up: got 1 with priority 'advantage'"),
        (["value_head=current"], r"value_head: got 'current', but objective\.kind 'ppo-clip' trains no value head"),
        (["replay=buffer"], r"replay\.kind: got 'buffer'; allowed: own, shared"),
        (
            ["replay={kind: shared, runs: [x]}", "rollout.sampling.constraint={kind: regex, pattern: a}"],
            r"replay\.kind: got 'shared' with rollout\.sampling\.constraint",
        ),
    ],
)
def test_what_cannot_be_is_refused(keys, why):
    with pytest.raises(RecipeError, match=why):
        load_recipe("grpo", keys)


@pytest.mark.parametrize("folder", [".", "model"])
def test_a_folder_that_holds_no_run_is_refused_before_a_model_is_loaded(tmp_path, folder):
    (tmp_path / "model").mkdir()
    (tmp_path / "model/config.json").write_text("{}")
    with pytest.raises(RecipeError, match=r"replay\.runs: .* is no run of lyceum; allowed: folders of runs"):
        trained(tmp_path / "out", "alone", {"kind": "shared", "runs": [str(tmp_path / folder)]}, steps=1)


def test_a_replay_and_roles_are_refused():
    with pytest.raises(RecipeError, match=r"replay: got 'own' with guidance 'pioneer-observer'"):
        load_recipe("cory", ["replay=own"])


def test_a_run_that_finds_no_other_says_so_once(tmp_path, caplog):
    shared = {"kind": "shared", "runs": [str(tmp_path / "nobody"), str(tmp_path / "alone")]}
    trained(tmp_path, "alone", shared, {"trees_every": 1}, steps=WARN_AFTER_STEPS + 2)
    said = [record.getMessage() for record in caplog.records if record.getMessage().startswith("replay.runs")]
    assert len(said) == 1
    assert f"after {WARN_AFTER_STEPS} steps no other run has written a group" in said[0]
    caplog.clear()
    trained(tmp_path, "beside", shared, {"trees_every": 1}, steps=WARN_AFTER_STEPS + 2)
    assert "replay.runs" not in caplog.text


def test_sapo_is_among_the_runs_of_its_own_list():
    recipe = load_recipe("sapo")
    replay = recipe.stages[0].composition().replay
    assert f"runs/{recipe.name}" in replay.runs
