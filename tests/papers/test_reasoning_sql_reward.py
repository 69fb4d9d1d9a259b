"""The reward ``sql``: queries run in a worker that can do nothing but read, and are compared by their rows."""

import sqlite3

import pytest
from leaves import Source, grades, outcomes, task
from pydantic import ValidationError

from lyceum.papers.reasoning_sql._sqlite import is_ordered, overlap, runs_of, tokens_of
from lyceum.papers.reasoning_sql.reward_sql import Sql

TOWNS = (
    "PRAGMA foreign_keys = OFF; BEGIN;"
    "CREATE TABLE town (id INTEGER PRIMARY KEY, name TEXT, people INTEGER);"
    "INSERT INTO town (name, people) VALUES ('Bonn', 330), ('Ulm', 126), ('Jena', 110), ('Trier', 111), ('Hof', 46);"
    "COMMIT;"
)


@pytest.fixture(scope="module", autouse=True)
def a_worker_for_all_tests():
    return Sql(workers=1).build(Source(task()))


def said(reference, *queries, **settings):
    return outcomes(Sql(workers=1, **settings), task(reference, schema=TOWNS), *queries)


def test_rows_count_and_not_how_the_query_is_written():
    reference = "SELECT name FROM town WHERE people > 110"
    same = (
        "select t.name as n from town t where not t.people <= 110 order by people;",
        "WITH a AS (SELECT * FROM town) SELECT name FROM a WHERE people > 110 -- done",
    )
    other = (
        "SELECT name FROM town",
        "SELECT name, people FROM town WHERE people > 110",
        "SELECT people FROM town WHERE people > 110",
    )
    assert said(reference, *same, *other) == [1.0, 1.0, 0.0, 0.0, 0.0]
    # Numbers are numbers: 2 and 2.0, and sums in another order.
    assert said("SELECT sum(people) / 2.0 FROM town", "SELECT sum(people * 0.5) FROM town") == [1.0]


def test_the_order_of_rows_counts_where_the_reference_orders_them():
    ordered = "SELECT name FROM town ORDER BY people"
    assert said(ordered, "SELECT name FROM town ORDER BY people ASC", "SELECT name FROM town") == [1.0, 0.0]
    assert said("SELECT name FROM town", ordered) == [1.0]
    assert is_ordered("SELECT a FROM t ORDER\nBY a")
    assert not is_ordered("SELECT (SELECT a FROM t ORDER BY a LIMIT 1) -- ORDER BY a")


def test_a_constant_or_a_lucky_query_is_found_out_on_databases_that_lack_rows():
    reference = "SELECT count(*) FROM town"
    lucky = (
        "SELECT 5",
        "SELECT 5 FROM town LIMIT 1",
        "SELECT max(id) FROM town WHERE id = 5",
        "SELECT sum(1) FROM town",
    )
    assert said(reference, *lucky) == [0.0, 0.0, 0.0, 1.0]
    assert said(reference, *lucky, variants=0) == [1.0, 1.0, 1.0, 1.0]


@pytest.mark.parametrize(
    "query",
    [
        *("DELETE FROM town", "DROP TABLE town", "INSERT INTO town (name) VALUES ('x')", "UPDATE town SET name = 'x'"),
        *(
            "ATTACH 'x.db' AS x",
            "VACUUM INTO 'x.db'",
            "PRAGMA query_only = 0",
            "SELECT load_extension('x.so')",
            "BEGIN",
        ),
        *("CREATE TEMP TABLE x AS SELECT 1", "SELECT 1; DELETE FROM town", "EXPLAIN SELECT 1", "SELECT random()"),
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n",
        "SELECT * FROM town a, town b, town c, town d, town e, town f, town g",
        "SELECT hex(zeroblob(1000000000))",
        "SELECT '" + "x" * 30_000 + "'",
        "SELECT nothing FROM town",
        "\ud800",
        "SELECT 1\x00",
    ],
)
def test_what_writes_reaches_out_or_does_not_end_is_an_error_of_the_query(query, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    bad, good = grades(Sql(workers=1), task("SELECT name FROM town", schema=TOWNS), query, "SELECT name FROM town")
    assert (bad.outcome, bad.parts["sql/syntax"], bad.correct) == (0.0, 0.0, False)
    assert good.outcome == 1.0  # the same database, which nothing has changed
    assert list(tmp_path.iterdir()) == []


def test_a_database_or_reference_that_does_not_work_leaves_the_task_ungraded():
    for answer, schema, reason in (
        ("SELECT name FROM town WHERE 0", TOWNS, "returns no rows"),
        ("SELECT name FROM nowhere", TOWNS, "no such table"),
        ("DELETE FROM town", TOWNS, "no query"),
        ("SELECT 1", "ATTACH 'x.db' AS x", "not authorized"),
        ("SELECT 1", "CREATE TABLE", "incomplete input"),
        (None, TOWNS, "no reference query"),
        ("SELECT 1", 3, "no text"),
    ):
        [grade] = grades(Sql(workers=1), task(answer, schema=schema), "SELECT 1")
        assert grade.outcome is None
        assert reason in grade.reason


def test_partial_rewards_by_hand():
    # Tokens: select name from town where people > 110, and the same with id for people. Bigrams: 7 each, of which
    # "where X" and "X >" differ: 5 of 9. Names: name town people, name town id: 2 of 4.
    reference, query = "SELECT name FROM town WHERE people > 110", "SELECT name FROM town WHERE id > 110 -- people"
    [grade] = grades(Sql(syntax=0.5, schema_linking=0.2, ngrams=0.1, workers=1), task(reference, schema=TOWNS), query)
    parts = {name.removeprefix("sql/"): value for name, value in grade.parts.items()}
    assert (parts["execution"], parts["syntax"], parts["schema_linking"]) == (0.0, 1.0, 0.5)
    assert parts["ngrams"] == pytest.approx(5 / 9)
    assert grade.outcome == pytest.approx(0.5 + 0.2 * 0.5 + 0.1 * 5 / 9)
    assert tokens_of('SELECT "A b", `c`, [d] /* e */ FROM t -- f') == ["select", "a b", ",", "c", ",", "d", "from", "t"]
    assert runs_of(["a", "b"], 3) == {("a", "b")}
    assert overlap(set(), set()) == 0.0


def test_weights_by_which_an_incorrect_query_could_earn_more_are_refused():
    with pytest.raises(ValidationError, match="which an incorrect query may earn"):
        Sql(execution=1.0, schema_linking=0.5, ngrams=0.5)


def test_the_database_may_be_a_file_that_is_only_read(tmp_path):
    file = tmp_path / "towns.db"
    with sqlite3.connect(file) as database:
        database.executescript("CREATE TABLE town (name TEXT); INSERT INTO town VALUES ('Bonn'), ('Ulm');")
    before = file.read_bytes()
    queries = ("SELECT name FROM town", "DELETE FROM town", "SELECT 'Ulm' UNION SELECT 'Bonn'")
    assert outcomes(Sql(path=str(file), workers=1), task("SELECT name FROM town"), *queries) == [1.0, 0.0, 1.0]
    assert file.read_bytes() == before
    with pytest.raises(ValidationError, match="no SQLite file"):
        Sql(path=__file__)


def test_a_slow_function_of_long_texts_is_incorrect_and_not_ungraded():
    # One instruction of SQLite's machine, which compares a text at each place of another: 4 * 10^10 bytes.
    long = "SELECT instr(replace(hex(zeroblob(400000)),'0','a'), replace(hex(zeroblob(200000)),'0','a')||'b'), 1"
    # Within the length of a text, but two hundred of them: the time is over, the reference's own is not.
    part = "instr(replace(hex(zeroblob(45000)),'0','a'), replace(hex(zeroblob(20000)),'0','a')||'b')"
    many = "SELECT " + " + ".join([part] * 190) + " FROM town a, town b, town c"
    assert said("SELECT name FROM town", long, many, "SELECT name FROM town", timeout_seconds=1) == [0.0, 0.0, 1.0]
