"""Groups that are trained as they finish: each once, none too old, whatever is lost on the way."""

import json
import os
import time
from concurrent.futures import wait

import pytest
import torch
from forked import Forked

from lyceum.core.tree import Node, Tree
from lyceum.core.types import Task
from lyceum.core.waves import Ticket, Wave
from lyceum.recipe.schema import load_recipe
from lyceum.run.reader import read_run_folder, read_summary
from lyceum.run.trees import read_trees
from lyceum.runtime import processes
from lyceum.runtime.processes import Processes
from lyceum.runtime.ready import FreeWorkers, Straggler
from lyceum.runtime.wire import Part, unpack
from lyceum.training.stages._ready import NUMBER
from lyceum.training.train import train
from lyceum.utils.errors import Interrupted, RecipeError, RunError

pytestmark = pytest.mark.usefixtures("small_scratch")

SMALL = [
    *("model=scratch", "evaluate.n=0", "track=[]", "tasks_per_step=4", "rollout.samples=4", "steps=5", "threads=1"),
    *("rollout.sampling.max_completion_tokens=6", "trees_every=1", "max_steps_without_signal=0"),
    *("runtime=processes", "runtime.order=ready", "runtime.staleness=2", "runtime.ratio=behaviour"),
]
DAPO = ["collect.keep=with-gradient", "collect.max_waves=3"]

REWARD = """
import os, signal, time
from pathlib import Path

HERE = Path(__file__).parent

def score(completion, id):
    time.sleep((hash((completion, id)) % 7) / 200)
    if (HERE / "kill").exists() and os.environ.get("LYCEUM_TEST_RUN") != str(os.getpid()):
        (HERE / "kill").rename(HERE / "kill-done")
        os.kill(os.getpid(), signal.SIGKILL)
    return sum(map(str.isdigit, completion)) / (1 + len(completion))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ready")
    (folder / "own.py").write_text(REWARD)
    return folder


@pytest.fixture
def keys(folder, monkeypatch):
    monkeypatch.setenv("LYCEUM_TEST_RUN", str(os.getpid()))
    monkeypatch.setattr(processes, "usable_cores", lambda: 4)
    reward = f"reward={json.dumps({'function': f'{folder}/own.py:score', 'processes': 0})}"
    return [*SMALL, reward, f"output={folder}", "trust_code=true"]


def trained(run, *, staleness=2, size=4, samples=4):
    """Numbers of the groups that each step trained, and of those that it dropped, all within the bound and whole."""
    of_steps, dropped = [], []
    for step, file in enumerate(sorted((run / "trees").glob("*.parquet"))):
        groups = read_trees(file).groups
        for group in groups:
            versions = [version for node in group.tree.nodes() for version in node.version]
            assert len(group.tree.trajectories) == samples
            assert group.dropped or step - staleness <= min(versions) <= max(versions) <= step
        of_steps.append([group.tree.metadata[NUMBER] for group in groups if not group.dropped])
        dropped += [group.tree.metadata[NUMBER] for group in groups if group.dropped]
    assert all(len(step) == size for step in of_steps)
    return of_steps, dropped


def each_once(run, **how):
    """Every group that was drawn was trained, or dropped by its rule; none twice."""
    steps, dropped = trained(run, **how)
    numbers = [number for step in steps for number in step] + dropped
    assert sorted(numbers) == list(range(len(numbers)))
    return steps, dropped


def test_each_group_is_trained_once_within_the_bound_and_its_metrics_say_so(keys):
    run = train(load_recipe("grpo", [*keys, "name=plain"]))
    steps, dropped = each_once(run)
    assert len(steps) == 5
    assert not dropped
    metrics = read_run_folder(run).metrics
    assert max(record.get("staleness/most", 0) for record in metrics) in (1, 2)
    assert all(0 <= record["idle/learner"] <= 1 for record in metrics)
    assert any("idle/workers" in record for record in metrics)
    assert metrics[-1]["length/trained_to_drawn"] == pytest.approx(1)
    for record, file in zip(metrics, sorted((run / "trees").glob("*.parquet")), strict=True):
        of_groups = [{v for node in group.tree.nodes() for v in node.version} for group in read_trees(file).groups]
        assert record["ahead/interrupted"] == sum(len(versions) > 1 for versions in of_groups) / len(of_groups)
    assert not (run / "ahead").exists(), "what was kept for a killed run goes with the stage"


def test_a_group_that_waits_for_its_place_is_due_by_when_it_begins(keys, folder, monkeypatch):
    (folder / "slow.py").write_text(
        "import time\n\ndef score(completion):\n    time.sleep(0.02)\n    return len(completion)"
    )
    start, told = FreeWorkers.start, {}

    def starts(self, wave, begun):
        def begins(version):
            told[wave.key[-1]] = wave.version, version
            begun(version)

        return start(self, wave, begun=begins)

    monkeypatch.setattr(FreeWorkers, "start", starts)
    reward = f"reward={json.dumps({'function': f'{folder}/slow.py:score', 'processes': 0})}"
    run = train(load_recipe("grpo", [*keys, reward, "name=places", "runtime.at_once=1"]))
    each_once(run)
    first = {}
    for file in (run / "trees").glob("*.parquet"):
        for group in read_trees(file).groups:
            first[group.tree.metadata[NUMBER]] = min(v for node in group.tree.nodes() for v in node.version)
    assert first.keys() == told.keys()
    assert all(asked <= begun <= first[number] for number, (asked, begun) in told.items())
    assert any(asked < begun for asked, begun in told.values())


def test_a_killed_worker_loses_no_group_and_shortens_none(keys, folder, caplog):
    (folder / "kill").touch()
    each_once(train(load_recipe("grpo", [*keys, *DAPO, "name=killed", "runtime.workers=2", "runtime.at_once=3"])))
    assert (folder / "kill-done").exists(), "a worker was killed while it graded"
    assert "was ended by SIGKILL: it is started again" in caplog.text


def test_a_run_that_was_stopped_samples_nothing_again_that_was_finished(keys, folder, monkeypatch):
    started, asked = {}, []
    start = FreeWorkers.start

    def starts(self, wave, **more):
        started[wave.key[-1]] = start(self, wave, **more)
        return started[wave.key[-1]]

    def after_two():
        asked.append(1)
        if len(asked) == 2:
            wait(started.values())
        return len(asked) == 2

    monkeypatch.setattr(FreeWorkers, "start", starts)
    recipe = load_recipe("grpo", [*keys, "name=stopped"])
    with pytest.raises(Interrupted):
        train(recipe, interrupted=after_two)
    steps, _ = trained(folder / "stopped")
    gone = {number for step in steps for number in step}
    assert {*started} == {*range(len(started))}
    assert len(gone) == 8 < len(started) <= 16, "at most 3 steps ahead, and the next one's"
    assert {int(file.stem) for file in (folder / "stopped" / "ahead").glob("*.group")} >= {*started} - gone
    before = {*started}
    started.clear()
    each_once(train(recipe, resume=True))
    assert not before & {*started}


def test_a_run_goes_on_that_has_nothing_left_to_sample(keys, folder, monkeypatch):
    started, start = [], FreeWorkers.start

    def starts(self, wave, **more):
        started.append(start(self, wave, **more))
        return started[-1]

    def finished():
        wait(started)
        return True

    monkeypatch.setattr(FreeWorkers, "start", starts)
    recipe = load_recipe("grpo", [*keys, "name=all", "steps=2"])
    with pytest.raises(Interrupted):
        train(recipe, interrupted=finished)
    assert len(started) == 8
    each_once(train(recipe, resume=True))
    assert len(started) == 8


def test_a_run_that_was_killed_trains_each_group_once(keys, folder):
    recipe = load_recipe("grpo", [*keys, *DAPO, "name=lost", "checkpoint_every=1", "steps=6"])
    with (folder / "said").open("wb") as said:
        process = Forked(lambda: train(recipe), said, keep=None)
    metrics = folder / "lost" / "metrics.jsonl"
    while not metrics.exists() or len(metrics.read_text().splitlines()) < 3:
        assert process.poll() is None
        time.sleep(0.05)
    process.kill()
    process.wait()
    train(recipe, resume=True)
    steps, _ = each_once(folder / "lost")
    assert len(steps) == 6


@pytest.mark.parametrize("order", ["ready", "fixed"])
def test_the_last_groups_of_an_epoch_are_trained_too(keys, folder, order):
    rows = folder / "rows.jsonl"
    rows.write_text("".join(json.dumps({"question": f"{n}+1=", "answer": str(n + 1)}) + "\n" for n in range(10)))
    own = [
        f"name=epoch-{order}",
        f"runtime.order={order}",
        f"tasks={rows}",
        "tasks.heldout_share=0",
        "epochs=1",
        "steps=100",
    ]
    run = train(load_recipe("grpo", [*keys, *own]))
    files = sorted((run / "trees").glob("*.parquet"))
    trained = [[group.tree.task.id for group in read_trees(file).groups] for file in files]
    assert [len(step) for step in trained] == [4, 4, 2]
    assert len({task for step in trained for task in step}) == 10
    assert "not_trained" not in read_summary(run)


@pytest.mark.parametrize(
    ("more", "line"),
    [
        (["runtime.ratio=step"], "nothing corrects for tokens that older weights drew; allowed: 0, or runtime.ratio="),
        (["digests=true"], "digests: got true with runtime.order 'ready'"),
        (["runtime.staleness=0"], "runtime.order: got 'ready' with runtime.staleness 0"),
        (["runtime.order=fixed", "runtime.under_way=keep"], "runtime.under_way: got 'keep' with runtime.order 'fixed'"),
        (["runtime.order=fixed", "runtime.at_once=3"], "runtime.at_once: got 3 with runtime.order 'fixed'"),
        (["replay=own"], "runtime.staleness: got 2 with replay"),
        ([*DAPO, "collect.oversample={}"], "collect.oversample: got it with runtime.order 'ready'"),
        (["engine=vllm"], "takes no new weights while samples are under way"),
    ],
)
def test_what_cannot_be_is_refused_at_once(more, line):
    with pytest.raises(RecipeError) as refused:
        load_recipe("grpo", [*SMALL, *more])
    assert any(line in each for each in refused.value.lines), refused.value.lines


class Here:
    """A stage whose guides have a state."""

    constant = ()

    def __init__(self):
        self.state = {"level": torch.zeros(1)}

    def models(self):
        return {"policies": {"weight": torch.ones(1)}}

    def states(self):
        return dict(self.state)


class Sent:
    """A worker that keeps what it is sent."""

    def __init__(self):
        self.load, self.renewals, self.parts, self.begun = 0, [], [], []
        self.blocked, self.lived = 1.0, 4.0

    def renew(self, content, files):
        self.renewals.append(unpack(content).said)

    def ask(self, wave, content, heard, begun):
        from concurrent.futures import Future

        self.load += 1
        self.begun.append(begun)
        self.parts.append(Future())
        return self.parts[-1]

    def close(self):
        pass


def test_workers_are_told_of_each_version_and_of_what_learns_between_and_share_the_groups(tmp_path):
    of = FreeWorkers(Processes(order="ready", staleness=1, workers=2), Here(), {"threads": 1})
    of.folder, of.workers = tmp_path, [Sent(), Sent()]
    of.publish(3)
    waves = [Wave(("group", 0, n), 3, 0.0, 3, (Ticket(Task(str(n), ()), 0),)) for n in range(3)]
    grown = [of.start(wave) for wave in waves[:2]]
    of.here.state["level"] = torch.ones(1)
    grown.append(of.start(waves[2]))
    for worker in of.workers:
        assert [(said["version"], float(said["state"]["level"])) for said in worker.renewals] == [(3, 0), (3, 1)]
    assert [worker.load for worker in of.workers] == [2, 1]
    tree = Tree(Task("1", ()), [Node.prompt([5])])
    of.workers[1].parts[0].set_result(Part([tree], 7, {}))
    assert grown[1].result().trees[0].task is waves[1].tickets[0].task
    assert grown[1].result().computed == 7
    assert of.idle() == 0.25
    assert of.idle() is None
    of.publish(4)
    of.publish(5)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["4-policies.safetensors", "5-policies.safetensors"]


def test_a_group_that_hangs_is_given_to_another_worker_and_counts_once(tmp_path, caplog):
    of = FreeWorkers(Processes(order="ready", staleness=1, workers=2, group_patience=0.01), Here(), {"threads": 1})
    of.folder, of.workers = tmp_path, [Sent(), Sent()]
    of.publish(0)
    begun = []
    grown = of.start(Wave(("group", 0, 0), 0, 0.0, 0, (Ticket(Task("slow", ()), 0),)), begun=begun.append)
    (group,) = of.growing
    of.workers[0].begun[0](1)
    of.hangs(group)
    of.workers[1].begun[0](2)
    assert begun == [1], "either answer may be taken: the older version counts"
    assert "the group of task 'slow' was not finished within 0.01 seconds" in caplog.text
    first, second = (worker.parts for worker in of.workers)
    assert (len(first), len(second)) == (1, 1)
    tree = Tree(Task("slow", ()), [Node.prompt([5])])
    second[0].set_result(Part([tree], 7, {}))
    first[0].set_result(Part([tree], 9, {}))
    assert grown.result().computed == 7, "the first answer counts"
    assert not of.growing
    lost = of.start(Wave(("group", 0, 1), 0, 0.0, 0, (Ticket(Task("hung", ()), 0),)))
    (group,) = of.growing
    for _ in range(3):
        of.hangs(group)
    with pytest.raises(Straggler, match=r"the group of task 'hung' was not finished .*, 3 times"):
        lost.result()


def test_what_cannot_be_sent_ends_the_run(keys, monkeypatch):
    def refused(to_run, parts, clock):
        raise TypeError("a lock; allowed: what can be written")

    monkeypatch.setattr("lyceum.training.worker.send_grown", refused)  # workers are forks
    with pytest.raises(RunError, match="a lock; allowed: what can be written"):
        train(load_recipe("grpo", [*keys, "name=unsent"]))
