"""A program cannot have itself left ungraded, nor the programs that it shares a sandbox with."""

from __future__ import annotations

import pytest
from hostile import CHEATS, programs
from sandboxes import each_sandbox

from lyceum.sandbox import run as sandbox
from lyceum.sandbox.backends import Backend
from lyceum.sandbox.run import ProgramLimits, SandboxError, Verdict, execute, run, run_all

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
    # 9^(9^9) has 370 million digits: the judge is in a computation that no alarm interrupts.
    limits = ProgramLimits(seconds=0.5)
    chosen = ["def f(x): return 9", "def f(x): return 1"]
    found = run_all(chosen, tests=["assert f(1) ** f(2) ** f(3) == 1"], limits=limits, backend=backend)
    assert [isinstance(each, Verdict) and each.tests for each in found] == [(False,), (True,)]
    assert isinstance(found[0], Verdict)
    assert found[0].limit == "wall-clock time"


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
