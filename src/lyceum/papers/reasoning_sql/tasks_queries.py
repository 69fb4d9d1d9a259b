"""Small questions over a small database, to answer with SQL (reward ``sql``).

``max ml, cm>3:`` is answered ``cup#select max(ml) from cup where cm>3``: which table has the columns, and the query.
The tables are always the same, their rows are each task's own.
"""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Literal

from pydantic import Field

from lyceum.core.settings import TasksSettings
from lyceum.core.types import Grader, Split, Task
from lyceum.papers.reasoning_sql.reward_sql import Sql
from lyceum.tasks.base import GeneratedSource, draw, levels_within

TABLES = {"pet": ("age", "kg", "day"), "cup": ("ml", "cm", "eur"), "bus": ("km", "run", "seat")}
AGGREGATES = ("max", "min", "sum", "count")
SIGNS = ("<", ">", "=")
ROWS = 12
PARTS = ("select", "table", "condition")
"""What an error is in, and what points are given for."""


@dataclass(frozen=True)
class Query:
    """``select aggregate(column) from table where condition``; an empty aggregate is left out."""

    aggregate: str
    column: str
    table: str
    condition: str

    def sql(self) -> str:
        select = f"{self.aggregate}({self.column})" if self.aggregate else self.column
        return f"select {select} from {self.table} where {self.condition}"

    def words(self) -> str:
        return f"{self.aggregate} {self.column}, {self.condition}".strip()

    def completion(self) -> str:
        return f"{self.table}#{self.sql()}"


class Queries(TasksSettings):
    """Questions with one condition about one of three tables; level 1 asks for a column, level 2 for an aggregate."""

    kind: Literal["queries"] = "queries"
    levels: tuple[int, ...] = (1, 2)
    """Tasks cycle through them."""
    size: int = Field(default=100_000, ge=1)
    """Tasks in each split."""

    _levels_are_usable = levels_within(1, 2, "levels")

    def build(self, split: Split, seed: int) -> QuerySource:
        return QuerySource(self, split, seed)


class QuerySource(GeneratedSource[Queries]):
    """``source[i]`` depends on (seed, split, i) alone."""

    def __getitem__(self, index: int) -> Task:
        return self.drawn(index)[0]

    def drawn(self, index: int) -> tuple[Task, Query]:
        """A task and its query."""
        levels = self.settings.levels
        id = self.key(index)
        made: list[Query] = []

        def make(rng: random.Random) -> Task | None:
            found = make_task(id, rng, levels[index % len(levels)])
            if found is None:
                return None
            made.append(found[1])
            return found[0]

        return draw(id, self.split, make, problem=asked), made[-1]

    def grader(self) -> Grader:
        return Sql.model_validate({"extract": {"after": "#"}}).build(self)


def asked(task: Task) -> str:
    return str(task.messages[-1]["content"])


def make_task(id: str, rng: random.Random, level: int) -> tuple[Task, Query] | None:
    """A question over rows that it draws, and its query; None where that finds no row."""
    rows = {name: [[rng.randint(0, 9) for _ in columns] for _ in range(ROWS)] for name, columns in TABLES.items()}
    table = rng.choice(list(TABLES))
    column, other = rng.sample(TABLES[table], 2)
    sign, number = rng.choice(SIGNS), rng.randint(1, 8)
    if not any(holds(row[TABLES[table].index(other)], sign, number) for row in rows[table]):
        return None
    query = Query(rng.choice(AGGREGATES) if level == 2 else "", column, table, f"{other}{sign}{number}")
    statements = [
        f"create table {name}({','.join(columns)}); insert into {name} values "
        + f"{','.join(f'({a},{b},{c})' for a, b, c in rows[name])};"
        for name, columns in TABLES.items()
    ]
    shown = {"level": level, "schema": " ".join(statements)}
    return Task(
        id, ({"role": "user", "content": f"{query.words()}:"},), query.sql(), shown, provenance="queries"
    ), query


def holds(value: int, sign: str, number: int) -> bool:
    return value < number if sign == "<" else value > number if sign == ">" else value == number


def changed(query: Query, rng: random.Random, parts: Collection[str]) -> Query:
    """A query that is wrong in these parts and right in the others."""
    if "select" in parts:
        others = [column for columns in TABLES.values() for column in columns if column != query.column]
        query = replace(query, column=rng.choice(others))
    if "table" in parts:
        query = replace(query, table=rng.choice([name for name in TABLES if name != query.table]))
    if "condition" in parts:
        number = int(query.condition[-1])
        query = replace(query, condition=f"{query.condition[:-1]}{number + rng.choice((-1, 1))}")
    return query
