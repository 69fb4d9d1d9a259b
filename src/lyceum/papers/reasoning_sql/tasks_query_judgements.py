"""How much of a wrong query is right, asked as reward ``feedback`` asks: to fine-tune the small base model as judge."""

from __future__ import annotations

import random
from typing import Literal

from pydantic import Field

from lyceum.core.settings import TasksSettings
from lyceum.core.tree import Node
from lyceum.core.types import Grade, Grader, Split, Task
from lyceum.papers.reasoning_sql.tasks_queries import PARTS, Queries, QuerySource, changed
from lyceum.reward.base import each, verdict
from lyceum.reward.scorer.judging import Question


class QueryJudgements(TasksSettings):
    """A question, a wrong query and the reference, and how many of the query's parts are right, from 0 to 3."""

    kind: Literal["query-judgements"] = "query-judgements"
    queries: Queries = Field(default_factory=Queries)
    """Which questions."""
    criteria: str = Field("alike", min_length=1, max_length=200)
    """What the judge is told, as in reward ``feedback``."""

    def build(self, split: Split, seed: int) -> QueryJudgementSource:
        return QueryJudgementSource(self, split, seed)


class QueryJudgementSource(QuerySource):
    """``source[i]`` depends on (seed, split, i) alone."""

    def __init__(self, settings: QueryJudgements, split: Split, seed: int) -> None:
        super().__init__(settings.queries, split, seed)
        self.criteria = settings.criteria

    def __getitem__(self, index: int) -> Task:
        task, query = self.drawn(index)
        rng = random.Random(f"{task.id}/judgement")
        wrong = rng.sample(PARTS, rng.randint(1, len(PARTS)))
        attempt = changed(query, rng, wrong)
        question = Question(task.messages, [attempt.completion()], f"{self.criteria}\n{task.answer}", "points", "")
        points = str(len(PARTS) - len(wrong))
        columns = {"level": task.columns["level"], "demonstration": points}
        id = f"{task.id}/judgement"
        return Task(id, tuple(question.in_turns()), points, columns, provenance="query-judgements")

    def grader(self) -> Grader:
        return each(says_points)


def says_points(task: Task, leaf: Node) -> Grade:
    return verdict(leaf.completion.strip() == task.answer)
