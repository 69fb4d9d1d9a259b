"""Ladders of hints for a dataset, written offline by any model, for guidance to use where a group fails.

::

    from lyceum.analysis.hints import write_hints

    written = write_hints("data.jsonl", endpoint="http://localhost:8000/v1", model="qwen", output="hints.jsonl")
    lyceum.train("scaf-grpo", tasks="hints.jsonl", tasks__columns__hints="hints")
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from pydantic import ValidationError

from lyceum.analysis.hints.ladders import LadderSettings, Nonsense, read_ladder, request_for, without_leaks
from lyceum.analysis.hints.writers import EndpointWriter, EngineWriter, Writer, WriterError
from lyceum.analysis.measure import engine_settings, model_settings
from lyceum.core.component import explain
from lyceum.core.settings import TasksSettings
from lyceum.core.types import Hint, Sampling, Task, TaskSource
from lyceum.models.load import check_model
from lyceum.recipe.schema import Overrides, Recipe, apply_overrides, read_override, tasks_from_text
from lyceum.run.files import check_output, input_paths
from lyceum.tasks.rows import written_row
from lyceum.utils import progress as display
from lyceum.utils.aio import gather, run_async
from lyceum.utils.documents import DATA, read_json
from lyceum.utils.errors import RecipeError
from lyceum.utils.library_messages import quiet
from lyceum.utils.numbers import to_json

KEY, HINTS = "hints_of", "hints"
"""Columns of the output: the problem's key, and its ladder."""

BEGINNING = f'{{"{KEY}": '.encode()
"""Beginning of every line of the output."""

PAUSE_SECONDS = 0.5
"""Pause before a retry after a failure of the endpoint; doubled at each further retry."""

LONGEST_SECONDS = 86_400
"""Maximum timeout of a request."""


@dataclass
class WrittenHints:
    """Result of writing hints."""

    output: Path
    tasks: int
    already_there: int
    written: int = 0
    hints: int = 0
    asked_again: int = 0
    """Number of retries over all tasks."""
    leaks_dropped: int = 0
    """Hints dropped because they reveal the answer."""
    seconds: float = 0.0
    failures: Counter[str] = field(default_factory=Counter)
    """Reason -> number of tasks without hints."""
    failed_tasks: list[dict[str, str]] = field(default_factory=list)

    @property
    def failed(self) -> int:
        return self.failures.total()

    def to_json(self) -> dict[str, Any]:
        plain = {name: value for name, value in vars(self).items() if name not in ("output", "failures")}
        return {"output": str(self.output), **plain, "failed": self.failed, "failures": dict(self.failures)}


def write_hints(
    tasks: Any,
    overrides: Overrides = (),
    *,
    output: Path | str,
    model: str | None = None,
    endpoint: str | None = None,
    tiers: Sequence[str] = ("knowledge", "planning", "solution"),
    items: int = 4,
    n: int | None = None,
    concurrency: int = 8,
    timeout_seconds: float = 120.0,
    retries: int = 2,
    temperature: float = 0.7,
    max_tokens: int = 2048,
    progress: display.Mode = "auto",
) -> WrittenHints:
    """Have a model write a ladder of hints for each task; rows that the output already has are skipped.

    Args:
        tasks: as for :func:`lyceum.train`.
        overrides: ``tasks.KEY=value``, ``model.KEY=value`` and ``engine.KEY=value``, as on the command line.
        output: a .jsonl file; tasks that it already has are skipped.
        model: a local model's folder, hub name or .gguf file; with ``endpoint`` its name there.
        endpoint: URL of an OpenAI-compatible server, up to and including /v1. Its key is read only from the environment
            variable LYCEUM_API_KEY.
        tiers: kinds of hints, from abstract to concrete.
        items: hints of each kind, each adding to those before it.
        n: maximum number of tasks; by default every row.
        concurrency: concurrent requests.
        timeout_seconds: timeout of a request to the endpoint.
        retries: maximum retries per task, after a failure, an unusable answer, or hints with the answer.
        temperature: sampling temperature.
        max_tokens: maximum tokens of the model's answer.
    Returns:
        Counts of written and failed tasks, with reasons. A row of the output is the task's own with the columns
        ``hints`` and ``hints_of``. A task without hints is not in the output: the same call tries it again.
    Raises:
        RecipeError: invalid arguments; nothing was sent.
    """
    settings = LadderSettings(tuple(tiers), items, concurrency, retries)
    settings.check()
    sampling = _sampling(temperature, max_tokens, timeout_seconds)
    typed = _typed(overrides, endpoint)
    settings_of_tasks, source = _source(tasks, typed, n)
    chosen = [source[i] for i in range(len(source) if n is None else min(n, len(source)))]
    writer = _writer(model, endpoint, typed, sampling, timeout_seconds)
    place = Path(output)
    if place.suffix != ".jsonl":
        raise RecipeError(f"output: got {str(output)!r}; allowed: a file named .jsonl")
    read = input_paths(settings_of_tasks, "tasks") | input_paths(writer.settings, "model")
    check_output("output", place, inputs=read)
    done = done_keys(place)
    keyed = [(key, task, row) for key, task, row in keyed_rows(source, chosen) if key not in done]
    found = WrittenHints(place, tasks=len(chosen), already_there=len(chosen) - len(keyed))
    with quiet(), display.using(progress):
        run_async(_write_all(writer, keyed, settings, found))
    return found


async def _write_all(
    writer: Writer, keyed: Sequence[tuple[str, Task, dict[str, Any]]], settings: LadderSettings, found: WrittenHints
) -> None:
    """Every task's ladder, concurrently; each row is on disk before its task counts as done."""
    began = time.monotonic()
    waiting = iter(keyed)
    if not keyed:
        return
    progress = display.Progress(len(keyed), title="writing hints", unit="task")
    with progress, ExitStack() as opened:
        to: TextIO | None = None

        def keep(row: dict[str, Any]) -> None:
            nonlocal to
            if to is None:  # opened at the first row: a command that writes none leaves no file
                found.output.parent.mkdir(parents=True, exist_ok=True)
                to = opened.enter_context(found.output.open("a", encoding="utf-8"))
            to.write(to_json(row) + "\n")
            to.flush()

        async with writer:

            async def work() -> None:
                for key, task, row in waiting:  # one iterator shared by all workers
                    try:
                        ladder = await ladder_for(writer, task, settings, found, key=key)
                    except WriterError as error:
                        found.failures[error.reason] += 1
                        found.failed_tasks.append({"id": task.id, "reason": error.reason})
                    else:
                        keep({KEY: key, **row, HINTS: ladder, "hints_by": writer.name})
                        found.written += 1
                        found.hints += len(ladder)
                    progress.step(found.written + found.failed)

            await gather(work() for _ in range(min(settings.concurrency, len(keyed))))
    found.seconds = round(time.monotonic() - began, 3)


async def ladder_for(
    writer: Writer, task: Task, settings: LadderSettings, found: WrittenHints, *, key: str
) -> list[Hint]:
    """The task's hints without those that reveal the answer, with retries until every tier has some.

    Raises:
        WriterError: nothing usable after all retries. Hints from before a later failure are used.
    """
    best: list[Hint] = []
    failure = WriterError("no hints", again=True)
    for attempt in range(settings.retries + 1):
        found.asked_again += attempt > 0
        try:
            text = await writer.write(request_for(task, settings), key=key, attempt=attempt)
            asked = read_ladder(text, settings)
        except WriterError as error:
            failure = error
            if not error.again:
                break
            if attempt < settings.retries and not isinstance(error, Nonsense):
                await asyncio.sleep(PAUSE_SECONDS * 2**attempt)
            continue
        kept = without_leaks(task, asked)
        found.leaks_dropped += len(asked) - len(kept)
        if not kept:
            failure = WriterError("every hint says the answer", again=True)
        best = max(best, kept, key=lambda ladder: (len({hint.tier for hint in ladder}), len(ladder)))
        if len({hint.tier for hint in best}) == len(settings.tiers):
            break
    if not best:
        raise failure
    return best


def keyed_rows(source: TaskSource, tasks: Sequence[Task]) -> Iterator[tuple[str, Task, dict[str, Any]]]:
    """Each task with its output row, and a key that depends on the problem and not on its position.

    A dataset's row is written unchanged, so that the same settings can read it again.
    """
    seen: Counter[str] = Counter()
    for place, task in enumerate(tasks):
        problem = to_json([task.messages, task.answer], other=str)
        key = hashlib.sha256(problem.encode()).hexdigest()[:16]
        seen[key] += 1
        row = {name: value for name, value in written_row(source, place).items() if name != KEY}
        yield (key if seen[key] == 1 else f"{key}-{seen[key]}"), task, row


def done_keys(output: Path) -> set[str]:
    """Keys of the output's rows; a partial last line left by a killed process is removed.

    Raises:
        RecipeError: the file was not written by this function.
    """
    if not output.exists():
        return set()
    content = output.read_bytes()
    *lines, rest = content.split(b"\n")
    keys: set[str] = set()
    for number, line in enumerate(lines, 1):
        try:
            keys.add(read_json(line, limits=DATA)[KEY])
        except (ValueError, KeyError, TypeError):
            raise _foreign(output, number) from None
    if rest:
        if not rest.startswith(BEGINNING[: len(rest)]):
            raise _foreign(output, len(lines) + 1)
        with output.open("r+b") as file:
            file.truncate(len(content) - len(rest))
    return keys


def _foreign(output: Path, line: int) -> RecipeError:
    return RecipeError(
        f"output: line {line} of {str(output)!r} was not written by lyceum hints; allowed: another file, or a new one"
    )


def _source(tasks: Any, typed: Overrides, n: int | None) -> tuple[TasksSettings, TaskSource]:
    if n is not None and n < 1:
        raise RecipeError(f"n: got {n}; allowed: 1 or more")
    raw: dict[str, Any] = {"tasks": tasks_from_text(str(tasks) if isinstance(tasks, Path) else tasks)}
    apply_overrides(raw, [override for override in typed if _key(override).startswith("tasks.")])
    try:
        # Every row, including any that training holds out. Generated tasks come from the training split.
        settings = Recipe.model_validate(raw).tasks.whole()
    except ValidationError as error:
        raise RecipeError(explain(error, Recipe)) from None
    source = settings.build("heldout" if "rows" in settings.offers else "train", 0)
    if n is None and source.row(0) is None:
        raise RecipeError(
            f"n: got none, but tasks kind '{settings.kind}' generates any number of tasks; allowed: a number"
        )
    return settings, source


def _typed(overrides: Overrides, endpoint: str | None) -> Overrides:
    allowed = ("tasks.",) if endpoint is not None else ("tasks.", "model.", "engine.")
    for override in overrides:
        key = _key(override)
        if not key.startswith(allowed) and (key != "engine" or endpoint is not None):
            raise RecipeError(f"{key}: unknown key here; allowed: {', '.join(f'{a}KEY' for a in allowed)}")
    return list(overrides)


def _writer(
    model: str | None, endpoint: str | None, typed: Overrides, sampling: Sampling, timeout_seconds: float
) -> Writer:
    if model is None:
        known = "the name that the endpoint knows it by" if endpoint else "a local model, or an endpoint and its model"
        raise RecipeError(f"model: got none; allowed: {known}")
    if endpoint is not None:
        return EndpointWriter(endpoint, model, sampling, timeout_seconds=timeout_seconds)
    pairs = [override if isinstance(override, tuple) else read_override(override) for override in typed]
    keys = {key.removeprefix("model."): value for key, value in pairs if key.startswith("model.")}
    settings = model_settings(model, keys)
    check_model(settings)
    engine = engine_settings([pair for pair in pairs if pair[0].split(".")[0] == "engine"])
    return EngineWriter(settings, sampling, engine)


def _sampling(temperature: float, max_tokens: int, timeout_seconds: float) -> Sampling:
    if not 0 < timeout_seconds <= LONGEST_SECONDS:
        raise RecipeError(f"timeout_seconds: got {timeout_seconds:g}; allowed: more than 0, at most {LONGEST_SECONDS}")
    try:
        return Sampling(temperature=temperature, max_completion_tokens=max_tokens)
    except ValidationError as error:
        raise RecipeError(explain(error, Sampling)) from None


def _key(override: str | tuple[str, Any]) -> str:
    return override[0] if isinstance(override, tuple) else read_override(override)[0]
