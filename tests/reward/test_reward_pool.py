import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from typing import Any

import pytest
from fake_task import NO_MODEL
from leaves import grades, leaf, task

from lyceum.core.tree import Node
from lyceum.core.types import Grade
from lyceum.reward import _worker_process
from lyceum.reward._worker import MOST_BYTES
from lyceum.reward._worker_process import PRINTED_BYTES
from lyceum.reward.base import combine
from lyceum.reward.format import Format, has_tags_in_order
from lyceum.reward.math import Math
from lyceum.reward.pool import WorkerError, WorkerPool


def worker(start: int) -> Callable[[Any], Any]:
    """Jobs for the tests, run in the pool's processes (this file is found by the path that they are given)."""

    def work(job: Any) -> Any:
        match job:
            case "hang":
                time.sleep(600)
            case "power":
                return 9**9**9**9
            case "die":
                os._exit(3)
            case "print":
                print("text of a verifier")
                return "printed"
            case "raise":
                raise LookupError("lost")
            case "memory":
                return len(bytearray(1 << 33))
            case "pid":
                return os.getpid()
            case "child":
                return subprocess.Popen(["sleep", "600"]).pid
            case "hash":
                return hash("a text")
            case "flood":
                print("flood " * 100_000)
                return "printed"
            case "large":
                return "x" * (MOST_BYTES + 1)
            case {"pad": pad}:
                return len(pad)
        return start + job

    return work


@pytest.fixture
def pool():
    pool = WorkerPool("test_reward_pool:worker", {"start": 10}, workers=1, timeout_seconds=0.5, memory_mb=512)
    yield pool
    pool.close()


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and that nobody waited for does not."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True).stdout
    return bool(state) and not state.startswith("Z")


def wait_for_end(pid: int) -> None:
    """Of a process that is no child of this one and was killed a moment ago."""
    for _ in range(1000):
        if not alive(pid):
            return
        time.sleep(0.01)
    pytest.fail(f"process {pid} still runs")


def run(pool: WorkerPool, *jobs: Any) -> list[Any]:
    async def together() -> list[Any]:
        return await asyncio.gather(*map(pool.run, jobs), return_exceptions=True)

    return asyncio.run(together())


def test_results_come_back_in_order_from_any_event_loop(pool: WorkerPool):
    assert run(pool, *range(200)) == [10 + job for job in range(200)]
    assert run(pool, 5) == [15]  # another loop: nothing is bound to the first


@pytest.mark.parametrize("job", ["hang", "power"])
def test_a_job_past_its_limit_ends_its_process_and_the_next_gets_another(pool: WorkerPool, job: str):
    # "power" computes in C and holds the interpreter's lock: a limit inside the process would never be heard.
    [first, failure, second, sum_] = run(pool, "pid", job, "pid", 1)
    assert isinstance(failure, WorkerError)
    assert "within 0.5 seconds" in str(failure)
    assert not alive(first)
    assert second != first
    assert sum_ == 11


def test_a_process_that_dies_costs_one_job(pool: WorkerPool):
    failure, result = run(pool, "die", 1)
    assert isinstance(failure, WorkerError)
    assert "status 3" in str(failure)
    assert result == 11


def test_an_error_is_told_and_the_process_stays(pool: WorkerPool):
    first, failure, second = run(pool, "pid", "raise", "pid")
    assert str(failure) == "LookupError: lost"
    assert first == second


def test_memory_is_limited(pool: WorkerPool):
    [failure] = run(pool, "memory")
    assert "MemoryError" in str(failure)


@pytest.fixture(autouse=True)
def _nothing_printed_so_far(monkeypatch: pytest.MonkeyPatch):
    # What is printed is bounded per process, and other tests are in this one.
    monkeypatch.setattr(_worker_process._Printed, "left", _worker_process.PRINTED_IN_ALL)


def test_what_a_verifier_prints_is_shown_and_no_result(pool: WorkerPool, capfd: pytest.CaptureFixture[str]):
    assert run(pool, "print", 1) == ["printed", 11]
    assert capfd.readouterr() == ("", "text of a verifier\n")


def test_endless_prints_are_cut_and_hold_nothing_up(pool: WorkerPool, capfd: pytest.CaptureFixture[str]):
    assert run(pool, "flood", 1) == ["printed", 11]
    printed = capfd.readouterr().err
    assert "the rest is not shown" in printed
    assert printed.count("flood ") == PRINTED_BYTES // len("flood ")


def test_prints_of_all_jobs_together_are_bounded(pool: WorkerPool, capfd: pytest.CaptureFixture[str], monkeypatch):
    monkeypatch.setattr(_worker_process._Printed, "left", 3 * PRINTED_BYTES)
    for _ in range(5):
        run(pool, "flood", 1)
    printed = capfd.readouterr().err
    assert printed.count("flood ") == 3 * (PRINTED_BYTES // len("flood "))
    assert printed.count("further prints are not shown") == 1


def test_a_stopped_process_cannot_be_sent_to_and_is_ended_at_the_limit(pool: WorkerPool):
    # More than a pipe holds (64 KiB), so that sending it takes a reader.
    [pid] = run(pool, "pid")
    os.kill(pid, signal.SIGSTOP)
    failure, size = run(pool, {"pad": "9" * 200_000}, {"pad": "9" * 200_000})
    assert "within 0.5 seconds" in str(failure)
    assert size == 200_000
    assert not alive(pid)


def test_what_a_verifier_started_ends_with_it(pool: WorkerPool):
    child, failure = run(pool, "child", "hang")
    assert isinstance(failure, WorkerError)
    wait_for_end(child)


def test_a_result_beyond_all_measure_is_an_error_and_the_process_stays(pool: WorkerPool):
    first, failure, second = run(pool, "pid", "large", "pid")
    assert f"allowed: less than {MOST_BYTES}" in str(failure)
    assert first == second


def test_every_process_has_the_same_hash_seed(pool: WorkerPool):
    # Else a verifier that goes through a set of texts grades differently in the next process.
    first, _, second = run(pool, "hash", "die", "hash")
    assert first == second


def test_a_closed_pool_leaves_no_process_and_refuses_jobs(pool: WorkerPool):
    [pid] = run(pool, "pid")
    pool.close()
    assert not alive(pid)
    [failure] = run(pool, 1)
    assert "closed" in str(failure)


def test_a_factory_that_cannot_be_imported_is_an_error_of_each_job():
    pool = WorkerPool("test_reward_pool:nothing_here", {}, workers=1, timeout_seconds=1)
    failures = run(pool, 1, 2)
    assert all("did not start: AttributeError" in str(failure) for failure in failures)
    pool.close()


def test_nothing_is_left_when_the_program_ends_with_a_job_that_hangs():
    program = """
        import asyncio, sys
        from lyceum.reward.pool import WorkerPool
        pool = WorkerPool("test_reward_pool:worker", {"start": 0}, workers=1, timeout_seconds=600)
        async def main():
            await pool.run(1)
            print(*pool.pids, flush=True)
            await asyncio.wait_for(pool.run("power"), 0.2)
        try:
            asyncio.run(main())
        except TimeoutError:
            pass
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    assert not alive(int(ended.stdout))
    assert ended.stderr == ""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a signal of a pipe to a group is Linux's")
@pytest.mark.parametrize("state", ["busy", "stopped"])
def test_nothing_outlives_a_run_that_is_killed(state: str):
    # Busy in C, with its alarm 600 seconds away; stopped, no alarm would reach it.
    program = """
        import asyncio, os, signal, sys
        from lyceum.reward.pool import WorkerPool
        pool = WorkerPool("test_reward_pool:worker", {"start": 0}, workers=1, timeout_seconds=600)
        async def main():
            child = await pool.run("child")
            if sys.argv[1] == "stopped":
                os.kill(pool.pids[0], signal.SIGSTOP)
            job = asyncio.ensure_future(pool.run("power"))
            await asyncio.sleep(0.2)
            print(*pool.pids, child, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        asyncio.run(main())
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    killed = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), state],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        timeout=100,
    )
    assert killed.returncode == -signal.SIGKILL
    for pid in killed.stdout.split():
        wait_for_end(int(pid))


def test_math_means_the_same_and_need_not_read_the_same():
    part = Math(workers=1)
    texts = [r"so \boxed{0.5}", r"it is $\frac{2}{4}$", "the answer is 0.5", "the answer is 2", "no idea"]
    assert [grade.outcome for grade in grades(part, task(r"\frac{1}{2}"), *texts)] == [1, 1, 1, 0, 0]


def test_math_takes_any_of_several_right_answers():
    # As one text, ['4', '5'] is nothing that a completion could equal: all were wrong.
    assert [grade.outcome for grade in grades(Math(workers=1), task(["4", "5"]), r"\boxed{5}", "4", "6")] == [1, 1, 0]
    [grade] = grades(Math(workers=1), task(["4", ""]), "4")
    assert "cannot read the answer ''" in (grade.reason or "")
    assert "no answer to compare with" in (grades(Math(workers=1), task([]), "4")[0].reason or "")


def test_math_without_an_answer_to_read_is_ungraded():
    [grade] = grades(Math(workers=1), task(""), "2")
    assert "cannot read the answer" in (grade.reason or "")


def test_hostile_mathematics_is_wrong_and_the_others_are_graded_as_ever():
    part = Math(workers=1, timeout_seconds=3)
    texts = [
        "9**9**9**9",
        r"\boxed{42}",
        r"\boxed{10^{10^{10}}!}",
        r"\boxed{" + "(" * 3000 + "1" + ")" * 3000 + "}",
        "42",
    ]
    assert [grade.outcome for grade in grades(part, task("42"), *texts)] == [0.0, 1.0, 0.0, 0.0, 1.0]


def test_hundreds_of_concurrent_calls_each_get_their_own_grade():
    grader = combine([Math(workers=1)], None)  # pyright: ignore[reportArgumentType]

    async def ask(number: int) -> list[Grade]:
        leaves: list[Node] = [leaf(rf"\boxed{{{number}}}"), leaf(r"\boxed{-1}")]
        return await grader(task(str(number)), leaves, NO_MODEL)

    async def together() -> list[list[Grade]]:
        return await asyncio.gather(*map(ask, range(200)))

    assert [[grade.outcome for grade in pair] for pair in asyncio.run(together())] == [[1.0, 0.0]] * 200


def test_tags_must_come_once_each_in_order():
    tags = ("think", "answer")
    assert has_tags_in_order("<think>a\nb</think>\n<answer>4</answer>\n", tags)
    assert not has_tags_in_order("<answer>4</answer><think>a</think>", tags)
    assert not has_tags_in_order("<think>a</think>so <answer>4</answer>", tags)
    assert not has_tags_in_order("<think>a</think><answer>4</answer><answer>5</answer>", tags)
    assert not has_tags_in_order("<think><answer>4</answer></think><answer>", tags)


def test_a_pattern_that_never_ends_on_a_completion_is_not_matched():
    part = Format(pattern=r"(a+)+b", timeout_seconds=0.5)
    good, endless, bad = grades(part, task(), "aaab", "a" * 60, "b")
    assert (good.outcome, endless.outcome, bad.outcome) == (1.0, 0.0, 0.0)
    assert good.correct is None
