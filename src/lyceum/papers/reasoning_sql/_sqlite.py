"""The worker side of the reward ``sql``: hostile queries against SQLite databases that nothing can write to."""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

LONGEST_QUERY = 20_000
"""Maximum characters of a query; a longer one is incorrect."""

_READING = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE}
_MAKING = _READING | {
    *(sqlite3.SQLITE_CREATE_TABLE, sqlite3.SQLITE_CREATE_INDEX, sqlite3.SQLITE_CREATE_VIEW, sqlite3.SQLITE_INSERT),
    *(sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_DELETE, sqlite3.SQLITE_TRANSACTION, sqlite3.SQLITE_SAVEPOINT),
    *(sqlite3.SQLITE_ALTER_TABLE, sqlite3.SQLITE_REINDEX, sqlite3.SQLITE_DROP_TABLE, sqlite3.SQLITE_DROP_VIEW),
}
_REFUSED_FUNCTIONS = {
    *("load_extension", "random", "randomblob", "current_date", "current_time", "current_timestamp", "fts3_tokenizer"),
    *("changes", "total_changes", "last_insert_rowid", "sqlite_offset", "edit", "writefile", "readfile", "fts5"),
}
"""Functions that reach outside of the database or whose result is not the same twice."""
_INSTRUCTIONS = 1000
"""Instructions of SQLite's machine between two looks at the count."""
_LIMITS = (
    (sqlite3.SQLITE_LIMIT_LENGTH, 1 << 20),
    (sqlite3.SQLITE_LIMIT_SQL_LENGTH, 1 << 20),
    (sqlite3.SQLITE_LIMIT_ATTACHED, 0),
    (sqlite3.SQLITE_LIMIT_EXPR_DEPTH, 200),
    (sqlite3.SQLITE_LIMIT_COMPOUND_SELECT, 50),
    (sqlite3.SQLITE_LIMIT_VDBE_OP, 100_000),
    (sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 1000),
    (sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH, 1),
    (sqlite3.SQLITE_LIMIT_WORKER_THREADS, 0),
)
LONGEST_TEXT = 100_000
"""Maximum bytes of a value or row that a query handles: instr and replace take the product of two lengths, within one
instruction of SQLite's machine."""
_DATABASES = 8
"""Databases that a worker keeps: completions of one task follow each other."""

_TOKEN = re.compile(
    r"--[^\n]*|/\*.*?(?:\*/|\Z)|'(?:[^']|'')*(?:'|\Z)|\"(?:[^\"]|\"\")*(?:\"|\Z)|`[^`]*(?:`|\Z)|\[[^\]]*(?:\]|\Z)"
    r"|\w+(?:\.\d+)?|[<>!=|]{2}|\S",
    re.DOTALL,
)


class Refused(Exception):
    """A query that gave no result: a mistake, something other than reading, or one of the limits."""


def checker(
    *, path: str | None, n: int, variants: int, max_rows: int, max_instructions: int
) -> Callable[[dict[str, Any]], Any]:
    """The job function: the parts of ``query`` against ``references``, or why there are none."""
    run = partial(rows_of, max_rows=max_rows, max_instructions=max_instructions)

    @lru_cache(maxsize=_DATABASES)
    def databases(schema: str) -> list[sqlite3.Connection]:
        if path is not None:
            return [opened(path)]
        return [made(schema, variant, max_instructions) for variant in range(variants + 1)]

    @lru_cache(maxsize=_DATABASES)
    def expected(schema: str, reference: str) -> list[list[bytes]]:
        found = [run(database, reference) for database in databases(schema)]
        if not found[0]:
            raise Refused("it returns no rows, as any query does that finds nothing")
        return found

    def check(job: dict[str, Any]) -> dict[str, Any]:
        schema, query = job["schema"], job["query"]
        try:
            names = names_in(databases(schema)[0])
            results = [(reference, expected(schema, reference)) for reference in job["references"]]
        except (Refused, sqlite3.Error, UnicodeError) as error:
            return {"ungraded": f"the task's own database or reference query: {error}"}
        if len(query) > LONGEST_QUERY:
            return dict.fromkeys(("execution", "syntax", "schema_linking", "ngrams"), 0.0)
        try:
            returned = [run(database, query) for database in databases(schema)]
        except Refused:
            returned = None
        written = tokens_of(query)
        of_references = [tokens_of(reference) for reference in job["references"]]
        return {
            "execution": float(returned is not None and any(same(returned, *result) for result in results)),
            "syntax": float(returned is not None),
            "schema_linking": max(overlap(names & {*written}, names & {*one}) for one in of_references),
            "ngrams": max(overlap(runs_of(written, n), runs_of(one, n)) for one in of_references),
        }

    return check


def made(schema: str, variant: int, max_instructions: int) -> sqlite3.Connection:
    """A database in memory, made by statements; variants above 0 lack about half of each table's rows.

    Raises:
        Refused: a statement fails, is none of those that make tables, or exceeds a limit.
    """
    database = _limited(sqlite3.connect(":memory:", isolation_level=None))
    database.set_authorizer(partial(_authorize, _MAKING))
    database.set_progress_handler(_Count(max_instructions), _INSTRUCTIONS)
    try:
        database.executescript(schema)
        if database.in_transaction:
            database.execute("COMMIT")
        for table in [row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]:
            if variant:
                quoted = '"' + table.replace('"', '""') + '"'
                try:
                    rows = [row[0] for row in database.execute(f"SELECT rowid FROM {quoted}")]
                except sqlite3.OperationalError:  # a table WITHOUT ROWID stays whole
                    continue
                dropped = [(row,) for row in rows if blake2b(f"{variant} {row}".encode()).digest()[0] % 2]
                database.executemany(f"DELETE FROM {quoted} WHERE rowid = ?", dropped)
    except (sqlite3.Error, sqlite3.Warning, ValueError) as error:
        raise Refused(str(error)[:200]) from None
    return _read_only(database)


def opened(path: str) -> sqlite3.Connection:
    return _read_only(_limited(sqlite3.connect(f"{Path(path).as_uri()}?mode=ro&immutable=1", uri=True)))


def _limited(database: sqlite3.Connection) -> sqlite3.Connection:
    for limit, value in _LIMITS:
        database.setlimit(limit, value)
    database.text_factory = lambda content: content.decode("utf-8", "surrogateescape")
    return database


def _read_only(database: sqlite3.Connection) -> sqlite3.Connection:
    database.set_progress_handler(None, 0)
    database.set_authorizer(None)
    database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_TEXT)
    database.execute("PRAGMA query_only = 1")
    database.set_authorizer(partial(_authorize, _READING))
    return database


def _authorize(allowed: set[int], action: int, first: str | None, second: str | None, *_: Any) -> int:
    if action == sqlite3.SQLITE_FUNCTION:
        return sqlite3.SQLITE_DENY if (second or "").lower() in _REFUSED_FUNCTIONS else sqlite3.SQLITE_OK
    if action == sqlite3.SQLITE_PRAGMA and allowed is _MAKING:
        return sqlite3.SQLITE_IGNORE  # dumps begin with some; none has an effect here
    return sqlite3.SQLITE_OK if action in allowed else sqlite3.SQLITE_DENY


class _Count:
    """Interrupts a statement after so many instructions."""

    def __init__(self, most: int) -> None:
        self.left = most

    def __call__(self) -> bool:
        self.left -= _INSTRUCTIONS
        return self.left < 0


def rows_of(database: sqlite3.Connection, query: str, *, max_rows: int, max_instructions: int) -> list[bytes]:
    """A digest of each row that a query returns, in order; the number of columns is part of it.

    Raises:
        Refused: it is not one SELECT, fails, or exceeds a limit.
    """
    database.set_progress_handler(_Count(max_instructions), _INSTRUCTIONS)
    try:
        if tokens_of(query)[:1] not in (["select"], ["with"], ["values"]):  # EXPLAIN returns rows, too
            raise Refused("it is no query")
        cursor = database.execute(query)
        rows: list[bytes] = []
        for row in cursor:
            if len(rows) == max_rows:
                raise Refused(f"more than {max_rows} rows")
            rows.append(_digest(row))
        return rows
    except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError) as error:
        # A ValueError: a NUL, or half of a surrogate pair.
        raise Refused(str(error)[:200]) from None


def _digest(row: Sequence[Any]) -> bytes:
    cells = (
        # 2 and 2.0 are one number to SQLite, and sums of floats depend on the order of rows.
        f"{value:.9g}" if isinstance(value, float) else repr(value)
        for value in (int(v) if isinstance(v, float) and v.is_integer() and abs(v) < 1e15 else v for v in row)
    )
    return blake2b("\x00".join(cells).encode("utf-8", "surrogatepass"), digest_size=16).digest()


def same(returned: Sequence[Sequence[bytes]], reference: str, expected: Sequence[Sequence[bytes]]) -> bool:
    """Whether each database's rows are those of the reference, in order where it orders them."""
    if is_ordered(reference):
        return list(map(list, returned)) == list(map(list, expected))
    return all(Counter(one) == Counter(other) for one, other in zip(returned, expected, strict=True))


def is_ordered(query: str) -> bool:
    """Whether it has an ORDER BY outside of all parentheses."""
    depth, before = 0, ""
    for token in tokens_of(query):
        depth += (token == "(") - (token == ")")
        if depth == 0 and (before, token) == ("order", "by"):
            return True
        before = token
    return False


def tokens_of(query: str) -> list[str]:
    """Words, names (without their quotes), texts and signs, in small letters, without comments and a last semicolon."""
    found = [match.group() for match in _TOKEN.finditer(query)]
    tokens = [
        token[1:-1].lower() if token[0] in '"`[' and len(token) > 1 else token.lower()
        for token in found
        if not token.startswith(("--", "/*"))
    ]
    return tokens[:-1] if tokens and tokens[-1] == ";" else tokens


def names_in(database: sqlite3.Connection) -> set[str]:
    """Names of tables and columns, in small letters."""
    names: set[str] = set()
    database.set_authorizer(None)
    try:
        tables = [row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")]
        for table in tables:
            quoted = '"' + table.replace('"', '""') + '"'
            names |= {row[1].lower() for row in database.execute(f"PRAGMA table_info({quoted})")}
        return names | {table.lower() for table in tables}
    finally:
        database.set_authorizer(partial(_authorize, _READING))


def runs_of(tokens: Sequence[str], n: int) -> set[tuple[str, ...]]:
    """All runs of n tokens; a shorter query is one run."""
    return {tuple(tokens[at : at + n]) for at in range(max(1, len(tokens) - n + 1))} if tokens else set()


def overlap(one: set[Any], other: set[Any]) -> float:
    """What both have, divided by what either has: 0 to 1; 0 where both are empty."""
    return len(one & other) / len(one | other) if one | other else 0.0
