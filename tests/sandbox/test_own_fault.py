"""A program cannot have itself left ungraded, nor the programs that it shares a sandbox with."""

from __future__ import annotations

from pathlib import Path

import pytest
from hostile import CHEATS, programs
from sandboxes import each_sandbox

from lyceum.sandbox import backends
from lyceum.sandbox import run as sandbox
from lyceum.sandbox.backends import Backend
from lyceum.sandbox.inside.judge import HANGS_SECONDS, own_cpu_seconds
from lyceum.sandbox.limits import ProgramLimits
from lyceum.sandbox.run import SandboxError, Verdict, execute, run, run_all

LIMITS = ProgramLimits(seconds=2, cpu_seconds=1, memory_mb=256)
HONEST = "def f(x):\n    return x * 3 + 2"
BEGINS = [*CHEATS].index("ends itself by a signal")
ENDS = [*CHEATS].index("is no Python")
UNGRADED = [*CHEATS][BEGINS:ENDS]
"""What was once left ungraded, or took the judge with it."""


@each_sandbox
def test_each_has_its_verdict_and_the_others_keep_theirs(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    starts = []
    started = sandbox._started
    monkeypatch.setattr(sandbox, "_started", lambda *given: starts.append(given) or started(*given))
    places = programs(file="/f", socket="/s", port=1, pid=1)
    chosen = [HONEST, *(text for what in UNGRADED for text in (places[what], HONEST))]
    found = run_all(chosen, tests=["assert f(1) == 5", "assert f(10) == 32"], limits=LIMITS, backend=backend)
    assert len(UNGRADED) >= 15
    assert all(isinstance(each, Verdict) and each.tests == (True, True) for each in found[::2])
    assert not {
        what: each
        for what, each in zip(UNGRADED, found[1::2], strict=True)
        if not isinstance(each, Verdict) or any(each.tests)
    }
    assert len(starts) == 1  # the judge outlived all of them


@each_sandbox
def test_an_answer_with_which_a_test_computes_without_end_is_wrong(backend: Backend) -> None:
    # The judge is in a loop in C, which no alarm interrupts (it would interrupt a power).
    limits = ProgramLimits(seconds=0.5)
    chosen = ["def f(x): return 10 ** 13", "def f(x): return 2"]
    tests = ["assert sum(range(f(1))) == 1", "assert f(1) < 3"]
    found = run_all(chosen, tests=tests, limits=limits, backend=backend)
    assert [isinstance(each, Verdict) and each.tests for each in found] == [(False, False), (True, True)]
    assert isinstance(found[0], Verdict)
    assert found[0].limit == "wall-clock time"


def test_the_judge_has_more_cpu_time_than_its_programs_have_of_the_clock() -> None:
    # Else its own limit ends it first, and there is no verdict.
    for seconds, cpu_seconds, count in ((60.0, 1, 1), (60.0, 1, 8), (0.5, 9, 2)):
        own = own_cpu_seconds({"seconds": seconds, "cpu_seconds": cpu_seconds}, count)
        assert own > (seconds + HANGS_SECONDS) * count
        assert own > cpu_seconds * count


def test_what_makes_the_judge_fail_is_a_wrong_answer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    there = Path(backends._HERE) / "inside"
    (tmp_path / "inside").mkdir()
    for file in there.glob("*.py"):
        (tmp_path / "inside" / file.name).write_text(file.read_text())
    with (tmp_path / "inside/data.py").open("a") as data:
        data.write(
            "\n\nwhole = decode\ndef decode(value, reference):\n"
            "    if value == 'fails':\n        raise BaseException('a mistake of the judge')\n"
            "    return whole(value, reference)\n"
        )
    monkeypatch.setattr(backends, "_HERE", str(tmp_path))
    chosen = ["g = 'fails'\n" + HONEST, "g = 'works'\n" + HONEST]
    tests = ["assert f(1) == 5 and g"]
    [failed, works] = run_all(chosen, tests=tests, limits=LIMITS, backend="none")
    assert isinstance(failed, Verdict)
    assert isinstance(works, Verdict)
    assert (failed.tests, works.tests) == ((False,), (True,))
    assert failed.note == "an answer cannot be judged: BaseException: a mistake of the judge"


@each_sandbox
def test_a_program_may_not_end_itself_by_a_signal_or_a_limit(backend: Backend) -> None:
    code = """
import resource, signal, threading
def refused(action):
    try:
        action()
    except PermissionError:
        return True
    except ValueError as error:  # as Python says it of a limit
        return str(error) == "not allowed to raise maximum limit"
    return False
ways = [
    lambda: signal.raise_signal(9),
    lambda: signal.pthread_kill(threading.get_ident(), 9),
    lambda: resource.setrlimit(resource.RLIMIT_CPU, (0, 0)),
]
found = [refused(way) for way in ways]
"""
    assert run(code, tests=["assert found == [True] * 3"], limits=LIMITS, backend=backend).tests == (True,)


@each_sandbox
def test_what_a_program_prints_is_told_though_it_raises_half_a_character(backend: Backend) -> None:
    found = execute("print(1)\nraise ValueError('\\ud800')", characters=100, limits=LIMITS, backend=backend)
    assert (found.text, found.error) == ("1\n", "line 2: ValueError: ?")


@each_sandbox
def test_a_program_may_set_its_stack_and_look_at_its_limits(backend: Backend) -> None:
    code = (
        "import resource, threading\n"
        "resource.setrlimit(resource.RLIMIT_STACK, resource.getrlimit(resource.RLIMIT_STACK))\n"
        "seen = resource.getrlimit(resource.RLIMIT_CPU)[0]\n"
    )
    found = run(code + HONEST, tests=["assert f(1) == 5", "assert seen == 1"], limits=LIMITS, backend=backend)
    assert found.tests == (True, True)


def test_a_killed_program_is_ungraded_only_where_the_machine_was_out_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    # Without a filter a program can end itself so.
    kills = "import os\nos.kill(os.getpid(), 9)"
    found = run(kills, tests=["assert f(1) == 5"], limits=LIMITS, backend="none")
    assert (found.tests, found.limit) == ((False,), "signal 9")
    counts = iter(range(9))
    monkeypatch.setattr(sandbox, "_ended_for_memory", lambda: next(counts))
    with pytest.raises(SandboxError, match="out of memory"):
        run(kills, tests=["assert f(1) == 5"], limits=LIMITS, backend="none")
