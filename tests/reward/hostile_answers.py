"""Hostile completions for every verifier, none of which is correct, by construction.

``attacks()`` is the same list every time, more than 5,000 of them. Each verifier has a task whose answer (the number
48213, the letter J, the words "violet heron", three exclamation marks, a document, a sum over a table) occurs in no
completion, so that whatever a verifier finds there must not pass. Those of the reward ``math`` alone are in
``maths_answers.py``.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from lyceum.core.settings import RewardSettings
from lyceum.core.types import Task
from lyceum.papers.reasoning_sql.reward_sql import Sql
from lyceum.reward.choice import Choice
from lyceum.reward.exact import Exact
from lyceum.reward.json_schema import JsonSchemaReward
from lyceum.reward.math import Math
from lyceum.reward.number import Number
from lyceum.reward.regex import RegexReward

TABLE = (
    "CREATE TABLE trip (id INTEGER PRIMARY KEY, town TEXT, km INTEGER);"
    "INSERT INTO trip (town, km) VALUES ('Bonn', 7), ('Ulm', 19), ('Bonn', 23);"
    "INSERT INTO trip (town, km) VALUES ('Jena', 41), ('Ulm', 53), ('Trier', 67);"
)
DOCUMENT = {"type": "object", "required": ["heron"], "properties": {"heron": {"const": "violet"}}}
CATASTROPHIC = r"((a|a)+)+((a*)*b)*c{1,500}!!!"
EXTRACTS: tuple[Any, ...] = ("whole", "boxed", "fenced", {"after": "####"}, {"tags": "answer"}, {"json": "a"})

_ANSWERS: dict[str, tuple[type[RewardSettings], Any, dict[str, Any], dict[str, Any]]] = {
    "math": (Math, "48213", {}, {}),
    "number": (Number, 48213, {}, {}),
    "choice": (Choice, "J", {}, {}),
    "exact": (Exact, "violet heron", {}, {}),
    "regex": (RegexReward, None, {"pattern": CATASTROPHIC, "match": "search"}, {}),
    "regex-of-column": (RegexReward, None, {}, {"pattern": r"(?s).*!!!"}),
    "json-schema": (JsonSchemaReward, None, {"json_schema": DOCUMENT}, {}),
    "sql": (Sql, "SELECT town, sum(km) FROM trip GROUP BY town", {}, {"schema": TABLE}),
}

_ANYWHERE = (
    *("", " ", "\x00", "\ud800", "\udfff\ud800", "\ufeff", "\u202e3", "\x1b[2J", "\u0665\u0666", "e\u0301" * 300),
    *("9**9**9**9", "10^{10^{10}}!", "1e999999999", "-1e-999999999", "0x" + "f" * 999, "7" * 99_999, "nan", "inf"),
    *("{" * 9000, "}" * 9000, "(" * 9000, "[" * 9000, "\\frac{" * 3000, "\\left(" * 2000, "$" * 9000, "`" * 9000),
    *("\\boxed{", "\\boxed{\\boxed{", "\\boxed{}", "\\boxed{ANSWER}", "#### ANSWER", "<answer>", "<answer></answer>"),
    *("</answer><answer>", "<answer>" * 5000, "</answer>" * 5000, "####" * 5000, "```\n" * 5000, "\n" * 50_000),
    *("{answer}", "<answer>your answer</answer>", "The answer is ", "answer " * 9000, "answer is (", "A B C D E F"),
    *("\\boxed{1} \\boxed{2} or \\boxed{3}", ", ".join(map(str, range(2000))), "\\boxed{" + "1 or " * 999 + "2}"),
    *("a" * 30_000 + "b", "ab" * 20_000, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaX", "c" * 40_000, "(a+)+$", ".*.*.*=.*"),
    *("null", "true", "[]", "{}", '{"heron": "blue"}', '{"heron": null, "heron": 3}', '{"a": NaN}', '{"heron": ["v"]}'),
    *(
        "[" * 500 + "]" * 500,
        '{"a":' * 300 + "1" + "}" * 300,
        '{"a": "\\ud800"}',
        '{"$ref": "file:///etc/passwd"}',
        "1" * 40,
    ),
    *("__import__('os').system('true')", "\\input{/etc/passwd}", "{{7*7}}", "%n%s%d", "../../etc/passwd", "<script>"),
)

_QUERIES = (
    *("DROP TABLE trip", "DELETE FROM trip", "UPDATE trip SET km = 0", "INSERT INTO trip (km) VALUES (1)", "VACUUM"),
    *(
        "ATTACH 'x.db' AS x",
        "VACUUM INTO 'x.db'",
        "PRAGMA writable_schema = 1",
        "SELECT load_extension('x.so')",
        "BEGIN",
    ),
    *("CREATE TABLE x (y)", "CREATE TEMP TABLE x AS SELECT * FROM trip", "DETACH main", "REINDEX", "ANALYZE", "COMMIT"),
    *("SELECT 1; DROP TABLE trip", "EXPLAIN SELECT 1", "SELECT random()", "SELECT hex(randomblob(1000000000))", ";;;"),
    "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT count(*) FROM r",
    "WITH RECURSIVE r(n) AS (SELECT 'x' UNION ALL SELECT n || n FROM r) SELECT n FROM r",
    "WITH RECURSIVE r(n) AS (VALUES(1) UNION ALL SELECT n + 1 FROM r) SELECT n, n FROM r",
    "SELECT a.km, b.km FROM trip a, trip b, trip c, trip d, trip e, trip f, trip g, trip h, trip i, trip j",
    "SELECT town, group_concat(hex(zeroblob(900000))) FROM trip GROUP BY town",
    "SELECT replace(hex(zeroblob(400000)), '0', hex(zeroblob(400000))), 1",
    "SELECT printf('%900000d', 1), printf('%.*c', 900000, 'x')",
    "SELECT 'Bonn', 30 UNION ALL SELECT 'Ulm', 72 UNION ALL SELECT 'Jena', 41 UNION ALL SELECT 'Trier', 67",
    "VALUES ('Bonn', 30), ('Ulm', 72), ('Jena', 41), ('Trier', 67)",
    "SELECT town, CASE town WHEN 'Bonn' THEN 30 WHEN 'Ulm' THEN 72 ELSE km END FROM trip GROUP BY town",
    "SELECT town, sum(km), 1 FROM trip GROUP BY town",
    "SELECT sum(km), town FROM trip GROUP BY town",
    "SELECT town, max(km) FROM trip GROUP BY town",
    "SELECT * FROM (SELECT town, sum(km) FROM trip GROUP BY town) LIMIT 0",
    "SELECT * FROM sqlite_master",
    "SELECT * FROM pragma_database_list",
    "SELECT " + "(" * 5000 + "1" + ")" * 5000,
    "SELECT " + "1 + " * 9000 + "1",
    "SELECT 1 " + "UNION ALL SELECT 1 " * 900,
    "SELECT * FROM trip WHERE town LIKE '" + "%a" * 900 + "'",
    "SELECT * FROM trip WHERE town IN (" + ", ".join(map(str, range(3000))) + ")",
    "SELECT '" + "x" * 50_000,
    "SELECT /*" + "x" * 50_000,
    'SELECT "' + "x" * 5000,
)

_AROUND = (
    "{}",
    "\\boxed{{{}}}",
    "\\boxed{{{}",
    "\\boxed{{5}} and then \\boxed{{{}}}",
    "#### {}",
    "#### 5\n#### {}\n",
    "<answer>{}</answer>",
    "<answer>5</answer><answer>{}",
    "```\n{}\n```",
    "```json\n{}",
    "```sql\n{}\n```\n```\n5\n```",
    "The answer is {}.",
    "Put your answer in \\boxed{{ANSWER}} or after ####, <answer>ANSWER</answer>.\n{}",
)

_HUGE = (
    *("a " * 500_000, "{" * 10**6, "\\" * 10**6, "9" * 10**6, "\\boxed{" * 140_000, "<answer>" * 125_000, "#" * 10**6),
    *("```\n" * 250_000, "answer " * 140_000, "\ud800" * 10**6, '["' * 500_000, "SELECT " * 140_000, "'" * 10**6),
)
"""Completions of a megabyte."""


@dataclass(frozen=True)
class Attack:
    """A completion that must not pass.

    Attributes:
        verifier: its name in this file.
    """

    verifier: str
    part: RewardSettings
    task: Task
    completion: str


def attacks(**limits: Any) -> Iterator[Attack]:
    """All of them, verifier by verifier.

    Args:
        limits: further settings of those that run in worker processes.
    """
    for name, (settings, answer, given, columns) in _ANSWERS.items():
        draw = random.Random(f"hostile {name}")
        task = Task(name, ({"role": "user", "content": "?"},), answer, columns)
        payloads = [*_ANYWHERE, *(_QUERIES if name == "sql" else ()), *_mutations(draw)]
        in_worker = {key: value for key, value in limits.items() if key in settings.model_fields}
        for number, payload in enumerate(payloads):
            for place, around in enumerate(_AROUND):
                # Each payload under each wrapping; extraction takes turns.
                extract = EXTRACTS[(number + place) % len(EXTRACTS)]
                yield Attack(name, settings(extract=extract, **given, **in_worker), task, around.format(payload))
        for number, payload in enumerate(_HUGE):
            extract = EXTRACTS[number % len(EXTRACTS)]
            yield Attack(name, settings(extract=extract, **given, **in_worker), task, payload)


def _mutations(draw: random.Random) -> Iterator[str]:
    """Texts of signs that verifiers read, at random."""
    signs = [
        "{",
        "}",
        "(",
        ")",
        "\\",
        "$",
        "`",
        '"',
        "'",
        "[",
        "]",
        ",",
        "=",
        "^",
        "-",
        "/",
        ".",
        "%",
        "&",
        "\n",
        "\x00",
    ]
    signs += [
        "\\boxed{",
        "\\frac{",
        "<answer>",
        "</answer>",
        "####",
        "```\n",
        "or",
        "5",
        "0",
        "a",
        "\ud800",
        "é",
        "SELECT",
    ]
    for _ in range(8):
        yield "".join(draw.choices(signs, k=draw.choice((5, 40, 400))))
    yield json.dumps({draw.choice("abc"): draw.random() for _ in range(3)})
