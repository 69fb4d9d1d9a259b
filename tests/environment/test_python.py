"""Programs of the policy are run in a sandbox; what they print, or what ended them, is what it reads."""

import pytest
from fake_task import FakeTask
from sandboxes import NONE_WORKS, each_sandbox

from lyceum.core.tree import Node
from lyceum.core.types import Exchange, Task
from lyceum.environment._notation import Notation
from lyceum.environment.python import NOTHING, Python
from lyceum.recipe.schema import load_recipe
from lyceum.sandbox.backends import Backend
from lyceum.sandbox.limits import ProgramLimits
from lyceum.sandbox.run import SandboxError
from lyceum.utils.aio import gather, run_async
from lyceum.utils.errors import RecipeError

QUICK = ProgramLimits(seconds=2, cpu_seconds=1, output_kb=16)


class Letters(FakeTask):
    """One token per character."""

    def encode_after(self, path, text):
        return list(map(ord, text))


def written(program: str) -> str:
    return f"I compute.\n```python\n{program}\n```\n```output"


def seen(*turns: str, **settings):
    """What the environment answers to each of these turns, each tried from the beginning."""
    environment = Python(limits=QUICK, **settings).build()
    start = environment.reset(Task("t", ()))

    async def all_of_them():
        return await gather([environment.step(start, Node(None, [1], 0), turn, Letters()) for turn in turns])

    return run_async(all_of_them())


def text_of(observation) -> str:
    return "".join(map(chr, observation.tokens))


@each_sandbox
def test_what_a_program_prints_stands_below_it(backend: Backend):
    right, silent, wrong, none = seen(
        written("import math\nprint(math.comb(10, 3))\nprint('so')"),
        written("x = 1"),
        written("print(2)\n1/0"),
        "120",
        sandbox=backend,
    )
    assert text_of(right) == "\n120\nso\n```\n"
    assert (right.calls, right.failed, right.end) == (1, 0, False)
    assert text_of(silent) == f"\n{NOTHING}\n```\n"
    assert text_of(wrong) == "\n2\nerror: line 2: ZeroDivisionError: division by zero\n```\n"
    assert (wrong.calls, wrong.failed) == (1, 1)
    assert none.end
    assert not none.calls


@each_sandbox
@pytest.mark.parametrize(
    ("program", "told"),
    [
        ("while True: pass", "error: over its limit: "),  # of CPU time, or of the clock on a busy machine
        ("import time\nprint('hi', flush=True)\ntime.sleep(9)", "hi\nerror: over its limit: wall-clock time"),
        ("print('x' * 10**6)", "xxxxx...\nerror: over its limit: output of more than 16 kB"),
        ("print('y' * 6)", "yyyyy..."),
        ("print('x" + "y" * 100_000 + "')", "error: the program has more than 100000 characters"),
        ("[0] * 10**10", "error: line 1: MemoryError:"),
        ("def f(:", "error: line 1: SyntaxError: invalid syntax"),
        ("import os; os._exit(0)", "error: it ended before its last line"),
        ("import socket\nsocket.socket()", "error: line 2: PermissionError"),
        ("print('\\x1b[31m')", "\\x1b[31"),
        ("input()", "error: line 1: EOFError"),
        ("print('\ud800')", "?"),
    ],
)
def test_what_ends_a_program_is_said_and_it_can_do_no_harm(program, told, backend: Backend):
    most = 5 if "..." in told else 1000
    [found] = seen(written(program), sandbox=backend, max_characters=most, failed_reward=-0.5)
    assert text_of(found).startswith(f"\n{told}")
    assert (found.failed, found.reward) == ((1, -0.5) if "error" in told else (0, 0))


@each_sandbox
def test_no_file_of_the_machine_is_read(backend: Backend):
    [found] = seen(written("open('/etc/passwd')"), sandbox=backend)
    # Bubblewrap has no such file; the others refuse it.
    error = "FileNotFoundError" if backend == "bubblewrap" else "PermissionError"
    assert text_of(found).startswith(f"\nerror: line 1: {error}")


@pytest.mark.skipif(NONE_WORKS, reason="no sandbox works here")
def test_the_notation_is_a_setting_and_a_mark_without_a_program_runs_none():
    tags = Notation(begin="<code>", end="</code>", before="<out>", after="</out>")
    [found, other] = seen("<code>print(1)</code>", "</code>", notation=tags)
    assert text_of(found) == "<out>1\n</out>"
    assert other.end
    environment = Python(limits=QUICK, notation=tags).build()
    state = environment.replay(Task("t", ()), [Exchange("<code>print(1)</code>", "<out>1\n</out>")])
    again = run_async(environment.step(state, Node(None, [1], 0), "so </code>", Letters()))
    assert again.end, "the program of an earlier turn is not run again"


def test_a_machine_without_its_sandbox_refuses_the_recipe(monkeypatch):
    def none(choice):
        raise SandboxError("no sandbox works on this machine")

    monkeypatch.setattr("lyceum.environment.python.usable", none)
    keys = ["rollout=turns", "rollout.environment={kind: python}"]
    with pytest.raises(RecipeError, match=r"environment.sandbox: no sandbox works on this machine; allowed: a machine"):
        load_recipe("grpo", keys)
