"""Honest programs in each sandbox, what their limits do, and how a machine without a sandbox is told."""

from __future__ import annotations

from pathlib import Path

import pytest
from sandboxes import each_sandbox

from lyceum.sandbox import backends
from lyceum.sandbox.backends import Backend
from lyceum.sandbox.inside.judge import names_of, read_tests
from lyceum.sandbox.limits import ProgramLimits
from lyceum.sandbox.run import SandboxError, Verdict, fault_of, run, run_all, usable

LONG = ProgramLimits(seconds=20, cpu_seconds=10)
BRIEF = ProgramLimits(seconds=0.3, cpu_seconds=1, memory_mb=128, files_mb=1, output_kb=4)

PROGRAM = """
import collections

class Stack:
    def __init__(self): self.items = []
    def push(self, item): self.items.append(item); return len(self.items)

def triple(x): return x * 3
def sort_in_place(items): items.sort()
def pair(x): return (x, {"is": {x, 2.5}}, None, b"b", 1j)
def count(n):
    for i in range(n): yield i
def refuse(): raise ValueError("no")
def most(text): return collections.Counter(text)
LIMIT = 7
"""

TESTS = [
    "assert triple(4) == 12 and triple('a') == 'aaa'",
    "items = [3, 1, 2]\nsort_in_place(items)\nassert items == [1, 2, 3]",
    "assert pair(1) == (1, {'is': {1, 2.5}}, None, b'b', 1j)",
    "assert list(count(3)) == [0, 1, 2]",
    "try:\n    refuse()\n    assert False\nexcept ValueError as error:\n    assert 'no' in str(error)",
    "stack = Stack()\nassert stack.push(3) == 1 and stack.push(4) == 2 and stack.items == [3, 4]",
    "assert most('aab') == {'a': 2, 'b': 1}",
    "assert LIMIT == 7",
    "assert triple(4) == 13",
    "assert missing(4) == 13",
]


@each_sandbox
def test_honest_programs_are_judged_alike_in_every_sandbox(backend: Backend) -> None:
    found = run(PROGRAM, tests=TESTS, limits=LONG, backend=backend)
    assert found.tests == (*[True] * 8, False, False)
    assert found.note == "assert triple(4) == 13: AssertionError: "
    assert found.limit is None
    pairs = [("3", "6\n"), ("4\n", "8"), ("5", "9")]
    assert run("print(int(input()) * 2)", pairs=pairs, limits=LONG, backend=backend).tests == (True, True, False)


@each_sandbox
def test_a_script_s_statements_are_its_tests(backend: Backend) -> None:
    # As HumanEval has them: a function of assertions that is called with the program's.
    script = "import math\ndef check(candidate):\n    assert candidate(1) == 3\n    assert candidate(2) == 6\n"
    assert run(PROGRAM, tests=script + "check(triple)\nassert triple(0) == 1", limits=LONG, backend=backend).tests == (
        True,
        False,
    )
    for empty in ("import math", "x = 1", "def f(): pass"):
        with pytest.raises(SandboxError, match="there is no test"):
            run(PROGRAM, tests=empty, limits=LONG, backend=backend)
    with pytest.raises(SandboxError, match="no Python"):
        run(PROGRAM, tests="assert triple(", limits=LONG, backend=backend)
    with pytest.raises(SandboxError, match="cannot be run: ModuleNotFoundError"):
        run(PROGRAM, tests="import nowhere\nassert triple(0) == 0", limits=LONG, backend=backend)
    with pytest.raises(SandboxError, match="a test passes a function"):
        run(PROGRAM, tests="assert triple(lambda: 0) == 1", limits=LONG, backend=backend)


@each_sandbox
@pytest.mark.parametrize(
    ("code", "limit"),
    [
        ("while True: pass", "wall-clock time"),
        ("import time\ntime.sleep(60)", "wall-clock time"),
        ("while True: print('x' * 1000)", "output of more than 4 kB"),
        ("open('file', 'wb').write(bytes(3 << 20))", None),  # an error of the program: the file is too large
        ("x = bytearray(1 << 30)", None),  # likewise
    ],
)
def test_a_program_over_its_limits_passes_nothing(code: str, limit: str | None, backend: Backend) -> None:
    found = run(code + "\nprint('6')", pairs=[("", "6")], limits=BRIEF, backend=backend)
    assert (found.tests, found.limit) == ((False,), limit)


@each_sandbox
def test_programs_that_share_a_sandbox_do_not_reach_each_other(backend: Backend) -> None:
    # Under Landlock alone no file can be written.
    leaves = "try: open('left', 'w').write('x')\nexcept OSError: pass\ndef f(x): return x * 3"
    finds = "import os\nfound = os.listdir('.') + [n for n in os.listdir('..') if os.listdir(os.path.join('..', n))]\n"
    programs = [
        leaves,
        "while True: pass",
        "import os\nos._exit(0)",
        finds + "def f(x): return x * 3 if found else None",
        "import os\nos.kill(os.getppid(), 9)",
        "def f(x): return x * 3",
    ]
    found = run_all(programs, tests=["assert f(2) == 6"], limits=BRIEF, backend=backend)
    assert [isinstance(each, Verdict) and each.tests for each in found] == [(True,), *[(False,)] * 4, (True,)]


@each_sandbox
def test_modules_and_helpers_of_the_tests_are_not_the_programs(backend: Backend) -> None:
    def passed(code: str, test: str, head: str = "") -> bool:
        return run(head + code, tests=[test], limits=LONG, backend=backend, head=head).tests == (True,)

    # Tests may use a module that they do not import: it is not what a program calls so.
    close = "assert math.isclose(add(2, 3), 5.0)"
    assert passed("def add(a, b): return a + b", close)
    assert not passed("class math: isclose = staticmethod(lambda *a: True)\ndef add(a, b): return 0", close)
    # But a program's function or object may have a module's name.
    assert passed("def select(a): return a[0]", "assert select([1]) == 1")
    assert passed("class Q:\n    def push(self, x): return x\nqueue = Q()", "assert queue.push(1) == 1")
    # As HumanEval has helpers: before the function that the program goes on with.
    head = "import math\n\ndef poly(xs, x):\n    return sum(c * math.pow(x, i) for i, c in enumerate(xs))\n\n\n"
    head += "def find_zero(xs):\n"
    test = "assert abs(poly([1, 2], find_zero([1, 2]))) < 1e-4"
    assert passed("    return -xs[0] / xs[1]", test, head)
    assert not passed("    return 0\ndef poly(*_): return 0", test, head)
    # What ends a loop of the tests, in silence.
    pairs = "assert all(map(lambda c: add(*c[:2]) == c[2], [(1, 2, 3)]))"
    assert passed("def add(a, b): return a + b", pairs)
    for error in ("StopIteration", "StopAsyncIteration", "GeneratorExit"):
        assert not passed(f"def add(a, b): raise {error}", pairs)


@each_sandbox
def test_what_the_tests_name_is_the_programs_where_it_has_to_be(backend: Backend) -> None:
    def passed(code: str, *tests: str, head: str = "") -> bool:
        found = run(head + code, tests="\n".join(tests), limits=LONG, backend=backend, head=head)
        return all(found.tests)

    # Objects of a module that are passed to the program: it makes them itself, also where a statement of its own does.
    year = "import datetime\ndef f(day): return day.year"
    assert passed(year, "assert f(datetime.date(2020, 1, 1)) == 2020")
    assert passed(year, "day = datetime.date(2020, 1, 1)", "assert f(day) == 2020")
    assert not passed(year, "assert f(datetime.date(2020, 1, 1)) == 2021")
    assert not passed("def f(day): return 2020", "assert f(datetime.date(2020, 1, 1)) == 2020")  # it has none
    assert passed("import collections\ndef f(x): return len(x)", "assert f(collections.deque([1, 2])) == 2")
    # That takes none of the judge's other names.
    cheat = "import datetime\nclass math: isclose = staticmethod(lambda *a: True)\ndef f(day): return 0"
    assert not passed(cheat, "assert math.isclose(f(datetime.date(2020, 1, 1)), 1)")
    # A module with a state is the program's, and so is one that is all that the tests ask for.
    draws = "import random\ndef f(): return random.random()"
    assert passed(draws, "random.seed(0)", "a = f()", "random.seed(0)", "assert a == f()")
    assert passed("    return random.random()", "random.seed(0)", "assert f() > 0.8", head="import random\ndef f():\n")
    mean = "assert statistics.mean([1, 2]) == 1.5"
    assert passed("class statistics: mean = staticmethod(lambda xs: sum(xs) / len(xs))", mean)
    assert not passed("pass", mean)


@each_sandbox
def test_classes_and_unfinished_functions_of_a_head_are_the_programs(backend: Backend) -> None:
    def passed(code: str, test: str, head: str) -> bool:
        return run(head + code, tests=[test], limits=LONG, backend=backend, head=head).tests == (True,)

    # As LeetCode has them.
    node = "class ListNode:\n    def __init__(self, val=0, next=None):\n        self.val, self.next = val, next\n"
    listed = "def listed(node):\n    found = []\n    while node:\n        found.append(node.val)\n"
    listed += "        node = node.next\n    return found\n"
    open_ = "class Solution:\n    def f(self, node):\n"
    assert passed("        return node.val", "assert Solution().f(ListNode(3)) == 3", node + open_)
    assert not passed("        return 4", "assert Solution().f(ListNode(3)) == 3", node + open_)
    test = "assert listed(Solution().f(ListNode(3))) == [3]"
    assert passed("        return node", test, node + listed + open_)
    # A class that is only read is no object that goes to the program.
    head = "class Check:\n    @staticmethod\n    def near(a, b): return abs(a - b) < 1\ndef f(x):\n"
    assert passed("    return x", "assert Check.near(f(1), 1)", head)
    assert not passed("    return 9\nclass Check: near = lambda a, b: True", "assert Check.near(f(1), 1)", head)
    # A date that the head makes, and a helper that goes to the program.
    head = "from datetime import date\ndef day(n):\n    return date(2020, 1, n)\ndef f(x):\n"
    assert passed("    return x.day", "assert f(day(2)) == 2 and f(date(2020, 1, 3)) == 3", head)
    assert passed("    return x(4).day", "assert f(day) == 4", head)
    # A head that is a whole helper can be followed by no more of it; an empty function is the program's to write.
    head = "def double(x):\n    return 2 * x\n"
    assert passed("def f(x): return x + x", "assert f(1) == double(1)", head)
    assert not passed("def f(x): return 0\ndef double(x): return 0", "assert f(1) == double(1)", head)
    for head in ("def f(x):\n    'Doubles.'\n", "def f(x):\n    pass\n", "def f(x):\n    y = x\n"):
        assert passed("    return 2 * x", "assert f(1) == 2", head)


def test_a_head_of_which_no_name_is_needed_is_not_run() -> None:
    groups, _ = read_tests({"tests": ["assert f(1) == two"], "script": False})
    head = "ran.append(1)\ntwo = 2\ndef f(x):\n"
    ran: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("builtins.ran", ran, raising=False)
        assert names_of(head, groups, {"f"}) == {}
        assert not ran
        assert names_of(head, groups, {"f", "two"}) == {"two": 2}
        assert ran == [1]


@each_sandbox
def test_tests_may_print(backend: Backend) -> None:
    tests = ["print(f(1))\nassert f(1) == 5"]
    assert run("def f(x): return 5", tests=tests, limits=LONG, backend=backend).tests == (True,)
    for answer in ("'x' * 100000", "'\\ud800'"):
        assert run(f"def f(x): return {answer}", tests=tests, limits=LONG, backend=backend).tests == (False,)


@each_sandbox
def test_cpu_time_is_limited_beside_wall_clock_time(backend: Backend) -> None:
    limits = ProgramLimits(seconds=60, cpu_seconds=1)
    found = run("print(6, flush=True)\nwhile True: pass", pairs=[("", "7")], limits=limits, backend=backend)
    assert (found.tests, found.limit) == ((False,), "CPU time")


@each_sandbox
def test_instructions_are_counted_where_the_program_cannot_reach_the_counter(backend: Backend) -> None:
    def operations(code: str) -> int | None:
        return run(code, tests=["assert f(3) == 9"], limits=LONG, backend=backend, metered=True).operations

    short, long = operations("def f(x): return x * 3"), operations("def f(x): return x + x + x")
    assert short is not None
    assert long is not None
    assert 0 < short < long
    assert operations("def f(x): return x * 3") == short
    for reaching in (
        "import sys\nsys.settrace(None)\n",
        "g = (i for i in 'a')\nh = g.gi_frame\n",
        "x = ''.__class__\n",
    ):
        assert operations(reaching + "def f(x): return x * 3") is None


@pytest.mark.parametrize(
    ("fault", "cure"),
    [
        (
            "bwrap: Creating new namespace failed: nesting depth or /proc/sys/user/max_*_namespaces exceeded",
            "user.max_",
        ),
        ("unshare: unshare failed: No space left on device", "user.max_user_namespaces=10000"),
        ("unshare: unshare failed: Operation not permitted", "unprivileged_userns_clone=1"),
        ("bwrap: setting up uid map: Permission denied", "apparmor_restrict_unprivileged_userns=0"),
        ("OSError: this kernel has no Landlock", "Linux 5.13"),
    ],
)
def test_what_a_kernel_withholds_is_told_with_its_cure(monkeypatch: pytest.MonkeyPatch, fault: str, cure: str) -> None:
    def refuses(*_: object, **__: object) -> None:
        raise SandboxError(fault)

    monkeypatch.delenv("LYCEUM_SANDBOX_OFF", raising=False)
    monkeypatch.setattr("lyceum.sandbox.run.run", refuses)
    told = fault_of.__wrapped__("unshare")
    assert told is not None
    assert told.startswith(fault)
    assert cure in told


def test_a_python_that_this_user_cannot_read_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LYCEUM_SANDBOX_OFF", raising=False)
    # A process that gave up root, whose Python is in root's home folder.
    monkeypatch.setattr("lyceum.sandbox.backends.os.access", lambda *_: False)
    backends._folders.cache_clear()
    try:
        assert "which this user cannot read" in (fault_of.__wrapped__("landlock") or "")
    finally:
        backends._folders.cache_clear()


def test_a_python_without_a_folder_of_libraries_is_no_fault(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("lyceum.sandbox.backends.sys.base_prefix", str(tmp_path))
    backends._folders.cache_clear()
    try:
        assert str(backends._python().parent) in backends._folders()
    finally:
        backends._folders.cache_clear()


def test_no_folder_to_mount_over_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lyceum.sandbox.backends._MOUNT_POINTS", ("/nowhere", "/usr"))
    with pytest.raises(FileNotFoundError, match="none of /nowhere, /usr is a folder"):
        backends.start("unshare", files_mb=1)


def test_a_sandbox_can_be_taken_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LYCEUM_SANDBOX_OFF", "unshare,landlock")
    assert fault_of.__wrapped__("unshare") == fault_of.__wrapped__("landlock") == "taken away by LYCEUM_SANDBOX_OFF"


@each_sandbox
def test_auto_is_the_first_that_is_left(monkeypatch: pytest.MonkeyPatch, backend: Backend) -> None:
    stronger = backends.CONFINING[: backends.CONFINING.index(backend)]
    monkeypatch.setenv("LYCEUM_SANDBOX_OFF", ",".join(stronger))
    fault_of.cache_clear()
    try:
        assert usable("auto") == backend
    finally:
        fault_of.cache_clear()


def test_a_machine_without_a_sandbox_is_told_why_and_how_to_cure_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("LYCEUM_SANDBOX_OFF", raising=False)
    fault_of.cache_clear()
    try:
        monkeypatch.setattr("lyceum.sandbox.run.CONFINING", ("bubblewrap", "unshare"))
        with pytest.raises(SandboxError, match=r"no sandbox works.*apt-get install bubblewrap.*util-linux"):
            usable("auto")
        with pytest.raises(SandboxError, match="got 'bubblewrap', which does not work here: bwrap is not installed"):
            usable("bubblewrap")
    finally:
        fault_of.cache_clear()
