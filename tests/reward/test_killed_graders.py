"""Processes that grade, ended from outside by real signals: graded again, never 0 and never left out."""

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from fake_task import NO_MODEL
from leaves import grades, leaf, task
from test_reward_pool import run

from lyceum.analysis.differences import first_difference, read_digests
from lyceum.cli import main
from lyceum.core.types import Grade
from lyceum.environment.tools import Tools
from lyceum.reward._worker_process import FROM_OUTSIDE, WorkerProcess
from lyceum.reward.base import allow_code, ask_part, ungraded_by
from lyceum.reward.format import Format
from lyceum.reward.function import Function
from lyceum.reward.json_schema import JsonSchemaReward
from lyceum.reward.math import Math
from lyceum.reward.pool import WorkerError, WorkerPool
from lyceum.reward.regex import RegexReward
from lyceum.utils.errors import KILLED_IN_A_ROW, GraderLost, RunError, ServersLost

pytestmark = pytest.mark.usefixtures("small_scratch")

MARKS = """
import os, signal

def kill_first(times, folder):
    for number in range(times):
        try:
            os.close(os.open(f"{folder}/killed-{number}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            continue
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def pool(tmp_path: Path):
    made = []

    def make(*, at_start: int = 0, **more: Any) -> WorkerPool:
        settings = {"dies_at_its_start": at_start, "folder": str(tmp_path)}
        made.append(WorkerPool("killed_jobs:doubles", settings, **{"workers": 1, "timeout_seconds": 60, **more}))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.mark.parametrize("number", FROM_OUTSIDE)
def test_a_job_whose_process_is_ended_from_outside_is_done_again_while_others_wait(pool, number: signal.Signals):
    assert run(pool(), 1, [number, KILLED_IN_A_ROW - 1], 2, 3) == [2, "done", 4, 6]


def test_a_process_that_is_killed_while_it_loads_is_started_again(pool):
    assert run(pool(at_start=KILLED_IN_A_ROW - 1), 1, 2) == [2, 4]


def test_a_process_that_is_killed_while_idle_or_as_it_has_answered_costs_nothing(pool):
    idle = pool()
    [pid] = run(idle, "pid")
    os.kill(pid, signal.SIGKILL)
    [other, four] = run(idle, "pid", 2)
    assert other != pid
    assert four == 4


def test_a_job_that_is_cut_off_three_times_in_a_row_is_lost_and_the_next_one_is_done(pool):
    lost, four = run(pool(), [signal.SIGKILL, KILLED_IN_A_ROW], 2)
    assert isinstance(lost, GraderLost)
    assert not isinstance(lost, WorkerError)  # which graders take for a completion's fault, or leave ungraded
    assert "killed_jobs:doubles: its process was ended by SIGKILL, from outside, 3 times in a row" in str(lost)
    assert four == 4
    [at_start, _] = run(pool(at_start=2 * KILLED_IN_A_ROW), 1, 2)
    assert isinstance(at_start, GraderLost)


def test_what_may_have_effects_is_not_done_again(pool):
    [failure, four] = run(pool(repeatable=False), [signal.SIGKILL, 1], 2)
    assert isinstance(failure, WorkerError)
    assert "SIGKILL" in str(failure)
    assert four == 4


def test_a_crash_is_the_jobs_own_and_fails_it(pool):
    # SIGSEGV comes of what was computed: it would come again.
    failure, four = run(pool(), [signal.SIGSEGV, 1], 2)
    assert isinstance(failure, WorkerError)
    assert "status -11" in str(failure)
    assert four == 4


def test_a_tool_that_is_killed_is_told_to_the_policy_and_not_called_again(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    body = "    kill_first(1, '.')\n    return 'called again'\n"
    Path("mine.py").write_text(
        f"{MARKS}\ndef pay(amount: int) -> str:\n    '''Pay.\n\n    Args:\n        amount: euros\n    '''\n{body}"
    )
    with allow_code():
        [tool] = Tools(functions=("mine.py:pay",)).loaded().values()

    async def called() -> str:
        return await tool.call({"arguments": {"amount": 1}, "most": 100})

    with pytest.raises(WorkerError, match="SIGKILL"):
        asyncio.run(called())


# Rewards -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def kills(monkeypatch):
    """Kills the next processes that are ready, as many as it is told, as each has a job."""
    left = [0]
    reply = WorkerProcess._reply

    def patched(self: WorkerProcess, message: bytes, seconds: float, printed: Any) -> bytes:
        if self.ready and left[0] > 0:
            left[0] -= 1
            os.kill(self.pid, signal.SIGKILL)
        return reply(self, message, seconds, printed)

    monkeypatch.setattr(WorkerProcess, "_reply", patched)

    def kill(times: int) -> None:
        left[0] = times

    return kill


REWARDS = {
    "math": (Math(workers=1), {}, r"\boxed{42}"),
    "regex": (RegexReward(workers=1), {"pattern": "4+2"}, "42"),
    "json-schema": (JsonSchemaReward(workers=1), {"json_schema": "{}"}, "42"),
    "format": (Format(pattern="4+2"), {}, "42"),
}


@pytest.mark.parametrize("kind", REWARDS)
def test_a_killed_verifier_grades_again_and_a_correct_answer_stays_correct(kind: str, kills):
    # These were 0: a verifier's death was taken for the doing of the completion, as that of no other brings it about.
    part, columns, right = REWARDS[kind]
    asked = [right, "no", right]
    before = [grade.outcome for grade in grades(part, task(**columns), *asked)]
    assert before == [1.0, 0.0, 1.0]
    kills(1)
    assert [grade.outcome for grade in grades(part, task(**columns), *asked)] == before


def test_a_verifier_that_is_killed_each_time_ends_the_run(kills):
    part, columns, right = REWARDS["format"]
    kills(KILLED_IN_A_ROW)
    with pytest.raises(GraderLost, match="SIGKILL, from outside, 3 times in a row"):
        grades(part, task(**columns), right)


@pytest.mark.parametrize("form", ["completion", "completions", "solution_str", "solution_strs"])
def test_a_killed_function_grades_again_in_every_convention(form: str, tmp_path: Path, kills, monkeypatch):
    monkeypatch.chdir(tmp_path)
    several = form.endswith("s")
    more = "" if form.startswith("completion") else ", ground_truths" if several else ", ground_truth"
    result = f"[len(each) for each in {form}]" if several else f"len({form})"
    Path(f"{form}.py").write_text(f"def score({form}{more}, **kwargs):\n    return {result}\n")
    with allow_code():
        part = Function(function=f"{form}.py:score")
        assert [grade.outcome for grade in grades(part, task(), "a", "bcd")] == [1.0, 3.0]
        kills(1)
        assert [grade.outcome for grade in grades(part, task(), "a", "bcd")] == [1.0, 3.0]
        kills(KILLED_IN_A_ROW)
        with pytest.raises(GraderLost, match=f"^{form}.py:score: "):
            grades(part, task(), "a")


def test_servers_that_are_lost_to_a_grader_end_the_run_and_leave_nothing_ungraded():
    async def asks_the_model(*_: Any) -> list[Grade]:
        raise ServersLost("engine: no server has answered")

    with pytest.raises(ServersLost):
        asyncio.run(ask_part(asks_the_model, task(), [leaf("x")], NO_MODEL))
    with pytest.raises(ServersLost):
        ungraded_by(ServersLost("engine"))
    assert ungraded_by(RunError("its own")).reason == "its own"


# Runs ----------------------------------------------------------------------------------------------------------------

SCORE = "\ndef score(completion, id):\n    kill_first({times}, '.')\n    return 1 + len(completion) / 7\n"


def train(name: str, *, times: int, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Exit code and what it said, of a run whose grader is killed so often."""
    Path(f"{name}.py").write_text(MARKS + SCORE.format(times=times))
    keys = ["model=scratch", "steps=2", "tasks_per_step=2", "rollout.samples=3", "evaluate.n=0", "track=[]"]
    keys += ["rollout.sampling.max_completion_tokens=4", "digests=true", "trust_code=true", f"reward={name}.py:score"]
    return main(["train", "grpo", *keys, "threads=1", "--name", name]), capsys.readouterr().err


def test_a_run_whose_grader_is_killed_has_the_bits_of_one_that_nothing_disturbed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert train("whole", times=0, capsys=capsys)[0] == 0
    assert train("killed", times=KILLED_IN_A_ROW - 1, capsys=capsys)[0] == 0
    assert len([*tmp_path.glob("killed-*")]) == KILLED_IN_A_ROW - 1
    assert first_difference(*(read_digests(Path("runs", name)) for name in ("whole", "killed"))) is None
    lines = [json.loads(line) for line in Path("runs/killed/metrics.jsonl").read_text().splitlines()]
    assert [line["ungraded"] for line in lines] == [0, 0]


def test_a_run_whose_grader_is_killed_each_time_ends_and_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code, said = train("lost", times=100, capsys=capsys)
    assert code == 1
    assert "ended by SIGKILL, from outside, 3 times in a row" in " ".join(said.split())
    assert "Traceback" not in said
    assert len([*tmp_path.glob("killed-*")]) >= KILLED_IN_A_ROW
