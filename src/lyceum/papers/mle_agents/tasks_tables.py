"""Small machine-learning programs to write: load a table, train a model, submit it; rows kept apart score it.

``table 37:`` is answered ``d=load(37);m=fit(d,8);submit(m)``. These functions stand in the column ``library``, below
which the program is run. ``mean(d)`` is quick and knows nothing of the slope; ``fit(d,n)`` takes ``n`` epochs of
gradient descent, each of which makes the model better and takes time on the library's clock. Its seconds are simulated,
so that they are the same on every machine: a run can be repeated, and continued bit by bit.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Literal

from pydantic import Field

from lyceum.core.settings import TasksSettings
from lyceum.core.types import Grader, Split, Task
from lyceum.papers.mle_agents.reward_progress_marks import ProgressMarks
from lyceum.tasks.base import GeneratedSource, draw

TABLES = 100
EPOCH_SECONDS = 2
LIBRARY = f"""\
now, apart, score = 0, [], None
def wait(seconds):
    global now
    now += seconds
def load(k):
    wait(1)
    if k not in range({TABLES}): raise KeyError(k)
    slope, offset = k % 10 - 4.5, k // 10
    rows = [(i / 4, slope * i / 4 + offset) for i in range(-4, 5)]
    apart[:] = rows[1::2]
    return rows[::2]
def mean(d):
    wait(1)
    return 0.0, sum(y for _, y in d) / len(d)
def fit(d, n):
    slope, offset = mean(d)
    for _ in range(min(n, 50)):
        wait({EPOCH_SECONDS})
        slope -= 0.3 * sum((slope * x + offset - y) * x for x, y in d) / len(d)
    return slope, offset
def submit(m):
    global score
    wait(1)
    slope, offset = m
    middle = sum(y for _, y in apart) / len(apart)
    lost = sum((slope * x + offset - y) ** 2 for x, y in apart)
    score = round(max(0.0, 1 - lost / sum((middle - y) ** 2 for _, y in apart)), 6)
"""


class Tables(TasksSettings):
    """Tables of nine rows on a line, of which the number is told: 100 of them."""

    kind: Literal["tables"] = "tables"
    size: int = Field(default=100_000, ge=1)
    """Tasks in each split."""
    most_epochs: int = Field(default=9, ge=1, le=50)
    """Epochs of the slowest program of a demonstration."""
    quick: float = Field(default=0.7, ge=0, le=1)
    """Share of demonstrations that take the mean, or the fewest epochs: each half of the time."""
    wrong: float = Field(default=0.4, ge=0, le=1)
    """Share of demonstrations with an error: a table that is not there, data that was never loaded, or a model that was
    never trained; each for a third, so that they fail at different places."""

    def build(self, split: Split, seed: int) -> TableSource:
        return TableSource(self, split, seed)


class TableSource(GeneratedSource[Tables]):
    """``source[i]`` depends on (seed, split, i) alone; ``columns["demonstration"]`` is correct or not."""

    def __getitem__(self, index: int) -> Task:
        id = self.key(index)
        task = draw(id, self.split, lambda rng: make_task(id, rng.randrange(TABLES)), problem=words_of)
        demonstration = write(random.Random(f"{id}/demonstration"), task.columns["table"], self.settings)
        return replace(task, columns={**task.columns, "demonstration": demonstration})

    def grader(self) -> Grader:
        return ProgressMarks().build(self)


def make_task(id: str, table: int) -> Task:
    columns = {"table": table, "library": LIBRARY}
    return Task(id, ({"role": "user", "content": f"table {table}:"},), None, columns, provenance="tables")


def words_of(task: Task) -> str:
    return str(task.messages[-1]["content"])


def write(rng: random.Random, table: int, of: Tables) -> str:
    """A program for a table, with the noise of the demonstrations."""
    if rng.random() < of.quick:
        model = rng.choice(("mean(d)", "fit(d,1)"))
    else:
        model = f"fit(d,{rng.randint(2, of.most_epochs)})"
    data, submitted = f"load({table})", "m"
    if rng.random() < of.wrong:
        place = rng.randrange(3)
        data = f"load({table + TABLES})" if place == 0 else data
        model = model.replace("(d", "(x") if place == 1 else model
        submitted = "x" if place == 2 else submitted
    return f"d={data};m={model};submit({submitted})"
