"""SQL: a query is correct when it returns what the reference query returns, on the database and on variants of it."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from lyceum.core.component import PathText
from lyceum.core.types import Grade, Task
from lyceum.reward._in_worker import InWorker, cell
from lyceum.reward.base import right_answers
from lyceum.utils.paths import local_path

PARTS = ("execution", "syntax", "schema_linking", "ngrams")


class Sql(InWorker):
    """Partial rewards for a query, of which the task's answer is a reference (or one of several): a weighted sum of

    - ``execution``: 1 where it returns the reference's rows; in their order where the reference has an ORDER BY of its
      own, else in any; column names do not count, their number and order do. Numbers agree to 9 digits.
    - ``syntax``: 1 where it runs to its end within the limits.
    - ``schema_linking``: tables and columns of the database that both name, divided by those that either names.
    - ``ngrams``: runs of ``n`` tokens that both have, divided by those that either has; without comments.

    The last two are of the reference that they are highest for. The verdict is ``execution``; weights are refused with
    which an incorrect query could earn more than a correct one.

    SQLite executes queries in a worker process that may do nothing but SELECT: no write, ATTACH, PRAGMA, extension or
    random function, at most ``max_instructions`` of SQLite's machine and ``max_rows`` rows, and no text of more than
    100,000 bytes.

    Resists: a query that returns the answer as a constant (``SELECT 42``), by ``variants``: copies of a database given
    as statements from which rows are missing, on which the query must return what the reference does, too; and queries
    that find nothing, as a reference without rows leaves the task ungraded. With a database from a file there are no
    variants. ``schema_linking`` and ``ngrams`` can be raised by an incorrect query that resembles the reference:
    keep their weights small.

    Source: Reasoning-SQL, arXiv:2503.23157, for the parts; Semantic Evaluation for Text-to-SQL with Distilled Test
    Suites, arXiv:2010.02840, for the comparison on several databases.
    """

    factory: ClassVar[str] = "lyceum.papers.reasoning_sql._sqlite:checker"

    kind: Literal["sql"] = "sql"
    compares_answers: ClassVar[bool] = True
    path: PathText | None = None
    """The database, an SQLite file, of all tasks; null takes each task's column ``column``."""
    column: str = Field("schema", min_length=1)
    """Column of the statements (CREATE, INSERT) that make the task's database, where ``path`` is null."""
    execution: float = Field(1.0, ge=0, le=1e6)
    """Weight of ``execution``."""
    syntax: float = Field(0.0, ge=0, le=1e6)
    """Weight of ``syntax``."""
    schema_linking: float = Field(0.0, ge=0, le=1e6)
    """Weight of ``schema_linking``."""
    ngrams: float = Field(0.0, ge=0, le=1e6)
    """Weight of ``ngrams``."""
    n: int = Field(2, ge=1, le=5)
    """Tokens per n-gram."""
    variants: int = Field(2, ge=0, le=8)
    """Number of databases with half of the rows on which the query must agree with the reference, too; 0: none."""
    max_rows: int = Field(10_000, ge=1, le=1_000_000)
    """Maximum rows of a result; a query that returns more is incorrect, and a reference that does leaves its task
    ungraded."""
    max_instructions: int = Field(5_000_000, ge=1000, le=10**10)
    """Maximum instructions of SQLite's virtual machine per query, a limit of its time that is the same everywhere; a
    query that needs more is incorrect."""

    @field_validator("path")
    @classmethod
    def _is_a_database(cls, path: str | None) -> str | None:
        if path is not None:
            try:
                with local_path(path).open("rb") as file:
                    head = file.read(16)
            except (OSError, ValueError) as error:
                raise ValueError(f"got {path!r}, which cannot be read ({error}); allowed: an SQLite file") from None
            if head != b"SQLite format 3\x00":
                raise ValueError(f"got {path!r}, which is no SQLite file; allowed: one")
        return path

    @model_validator(mode="after")
    def _a_correct_query_earns_most(self) -> Sql:
        partial = self.schema_linking + self.ngrams
        if self.execution <= partial:
            raise ValueError(
                f"execution: got {self.execution:g}, but schema_linking and ngrams together {partial:g}, which an "
                "incorrect query may earn; allowed: more than that"
            )
        return self

    @property
    def reads(self) -> str | None:
        return self.column if self.path is None else None

    def worker_settings(self) -> dict[str, Any]:
        named = ("n", "variants", "max_rows", "max_instructions")
        path = None if self.path is None else str(local_path(self.path).absolute())
        return {"path": path, **{name: getattr(self, name) for name in named}}

    def job(self, task: Task, found: str) -> dict[str, Any]:
        references = right_answers(task)
        if not references or not all(isinstance(query, str) and query.strip() for query in references):
            raise ValueError(f"the answer {task.answer!r:.100} of task {task.id!r} is no reference query")
        schema = "" if self.path is not None else cell(task, self.column, "statements that make the database")
        if not isinstance(schema, str):
            raise ValueError(f"column {self.column!r} of task {task.id!r} holds no text; allowed: SQL statements")
        return {"schema": schema, "references": references, "query": found}

    def alone(self, job: dict[str, Any]) -> dict[str, Any]:
        return {**job, "query": job["references"][0]}

    def grade(self, result: Any, answered: bool | None) -> Grade:
        parts = {name: 0.0 if result is None else float(result[name]) for name in PARTS}
        outcome = sum(getattr(self, name) * value for name, value in parts.items())
        return Grade(outcome, parts["execution"] == 1.0, parts=parts, answered=answered)
