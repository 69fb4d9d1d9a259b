"""Workers that Ray starts: the bits of this process, whatever is lost; and what a machine that lacks something says."""

import os
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as Late

import pytest

from lyceum.analysis.differences import first_difference, read_digests
from lyceum.recipe.schema import load_recipe
from lyceum.runtime import ray as rays
from lyceum.runtime.ray import Cluster, Ray, WorkerHost, _known
from lyceum.training.train import train
from lyceum.utils.errors import RecipeError, RunError

SMALL = [
    *("model=scratch", "evaluate.n=0", "track=[]", "tasks_per_step=4", "rollout.samples=4", "digests=true", "steps=4"),
    *("rollout.sampling.max_completion_tokens=6", "threads=1", "max_steps_without_signal=0"),
]


class FakeRay:
    """As much of Ray as a cluster of one machine needs, whose actors are threads of this process.

    Args:
        elsewhere: whether an actor sees no file that it was not brought: another machine.
    """

    def __init__(self, *, elsewhere=False):
        self.elsewhere, self.actors, self.brought, self.util = elsewhere, [], [], self
        self.resources = {"CPU": 2.0}

    def is_initialized(self):
        return True

    def cluster_resources(self):
        return self.resources

    def get_node_ip_address(self):
        return "127.0.0.1"

    def remote(self, of):
        fake = self

        class Actor:
            def __init__(self):
                self.of, self.dead, self.threads = of(), False, ThreadPoolExecutor(4)
                fake.actors.append(self)

            def __getattr__(self, name):
                def call(*args):
                    if self.dead:
                        raise RuntimeError("The actor died")
                    if name == "missing" and fake.elsewhere:
                        return self.threads.submit(lambda: [file for file in args[0] if file not in fake.brought])
                    if name == "take":
                        fake.brought.append(args[0])
                    return self.threads.submit(getattr(self.of, name), *args)

                return type("Method", (), {"remote": staticmethod(call)})

        return type("Class", (), {"options": staticmethod(lambda **_: type("Set", (), {"remote": Actor}))})

    def put(self, content):
        return content

    def get(self, future, timeout=None):
        return future.result(timeout)

    def wait(self, futures, timeout):
        try:
            futures[0].exception(timeout)
        except Late:
            return [], futures
        return futures, []

    def kill(self, actor):
        actor.dead = True


@pytest.fixture
def ray(monkeypatch, tmp_path_factory):
    fake = FakeRay()
    monkeypatch.setattr(rays, "connect", lambda address: fake)
    # Found, here and by workers, and never imported.
    installed = tmp_path_factory.mktemp("installed")
    (installed / "ray.py").write_text("raise AssertionError")
    monkeypatch.syspath_prepend(installed)
    return fake


def run(folder, name, *keys):
    return train(load_recipe("grpo", [*SMALL, f"output={folder}", f"name={name}", *keys]))


def same(one, other):
    return first_difference(*map(read_digests, (one, other))) is None


def test_a_worker_of_a_cluster_trains_the_same_bits_on_weights_that_are_brought_to_it(ray, tmp_path):
    ray.elsewhere = True
    assert same(run(tmp_path, "here"), run(tmp_path, "there", "runtime=ray"))
    assert len(ray.brought) == len({*ray.brought}) == 4, "each version once"
    assert all(actor.dead for actor in ray.actors), "what the cluster set aside is given back"


def test_one_that_is_lost_with_its_machine_is_started_again_and_the_bits_are_the_same(ray, tmp_path, monkeypatch):
    started = WorkerHost.start

    def lost_once(agent, *args):
        started(agent, *args)
        if len(ray.actors) == 1:
            ray.kill(ray.actors[0])  # says nothing any more, and is not there to end the process
            os.kill(agent.process.process.pid, signal.SIGKILL)

    monkeypatch.setattr(WorkerHost, "start", lost_once)
    assert same(run(tmp_path, "here"), run(tmp_path, "there", "runtime=ray"))
    assert len(ray.actors) == 2


def test_a_machine_with_other_versions_ends_the_run_and_says_which(ray, tmp_path, monkeypatch):
    monkeypatch.setattr(rays, "version", lambda name: f"{name}-{threading.current_thread().name}")
    with pytest.raises(RunError, match=r"has lyceum-rl [\s\S]* 3 times in a row"):
        run(tmp_path, "there", "runtime=ray")


def test_more_workers_than_the_cluster_has_room_for_are_refused_before_anything_is_loaded(ray, tmp_path):
    with pytest.raises(RecipeError, match=r"runtime.workers: got 3 of 1 CPUs each, and the Ray cluster has 2; .*2"):
        run(tmp_path, "there", "runtime=ray", "runtime.workers=3", "runtime.threads=1")
    with pytest.raises(RecipeError, match=r"got 1 of 1 GPUs each, and the Ray cluster has 0"):
        run(tmp_path, "there", "runtime=ray", "runtime.gpus=1")
    assert not [*tmp_path.iterdir()]


def test_ray_that_is_not_installed_is_named(monkeypatch):
    monkeypatch.setattr(rays, "find_spec", lambda name: None)
    assert Ray().check_machines() == [
        "runtime.kind: got 'ray', which is not installed; allowed: after pip install 'lyceum-rl[ray]'"
    ]


@pytest.mark.parametrize("said", [b"", b"x" * 31, b"y" * 32])
def test_whoever_connects_without_the_key_is_nobody(said):
    ours, theirs = socket.socketpair()
    theirs.sendall(said)
    theirs.shutdown(socket.SHUT_WR)
    assert _known(ours, b"x" * 32) is None


@pytest.mark.engines
@pytest.mark.timeout(1200)  # a worker of Ray takes minutes to begin on a busy machine
def test_under_ray_itself_the_bits_are_the_same_and_what_was_killed_is_done_again(tmp_path, monkeypatch):
    pytest.importorskip("ray")
    here = run(tmp_path, "here")
    assert same(here, run(tmp_path, "there", "runtime=ray"))
    start = Cluster.start
    begun: list[object] = []

    def killed(cluster, number):
        remote = start(cluster, number)
        begun.append(remote)
        if len(begun) == 1:
            threading.Thread(target=lambda: (remote._connection.result(), time.sleep(1), remote.kill())).start()
        return remote

    monkeypatch.setattr(Cluster, "start", killed)
    assert same(here, run(tmp_path, "again", "runtime=ray"))
    assert len(begun) == 2
