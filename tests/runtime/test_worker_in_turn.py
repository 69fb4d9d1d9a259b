"""Waves of a worker in fixed order: what grows while another wave is graded, and what waits."""

import asyncio
import queue
from types import SimpleNamespace

import pytest

from lyceum.core.waves import Grown, Wave
from lyceum.runtime.processes import packed
from lyceum.runtime.wire import unpack
from lyceum.training.worker import InTurn
from lyceum.utils.aio import run_async


class Growing:
    """Draws at once and is graded when it is let; says in which order."""

    def __init__(self, apart):
        self.grades_apart, self.events, self.graded = apart, [], {}
        self.policy, self.guides = SimpleNamespace(module=None), None
        self.grader = SimpleNamespace(state_dict=lambda: {"seen": self.seen}, load_state_dict=lambda state: None)
        self.engine, self.seen = self, 0

    async def load(self, module, version):
        self.events.append(f"version {version}")

    def load_states(self, state):
        self.guides, self.seen = state["guidance"], state["grader"]["seen"]

    def states(self):
        return {"guidance": self.guides, "grader": {"seen": self.seen}}

    async def grow(self, wave, done, drawn):
        self.events.append(f"{wave.version} drawn")
        drawn()
        await asyncio.wait_for(self.graded.setdefault(wave.version, asyncio.Event()).wait(), 20)
        self.events.append(f"{wave.version} graded")
        return Grown([], 0)


class Run:
    """Both sides of the connection."""

    def __init__(self, *states):
        self.waves, self.answers = queue.SimpleQueue(), []
        for number, state in enumerate(states):
            wave = Wave((0, number), number, 0.0, number, ())
            self.waves.put(unpack(packed(number, wave, {"weights": {}, "state": state})))

    def next(self):
        found = self.waves.get(timeout=20)
        if isinstance(found, BaseException):
            raise found
        return found

    def fail(self, error):
        self.waves.put(error)

    def send(self, said, trees=()):
        self.answers.append(said)
        if len(self.answers) == 2:
            self.fail(EOFError())


def served(growing, run, let):
    """Events and answers, waves being graded in the order of ``let``, each when nothing else can go on."""

    async def serve():
        task = asyncio.ensure_future(InTurn(growing, run, run).serve())
        for version in let:
            await asyncio.sleep(0.05)
            growing.graded.setdefault(version, asyncio.Event()).set()
        with pytest.raises(EOFError):
            await task

    run_async(serve())
    return growing.events, {part["wave"]: part["state"] for said in run.answers for part in said["parts"]}


def state(guides, seen=0):
    return {"guidance": guides, "grader": {"seen": seen}}


def test_a_wave_is_drawn_while_another_is_graded_and_each_answers_with_its_own_state():
    events, states = served(Growing(apart=True), Run(state(["a"]), state(["b"])), let=[1, 0])
    assert events == ["version 0", "0 drawn", "version 1", "1 drawn", "1 graded", "0 graded"]
    assert states == {0: state(["a"]), 1: state(["b"])}


@pytest.mark.parametrize(("apart", "seen"), [(False, 0), (True, 1)], ids=["its model changes", "its state changes"])
def test_what_grading_needs_and_changes_is_not_changed_meanwhile(apart, seen):
    events, states = served(Growing(apart), Run(state(["a"]), state(["b"], seen)), let=[0, 1])
    assert events == ["version 0", "0 drawn", "0 graded", "version 1", "1 drawn", "1 graded"]
    assert states == {0: state(["a"]), 1: state(["b"], seen)}


@pytest.mark.parametrize("waves", [1, 2])
def test_what_a_grader_raises_ends_the_worker_whichever_wave_it_is_of(waves):
    async def fails():
        raise ValueError("of wave 0")

    growing = Growing(apart=True)
    growing.graded[0] = SimpleNamespace(wait=fails)
    run = Run(*[state([])] * waves)

    async def serve():
        await InTurn(growing, run, run).serve()

    with pytest.raises(ValueError, match="of wave 0"):
        run_async(serve())
    assert run.answers == []
