"""Trees that grow in processes of their own: the same bits, whatever the clock and the operating system do."""

import json
import os
import time
from collections import Counter
from pathlib import Path

import pytest
import safetensors.torch
import torch
from ended_processes import has_ended
from forked import Forked

from lyceum.analysis.differences import first_difference, read_digests
from lyceum.analysis.run_plan import crowded_notes, stage_line
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Continuation, Task
from lyceum.core.waves import Grown, Wave
from lyceum.learner.local import LocalLearner
from lyceum.models.weights import load_trained
from lyceum.recipe.schema import load_recipe
from lyceum.run.reader import read_run_folder, read_summary
from lyceum.run.trees import read_trees
from lyceum.runtime import _worker, processes
from lyceum.runtime.processes import Processes, Workers, read_state, write_state
from lyceum.runtime.wire import pack, unpack
from lyceum.training.train import train
from lyceum.utils.errors import Interrupted, RecipeError, RunError
from lyceum.utils.threads import usable_cores

SMALL = [
    *("model=scratch", "evaluate.n=0", "track=[]", "tasks_per_step=4", "rollout.samples=4", "digests=true", "steps=5"),
    *("rollout.sampling.max_completion_tokens=6", "threads=1", "trees_every=1"),
]
DAPO = ["collect.keep=with-gradient", "collect.max_waves=3"]
AHEAD = [*DAPO, "runtime=processes", "runtime.staleness=2", "runtime.ratio=behaviour"]

REWARD = """
import os, signal, time
from pathlib import Path
from types import SimpleNamespace

HERE = Path(__file__).parent

def score(completion, id):
    for what in ("slow", "kill", "hang"):
        # Only in a worker, and in the one task that the test names: each once.
        file = HERE / what
        if file.exists() and os.environ.get("LYCEUM_TEST_RUN") != str(os.getpid()):
            if what == "slow":
                time.sleep((hash((completion, os.getpid())) % 7) / 100)
            else:
                file.rename(HERE / f"{what}-done")
                os.kill(os.getpid(), signal.SIGKILL) if what == "kill" else time.sleep(1000)
    return sum(map(str.isdigit, completion)) / (1 + len(completion))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("workers")
    (folder / "own.py").write_text(REWARD)
    return folder


@pytest.fixture
def run(folder, monkeypatch):
    """Trains, each name once, by a reward that can be told to be slow, to be killed or to hang in a worker."""
    monkeypatch.setenv("LYCEUM_TEST_RUN", str(os.getpid()))
    monkeypatch.setattr(processes, "usable_cores", lambda: 4)
    reward = f"reward={json.dumps({'function': f'{folder}/own.py:score', 'processes': 0})}"

    def run(name, *keys, **how):
        if (folder / name / "summary.json").exists() and not how:
            return folder / name
        recipe = load_recipe("grpo", [*SMALL, reward, f"output={folder}", f"name={name}", "trust_code=true", *keys])
        return train(recipe, **how)

    return run


def same(one, other):
    return first_difference(*map(read_digests, (one, other))) is None


@pytest.mark.started
def test_one_worker_and_this_process_train_the_same_bits(run):
    assert same(run("here", *DAPO), run("worker", *DAPO, "runtime=processes"))
    assert not [*Path("/dev/shm").glob(f"lyceum-snapshots-{os.getpid()}-*")], "snapshots go with the run"


STEPS = ("steps=2", "tasks_per_step=2", "rollout.samples=4")
ROUNDS = ("steps=2", "rounds=2", "tasks_per_round=2")


@pytest.mark.parametrize(
    ("recipe", "keys"),
    [
        pytest.param("prime", STEPS, id="a value model that learns from each step"),
        pytest.param("grpo-care", STEPS, id="rewards under the slow average"),
        pytest.param("cory", [*STEPS, "roles.swap_every=1"], id="two models"),
        pytest.param("rest-mcts", ROUNDS, id="searches under a value model that is fitted between them"),
        pytest.param("treepo", ["steps=2", "rollout.sampling.max_completion_tokens=80"], id="waves that find a cache"),
    ],
)
def test_a_worker_has_every_model_of_the_run(recipe, keys, tmp_path):
    usual = ["evaluate.n=0", "track=[]", "digests=true", "threads=1", "rollout.sampling.max_completion_tokens=24"]

    def run(runtime):
        own = [f"runtime={runtime}", f"output={tmp_path}", f"name={runtime}"]
        return train(load_recipe(recipe, [*usual, *keys, *own]))

    assert same(run("in-process"), run("processes"))


JUDGED = (
    "reward=[{kind: task, weight: 0}, {kind: brpo, principles: sound, judge: {form: turns, max_reply_tokens: 4}}]",
)


def test_what_graders_count_is_added_up_wherever_they_grade(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "usable_cores", lambda: 4)

    def counted(name, *keys):
        own = [*SMALL, *JUDGED, "model=base", "steps=2", f"output={tmp_path}", f"name={name}", *keys]
        metrics = read_run_folder(train(load_recipe("grpo", own))).metrics
        return [{key: number for key, number in step.items() if key.startswith("reward/brpo/")} for step in metrics]

    here = counted("here")
    assert here[1]["reward/brpo/judge/asked"] > here[0]["reward/brpo/judge/asked"] > 0
    assert counted("three", "runtime=processes", "runtime.workers=3") == here
    ready = (
        "digests=false",
        "runtime=processes",
        "runtime.order=ready",
        "runtime.staleness=1",
        "runtime.ratio=behaviour",
    )
    assert counted("ready", *ready)[1]["reward/brpo/judge/asked"] > 0


def test_tokens_are_as_old_as_staleness_says_whatever_the_clock_does(run, folder):
    (folder / "slow").touch()
    slow = run("slow-one", *AHEAD)
    (folder / "slow").unlink()
    ahead = run("ahead", *AHEAD)
    assert same(ahead, slow)
    assert not same(ahead, run("here", *DAPO)), "else nothing was ahead"
    metrics = read_run_folder(ahead).metrics
    assert [record["staleness/most"] for record in metrics[1:]] == [1, 2, 2, 2]
    assert "staleness/most" not in metrics[0]
    assert metrics[4]["staleness/mean"] > 0
    further = 0
    for step in range(5):
        groups = read_trees(ahead / "trees" / f"step-{step + 1:06d}.parquet").groups
        versions = [node.version[0] for group in groups for node in group.tree.nodes() if len(node.version)]
        # A step's first wave is of two updates before; those for dropped groups are of now.
        assert max(0, step - 2) in versions
        assert set(versions) <= {max(0, step - 2), step}
        further += step in versions and step > 2
    assert further, "some step had to replace groups"


MEETS = """
import os, time
from pathlib import Path

HERE = Path(__file__).parent

def score(completion, id):
    # While steps are drawn ahead, no grade comes before graders have been asked about tasks of two waves.
    if os.environ["LYCEUM_TEST_MEETS"] == "1":
        (HERE / "asked" / id.replace("/", "_")).touch()
        ends = time.monotonic() + 60
        while len(os.listdir(HERE / "asked")) < 4:
            if time.monotonic() > ends:
                raise TimeoutError("the next wave was not drawn while this one was graded")
            time.sleep(0.01)
    return sum(map(str.isdigit, completion)) / (1 + len(completion))
"""


@pytest.mark.parametrize("workers", [1, 2])
def test_a_wave_is_graded_while_the_next_is_drawn_to_the_same_bits(workers, tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "usable_cores", lambda: 4)
    (tmp_path / "own.py").write_text(MEETS)
    (tmp_path / "asked").mkdir()
    reward = {"function": f"{tmp_path}/own.py:score", "processes": 8 // workers, "timeout_seconds": 120}
    keys = [*SMALL, f"reward={json.dumps(reward)}", f"output={tmp_path}", "trust_code=true", "runtime=processes"]
    keys += ["steps=3", "tasks_per_step=2", "rollout.samples=2", f"runtime.workers={workers}"]
    keys += ["runtime.staleness=1", "runtime.ratio=behaviour"]
    runs = []
    for meets in ("0", "1"):
        monkeypatch.setenv("LYCEUM_TEST_MEETS", meets)
        runs.append(train(load_recipe("grpo", [*keys, f"name=meets-{meets}"])))
    assert same(*runs)
    ungraded = [line.get("ungraded", 0) for line in read_run_folder(runs[1]).metrics]
    assert ungraded == [0, 0, 0]


def test_a_killed_worker_does_its_waves_again_to_the_same_bits(run, folder, caplog):
    (folder / "kill").touch()
    assert same(run("ahead", *AHEAD), run("killed", *AHEAD))
    assert (folder / "kill-done").exists(), "a worker was killed while it graded"
    assert "worker 0 was ended by SIGKILL: it is started again" in caplog.text


def test_several_workers_share_a_wave_in_one_order_and_one_of_them_may_be_lost(run, folder):
    two = ["runtime=processes", "runtime.workers=2", "steps=3"]
    once = run("two", *two)
    (folder / "kill").touch()
    assert same(once, run("two-again", *two))
    assert not (folder / "kill").exists()


def test_a_worker_that_hangs_is_ended_after_patience(run, folder, caplog):
    (folder / "hang").touch()
    assert same(run("hung", "runtime=processes", "runtime.patience=4", "steps=1"), run("one-step", "steps=1"))
    assert (folder / "hang-done").exists()
    assert "worker 0 was ended as it had said nothing for 4 s (runtime.patience): it is started again" in caplog.text


def test_a_run_that_was_ahead_resumes_to_the_same_bits(run):
    asked = []

    def after_three():
        asked.append(1)
        return len(asked) == 3

    with pytest.raises(Interrupted):
        run("stopped", *AHEAD, interrupted=after_three)
    assert same(run("ahead", *AHEAD), run("stopped", *AHEAD, resume=True))


def test_groups_that_a_stage_drew_ahead_and_does_not_train_are_told(run):
    ended = run("ended", *AHEAD, "collect.keep=all", "max_tokens=150", "steps=50")
    steps = len(read_digests(ended))
    assert steps < 50
    assert read_summary(ended)["not_trained"] == 8, "two waves of four"
    assert 0 <= read_summary(ended)["not_trained_tokens"] <= 8 * 4 * 6


@pytest.mark.started
def test_what_a_worker_says_of_its_end_is_the_runs_error(run, monkeypatch):
    monkeypatch.setattr(_worker, "ENTRY", "lyceum.no_such_module")
    with pytest.raises(RunError, match=r"worker 0 ended with exit code 1 3 times in a row\n(.*\n)*.*no_such_module"):
        run("none", "runtime=processes")


def test_workers_end_with_a_run_that_is_killed(tmp_path):
    keys = [*SMALL, "reward=number", f"output={tmp_path}", "name=killed", "runtime=processes", "steps=500"]
    with open(os.devnull, "wb") as nowhere:
        process = Forked(lambda: train(load_recipe("grpo", keys)), nowhere, keep=None)
    metrics = tmp_path / "killed" / "metrics.jsonl"
    while not metrics.exists() or not metrics.read_text().strip():
        assert process.poll() is None
        time.sleep(0.1)
    children = [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]
    snapshots = [*Path("/dev/shm").glob(f"lyceum-snapshots-{process.pid}-*")]
    assert children
    assert snapshots
    process.kill()
    process.wait()
    for _ in range(300):
        gone = not any(not has_ended(pid) for pid in children)
        if gone and not any(folder.exists() for folder in snapshots):
            return
        time.sleep(0.1)
    pytest.fail("a worker, or its snapshots, outlived the run")


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        (["runtime.workers=900"], "runtime.workers: got 900 on"),
        (["runtime.staleness=1"], "but nothing corrects for tokens that older weights drew"),
        (["engine=vllm"], "engine.kind: got 'vllm' with runtime.kind 'processes'"),
        (["learner=fsdp"], "learner.kind: got 'fsdp' with runtime.kind 'processes'"),
        (["runtime.staleness=1", "runtime.ratio=behaviour", "replay=own"], "runtime.staleness: got 1 with replay"),
        (
            ["runtime.staleness=1", "runtime.ratio=behaviour", "rollout.tokens_per_step=9"],
            "runtime.staleness: got 1 with rollout",
        ),
    ],
)
def test_what_workers_cannot_do_is_refused_at_once(keys, line):
    with pytest.raises(RecipeError) as refused:
        load_recipe("grpo", ["runtime=processes", *keys])
    assert any(each.startswith(line) or line in each for each in refused.value.lines), refused.value.lines


@pytest.mark.parametrize(("corrected", "reads"), [(AHEAD[-1], False), ("objective.importance.mode=truncate", True)])
def test_the_start_of_the_step_is_computed_where_ratios_are_relative_to_it(run, monkeypatch, corrected, reads):
    asked, annotate = [], LocalLearner.annotate
    monkeypatch.setattr(
        LocalLearner, "annotate", lambda self, of, needs, *more: asked.append(needs) or annotate(self, of, needs, *more)
    )
    run(f"relative-{reads}", *AHEAD[:-1], corrected, "steps=2", "learner.updates_per_step=2")
    assert asked
    assert any("old_logprob" in needs for needs in asked) == reads


def test_an_importance_weight_corrects_for_staleness_too():
    load_recipe("grpo", ["runtime=processes", "runtime.staleness=1", "objective.importance.mode=truncate"])


def test_messages_come_back_whole_and_a_cut_one_is_refused():
    said = {"wave": 3, "key": (1, "a", 0), "state": {"x": torch.arange(3), "n": float("nan"), "none": None}}
    content = pack(said)
    back = unpack(content)
    assert back.said["key"] == (1, "a", 0)
    assert torch.equal(back.said["state"]["x"], torch.arange(3))
    assert not back.trees
    for end in (3, len(content) - 1):
        with pytest.raises(ValueError, match="cut off"):
            unpack(content[:end])


def test_a_trees_entropies_come_back_though_files_do_not_hold_them():
    tree = Tree(Task("t", ()), [Node.prompt([5])])
    drawn = Continuation([7, 8], [-1.0, -2.0], [-1.0, -2.0], [0, 0], "stop", entropy=[0.5, 0.25])
    tree.root.add_drawn(drawn, "x", number=0)
    (back,) = unpack(pack({}, [tree])).trees
    assert [node.entropy for node in back.nodes()] == [[], [0.5, 0.25]]


def test_a_snapshot_of_another_model_is_refused():
    with pytest.raises(RunError, match=r"other weights than the worker's model: bias"):
        load_trained(torch.nn.Linear(2, 2), {"weight": torch.zeros(2, 2)})


def test_a_models_state_comes_back_from_its_file(tmp_path):
    shared = torch.arange(4.0)
    state = {"weights": [shared.view(2, 2).T, shared], "half": torch.ones(2, dtype=torch.bfloat16), "steps": 3}
    write_state(tmp_path / "a", state)
    back = read_state(tmp_path / "a")
    assert processes.same(state, back)
    write_state(tmp_path / "none", {})
    assert read_state(tmp_path / "none") == {}


def test_workers_get_the_gpus_that_they_are_dealt(monkeypatch):
    seen = []
    monkeypatch.setattr(processes, "usable_cores", lambda: 8)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(_worker, "start_module", lambda *_, environment, **how: seen.append(environment))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    refused = "runtime.devices: got [1, 2] on a machine with 2 GPUs; allowed: numbers from 0 to 1, or null"
    assert Processes(workers=2, devices=(1, 2)).check_machines() == [refused]

    def started(devices, workers):
        seen.clear()
        machines = Processes(workers=workers, devices=devices).machines(Path("."), 1)
        for number in range(workers):
            machines.start(number)
        return [each.get("CUDA_VISIBLE_DEVICES") for each in seen]

    assert started(None, 2) == [None, None]
    assert started((1, 0), 3) == ["1", "0", "1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4, 6")
    assert started((1,), 2) == ["6", "6"]


class Here:
    """A stage whose graders have a count."""

    def __init__(self):
        self.state = {"graded": 0}

    def states(self):
        return dict(self.state)

    def load_states(self, state):
        self.state = dict(state)


@pytest.mark.parametrize(("workers", "staleness"), [(1, 0), (2, 0), (1, 1)])
def test_a_state_that_changes_while_trees_grow_comes_back_from_one_worker_alone(workers, staleness):
    here = Here()
    of = Workers(Processes(workers=workers, staleness=staleness), here, {"threads": 1})
    of.workers = [None] * workers
    wave = Wave((0, 0), 0, 0.0, 0, ())
    of.reading[1] = {}
    parts = [processes.Part([], 5, {"graded": 7})] * workers
    if (workers, staleness) == (1, 0):
        assert of.joined(wave, 1, here.states(), parts) == Grown([], 5)
        assert here.state == {"graded": 7}
    else:
        with pytest.raises(RunError, match="runtime: graded changes while trees grow"):
            of.joined(wave, 1, here.states(), parts)


class Models:
    """A stage with a model that changes and one that does not."""

    constant = ("reference",)

    def models(self):
        return {name: {"weight": torch.ones(2)} for name in ("policies", *self.constant)}


def test_a_wave_that_ends_while_a_snapshot_is_written_does_not_take_it_away(tmp_path, monkeypatch):
    workers = Workers(Processes(), Models(), {"threads": 1})
    monkeypatch.setattr(workers, "_begin", lambda: tmp_path)
    write = safetensors.torch.save_file

    def while_a_wave_ends(tensors, file, **how):
        write(tensors, file, **how)
        workers._forget()

    monkeypatch.setattr(safetensors.torch, "save_file", while_a_wave_ends)
    for version in range(3):
        workers.publish(version)
        there = {file.name for file in tmp_path.iterdir()}
        assert there == {f"{version}-policies.safetensors", "0-reference.safetensors"}, "the reference once"


def test_what_a_lost_worker_told_of_a_wave_counts_once():
    counts, finished = Counter(), []

    def heard(told):
        finished.append(1) if told is None else counts.update(told)

    asked = _worker._Asked(b"", heard)
    for _ in range(2):
        asked.hear({"sequences": 8, "tokens": 30})
        asked.hear(None)
        asked.again()
        assert not any(counts.values())
    asked.hear({"sequences": 8, "tokens": 31})
    for _ in range(3):
        asked.hear(None)
    assert counts == {"sequences": 8, "tokens": 31}
    assert len(finished) == 3


@pytest.mark.started
def test_a_worker_that_has_failed_tells_so_to_whoever_asks_it_later(monkeypatch):
    monkeypatch.setattr(_worker, "ENTRY", "lyceum.no_such_module")
    worker = _worker.Worker(0, {}, 60.0)
    asked = worker.ask(1, b"", lambda counts: None)
    with pytest.raises(RunError, match="3 times in a row"):
        asked.result(timeout=60)
    assert worker.ready
    with pytest.raises(RunError, match="3 times in a row"):
        worker.ask(2, b"", lambda counts: None).result(timeout=60)


def test_the_plan_tells_of_workers_and_of_too_many_threads():
    keys = ["runtime=processes", "runtime.workers=2", "runtime.staleness=1", "runtime.ratio=behaviour"]
    recipe = load_recipe("grpo", keys)
    assert stage_line(recipe.stages[0]).endswith("runtime processes: workers 2, staleness 1, ratio behaviour")
    assert crowded_notes(recipe, usable_cores()) != []
    assert crowded_notes(load_recipe("grpo", ["runtime=processes"]), usable_cores()) == []


def test_starting_workers_is_in_no_steps_time(run):
    first, *others = read_run_folder(run("started", "runtime=processes", "steps=2")).metrics
    assert first["seconds/start"] > 0
    assert all(not line["seconds/start"] for line in others)
    assert "seconds/start" not in read_run_folder(run("alone", "steps=1")).metrics[0]
