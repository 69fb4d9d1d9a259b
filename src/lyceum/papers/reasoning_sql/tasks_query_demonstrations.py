"""Queries to imitate, with errors, so that reinforcement learning has something left to teach."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Literal

from pydantic import Field

from lyceum.core.settings import TasksSettings
from lyceum.core.types import Split, Task
from lyceum.papers.reasoning_sql.tasks_queries import PARTS, Queries, QuerySource, changed


class QueryDemonstrations(TasksSettings):
    """The same questions with a completion to imitate in ``columns["demonstration"]``, correct or not."""

    kind: Literal["query-demonstrations"] = "query-demonstrations"
    queries: Queries = Field(default_factory=Queries)
    """Which questions."""
    wrong: float = Field(default=0.3, ge=0, le=1)
    """Probability that one part of a query is wrong: what it selects, its table or its condition."""

    def build(self, split: Split, seed: int) -> QueryDemonstrationSource:
        return QueryDemonstrationSource(self, split, seed)


class QueryDemonstrationSource(QuerySource):
    """``source[i]`` depends on (seed, split, i) alone; its problems have the same splits as kind ``queries``."""

    def __init__(self, settings: QueryDemonstrations, split: Split, seed: int) -> None:
        super().__init__(settings.queries, split, seed)
        self.wrong = settings.wrong

    def __getitem__(self, index: int) -> Task:
        task, query = self.drawn(index)
        rng = random.Random(f"{task.id}/demonstration")
        if rng.random() < self.wrong:
            query = changed(query, rng, [rng.choice(PARTS)])
        return replace(task, columns={**task.columns, "demonstration": query.completion()})
