"""Completions that mean harm: programs, answers and queries of the pieces that once left a grade out or forged it.

Each is made of its family's pieces by chance, so that the fuzzer finds relatives of what is known. Whatever they do,
each has to be graded; no program of these is right.
"""

from __future__ import annotations

import textwrap

from hypothesis import strategies as st

_INT = st.sampled_from((*range(16), 31, 59, 61, 64, 100, 1000, 2**31 - 1, 2**31, 2**61 - 1, 2**64, 10**18))


def _call(template: str, *values: st.SearchStrategy[object]) -> st.SearchStrategy[str]:
    return st.tuples(*values).map(lambda given: template.format(*given))


# --- programs: ``add(2, 3) == 5`` is asked of them, and none of them adds -------------------------------------------

_KEY = st.sampled_from(("print", "int", "add", "object()", "1j", "b'x'", "float('nan')", "10**400", "'\\ud800'", "()"))
_ODD_RESULT = st.one_of(
    _KEY,
    _call("{{{}}}", _KEY),
    _call("{{{}: {}}}", _KEY, _KEY),
    _call("{{(i * {},) for i in range({})}}", _INT, st.sampled_from((10, 3000, 30_000))),
    _call("{{i * {}: {} for i in range({})}}", _INT, _KEY, st.sampled_from((10, 3000))),
    _call("[{}] * {}", _KEY, st.sampled_from((0, 1, 10_000, 10_000_000))),
    _call("'{}' * {}", st.sampled_from(("x", "\\ud800", "\\x00", "é")), st.sampled_from((1, 10**6, 10**9))),
    _call("type('T', (int,), {{'__eq__': lambda *a: True, '__hash__': {}}})(3)", _KEY),
    _call("(lambda f: f(f, {}))(lambda f, n: [f(f, n - 1)] if n else [])", st.sampled_from((10, 300, 900))),
    _call("range({})", _INT),
)
_RAISES = st.sampled_from(
    ("StopIteration", "GeneratorExit", "KeyboardInterrupt", "SystemExit", "MemoryError", "BaseException", "Exception")
)
_DEED = st.one_of(
    _call("__import__('signal').raise_signal({})", st.integers(0, 65)),
    _call("__import__('signal').pthread_kill(__import__('threading').get_ident(), {})", st.integers(0, 65)),
    _call("__import__('os').kill(__import__('os').getpid(), {})", st.integers(0, 65)),
    _call("__import__('signal').setitimer({}, 0.01)", st.integers(0, 2)),
    _call("__import__('signal').alarm({})", st.integers(0, 2)),
    _call("__import__('resource').setrlimit({}, ({}, {}))", st.integers(0, 15), _INT, _INT),
    _call("__import__('os').write({}, {})", st.integers(0, 9), st.sampled_from(("b''", "b'{}\\n'", "b'x' * 10**6"))),
    _call(
        "__import__('os').write({}, __import__('struct').pack('>I', {}) + {!r})",
        st.integers(0, 9),
        st.sampled_from((0, 2, 20, 2**31, 2**32 - 1)),
        st.sampled_from((b'{"value": 5}', b'{"value": {"complex": [1e999, 0]}}', b'{"error": null}', b"[" * 5000)),
    ),
    _call("__import__('os').close({})", st.integers(0, 9)),
    _call("__import__('os').dup2({}, {})", st.integers(0, 9), st.integers(0, 9)),
    _call("__import__('os')._exit({})", st.integers(0, 255)),
    _call("__import__('sys').exit({})", _ODD_RESULT),
    _call("__import__('sys').setrecursionlimit({})", st.sampled_from((1, 100, 10**9))),
    _call(
        "(_ for _ in ()).throw({}({}))", _RAISES, st.sampled_from(("", "'\\ud800'", "10**400", "print", "'x' * 10**7"))
    ),
    _call("print({})", _ODD_RESULT),
    _call("exec({!r})", st.sampled_from(("x = " + "(" * 200, "def f(): f()\nf()", "import add", "raise add"))),
)
_NAMES = ("add", "math", "isclose", "all", "print", "len", "sorted", "map", "helper", "__name__", "__builtins__")


@st.composite
def programs(draw: st.DrawFn) -> str:
    """A program without an ``add`` that adds."""
    lines = draw(st.lists(_DEED, max_size=2))
    lines += draw(st.lists(_call("{} = {}", st.sampled_from(_NAMES), _ODD_RESULT), max_size=2))
    if draw(st.booleans()):
        cheat = "class math: isclose = staticmethod(lambda *a, **k: True)"
        lines.append(
            draw(st.sampled_from((cheat, "def helper(*a): return 0", "def all(x): return True", "import math")))
        )
    body = draw(st.lists(_DEED, max_size=2))
    body.append(draw(st.sampled_from(("return {}", "yield {}", "raise Exception({})"))).format(draw(_ODD_RESULT)))
    lines.append("def add(*given):\n" + textwrap.indent("\n".join(body), "    "))
    return "\n".join(draw(st.permutations(lines)))


TESTS = (
    *("assert add(2, 3) == 5", "assert math.isclose(add(2, 3), 5.0)", "assert helper(add(2, 3)) == 10"),
    *(
        "assert all(map(lambda c: add(*c[:2]) == c[2], [(2, 3, 5), (4, 5, 9)]))",
        "assert sorted([add(2, 3), 7]) == [5, 7]",
    ),
    *("for r, e in zip(map(add, [2, 4], [3, 5]), [5, 9]):\n    assert r == e\nassert add(1, 1) == 2",),
)

# --- mathematics: the answer is 5 ---------------------------------------------------------------------------------

_NUMBER = st.sampled_from(("2", "4", "9", "20", "100", "10^9", "10^{9}", "100000000", "n", "x", "e", "\\infty", "0"))


def _larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        _call("{}{}", inner, st.integers(1, 5).map("!".__mul__)),
        _call("({})!", inner),
        _call("{}^{{{}}}", inner, inner),
        _call("({}+1)^{{{}}}", inner, inner),
        _call("\\binom{{{}}}{{{}}}", inner, inner),
        _call("{{{} \\choose {}}}", inner, inner),
        _call("\\sum_{{k=1}}^{{{}}} \\frac{{1}}{{k^{{{}}}}}", inner, inner),
        _call("\\prod_{{k=1}}^{{{}}} {}", inner, inner),
        _call("\\sin({})", inner),
        _call("\\sqrt[{}]{{{}}}", inner, inner),
        _call("\\frac{{{}}}{{{}}}", inner, inner),
        _call("\\int_0^{{{}}} \\frac{{\\sin({})}}{{x^{{{}}}}} dx", inner, inner, inner),
        _call("\\gcd({}, {})", inner, inner),
        _call("\\begin{{pmatrix}}{} & {} \\\\ {} & 1\\end{{pmatrix}}^{{{}}}", inner, inner, inner, inner),
        _call("\\{{{}, {}\\}}", inner, inner),
        _call("({}, {})", inner, inner),
        _call("[{}, {})", inner, inner),
        _call("{}{}", inner, st.integers(1, 40).map("'".__mul__)),
        _call("{} \\bmod {}", inner, inner),
        _call("\\log_{{{}}}({})", inner, inner),
    )


_expressions = st.recursive(_NUMBER, _larger, max_leaves=6)

# --- SQL: the reference is SELECT 5 -------------------------------------------------------------------------------

_QUERIES = st.one_of(
    _call(
        "SELECT instr(replace(hex(zeroblob({})), '0', '{}'), replace(hex(zeroblob({})), '0', 'a') || 'b'), 1",
        _INT,
        st.sampled_from(("a", "ab", "")),
        _INT,
    ),
    _call("SELECT length(hex(randomblob({}))) + {}", _INT, _INT),
    _call("WITH RECURSIVE t(n) AS (SELECT {} UNION ALL SELECT n + 1 FROM t) SELECT count(*) FROM t", _INT),
    _call(
        "WITH RECURSIVE t(s) AS (SELECT 'x' UNION ALL SELECT s || s FROM t LIMIT {}) SELECT max(length(s)) FROM t", _INT
    ),
    _call("SELECT group_concat(printf('%.*c', {}, 'x')) FROM (SELECT 1 UNION SELECT {})", _INT, _INT),
    _call("SELECT 'x' LIKE replace(hex(zeroblob({})), '0', '%a'), {}", _INT, _INT),
    _call("SELECT {} GLOB replace(hex(zeroblob({})), '0', '*a')", _INT, _INT),
    _call("ATTACH DATABASE '{}' AS x", st.sampled_from(("/tmp/x", "x", ":memory:", "/etc/passwd"))),
    _call("PRAGMA {} = {}", st.sampled_from(("hard_heap_limit", "writable_schema", "temp_store_directory")), _INT),
    _call("SELECT load_extension('{}'), readfile('/etc/passwd')", _INT),
)


HEAD = "def helper(x):\n    return 2 * x\n\nTWO = 2\n"
RIGHT = "```python\ndef add(a, b):\n    return a + b\n```"
"""Passes every one of the tests, whatever stands beside it."""


@st.composite
def attacks(draw: st.DrawFn, kind: str) -> tuple[str, list[dict[str, object]]]:
    """A reward's settings, and rows that it has to grade: of programs the first is right and all others are wrong."""
    number = st.integers(1, 5)
    if kind == "code":
        task = {"prompt": "add", "tests": draw(st.lists(st.sampled_from(TESTS), min_size=1, max_size=2)), "head": HEAD}
        said = [RIGHT, *(f"```python\n{draw(programs())}\n```" for _ in range(draw(number)))]
        return "{kind: code, limits: {seconds: 3, memory_mb: 256}}", [task | {"completion": each} for each in said]
    if kind == "math":
        return "math", [
            {"prompt": "5?", "answer": "5", "completion": f"\\boxed{{{draw(_expressions)}}}"}
            for _ in range(draw(number))
        ]
    task = {"prompt": "5?", "answer": "SELECT 5", "schema": "CREATE TABLE t (a)"}
    return "sql", [task | {"completion": draw(_QUERIES)} for _ in range(draw(number))]
