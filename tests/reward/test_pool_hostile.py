"""Processes that answer with anything at all, or not: a job gets its result or a WorkerError, and nothing hangs."""

import asyncio
import json
import math
import sys
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lyceum.reward import _worker_process as worker_process
from lyceum.reward import pool as pools
from lyceum.reward._worker import LENGTH, MOST_BYTES, pack
from lyceum.reward._worker_process import WorkerProcess
from lyceum.reward.pool import WorkerError, WorkerPool

FAKE = """
import json, os, sys, time
def read():
    head = sys.stdin.buffer.read(8)
    sys.stdin.buffer.read(int.from_bytes(head, "big"))
for does, *what in json.loads(sys.argv[1]):
    if does == "read": read()
    if does == "take": sys.stdin.buffer.read(what[0])
    if does == "write": os.write(1, bytes.fromhex(what[0]))
    if does == "print": os.write(2, b"x" * what[0])
    if does == "close": os.close(what[0])
    if does == "exit": os._exit(what[0])
time.sleep(600)
"""
READY = [["read"], ["write", pack({"result": "ready"}).hex()]]


def fake(monkeypatch: pytest.MonkeyPatch, *does: Sequence[Any], ready: bool = True, limit: float = 60) -> WorkerPool:
    """A pool of one process that starts as it should, and then does all this."""
    plan = json.dumps([*(READY if ready else []), *does])
    monkeypatch.setattr(worker_process, "COMMAND", [sys.executable, "-I", "-S", "-c", FAKE, plan])
    return WorkerPool("nothing:here", {}, workers=1, timeout_seconds=limit)


def answer(pool: WorkerPool, *jobs: Any) -> list[Any]:
    async def together() -> list[Any]:
        asked = asyncio.gather(*map(pool.run, jobs), return_exceptions=True)
        return await asyncio.wait_for(asked, 100)

    try:
        return asyncio.run(together())
    finally:
        pool.close()


def body(text: str) -> list[str]:
    """A message of this JSON."""
    return ["write", (LENGTH.pack(len(text)) + text.encode()).hex()]


@pytest.mark.parametrize(
    ("does", "says"),
    [
        ([["read"], ["write", LENGTH.pack(2**63).hex()]], f"at most {MOST_BYTES}"),
        ([["read"], body('{"result": ' + "[" * 5000 + "]" * 5000 + "}")], "deep"),
        ([["read"], body('{"result": ' + "9" * 5000 + "}")], "5000 digits"),
        ([["read"], body('{"result": ')], "an invalid reply"),
        ([["read"], body("[1, 2]")], "neither a result nor an error"),
        ([["read"], body('{"result": 1, "error": "both"}')], "neither a result nor an error"),
        ([["read"], ["write", (LENGTH.pack(1) + b"\xff").hex()]], "UTF-8"),
        ([["read"], ["write", pack({"result": 1}).hex() + "00"]], "more than one message"),
        ([["take", 1], ["write", pack({"result": 1}).hex()]], "before there was a job"),
        ([["read"], ["write", pack({"result": 1}).hex()[:-2]], ["exit", 3]], "died with status 3"),
        ([["close", 0]], "died"),
        ([["read"], body('{"error": "\\ud800\\u001b[2J"}')], "\\ud800\\x1b[2J"),
    ],
)
def test_what_is_no_reply_is_told_as_an_error(monkeypatch: pytest.MonkeyPatch, does: list[Any], says: str):
    # The limit is never met: each is refused for what it is. A job that no pipe can hold, and of which one byte was
    # taken, is not sent yet.
    [failure] = answer(fake(monkeypatch, *does), "x" * 1_000_000)
    assert isinstance(failure, WorkerError)
    assert says in str(failure)


def test_half_a_reply_is_waited_for_until_the_limit_and_no_longer(monkeypatch: pytest.MonkeyPatch):
    half = ["write", pack({"result": 1}).hex()[:-2]]
    [failure] = answer(fake(monkeypatch, ["read"], half, limit=0.3), 1)
    assert "within 0.3 seconds" in str(failure)


def test_nan_and_infinity_come_back_for_the_reward_to_say_what_they_mean(monkeypatch: pytest.MonkeyPatch):
    [[nan, infinity]] = answer(fake(monkeypatch, ["read"], body('{"result": [NaN, 1e999]}')), 1)
    assert math.isnan(nan)
    assert infinity == math.inf


def test_a_process_that_never_starts_is_waited_for_once_and_not_by_every_job(monkeypatch: pytest.MonkeyPatch):
    started: list[int] = []

    class Counted(WorkerProcess):
        def __init__(self, python: str | None) -> None:
            super().__init__(python)
            started.append(self.pid)

    monkeypatch.setattr(pools, "WorkerProcess", Counted)
    monkeypatch.setattr(pools, "START_SECONDS", 0.3)
    failures = answer(fake(monkeypatch, ready=False), *range(20))
    assert all("did not start: no result within 0.3 seconds" in str(failure) for failure in failures)
    assert len(started) == 1


def test_a_process_that_cannot_be_started_is_an_error_of_the_job(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(worker_process, "COMMAND", ["no/such/python"])
    [failure] = answer(WorkerPool("nothing:here", {}, workers=1, timeout_seconds=1), 1)
    assert isinstance(failure, WorkerError)
    assert "did not start" in str(failure)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
replies = st.builds(pack, st.fixed_dictionaries({}, optional={"result": values, "error": values}) | values)
parts = st.one_of(
    st.binary(max_size=40),
    st.integers(0, 2**64 - 1).map(LENGTH.pack),
    replies,
    st.tuples(replies, st.integers(0, 30)).map(lambda cut: cut[0][: cut[1]]),
)
actions = st.one_of(
    st.sampled_from([["read"], ["take", 1]]),
    parts.map(lambda part: ["write", part.hex()]),
    st.integers(0, 100_000).map(lambda size: ["print", size]),
    st.sampled_from([0, 1, 2]).map(lambda stream: ["close", stream]),
    st.integers(0, 3).map(lambda status: ["exit", status]),
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(does=st.lists(actions, max_size=6), size=st.sampled_from([1, 200_000]))
def test_whatever_a_process_does_every_job_comes_to_its_end(does: list[Any], size: int):
    with pytest.MonkeyPatch.context() as monkeypatch:
        pool = fake(monkeypatch, *does, limit=0.1)
        for result in answer(pool, "x" * size, 2):
            if isinstance(result, BaseException):
                assert isinstance(result, WorkerError)
            else:
                json.dumps(result)
        assert pool.pids == []
