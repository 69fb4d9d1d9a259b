"""Episodes of a task of Inspect (called by ``_episode_worker``); it needs no other package.

A task of Inspect is a data set, a solver, which asks a model, and a scorer. Inspect evaluates one thing at a time in a
process: its episodes follow each other there.
"""

from __future__ import annotations

import asyncio
import importlib
import tempfile
from collections.abc import Mapping
from typing import Any


def make(task: str, arguments: Mapping[str, Any]) -> InspectEpisodes:
    """Raises what Inspect raises where there is no such task."""
    inspect: Any = importlib.import_module("inspect_ai")
    importlib.import_module("inspect_ai.util._display").init_display_type("none")
    loaded = importlib.import_module("inspect_ai._eval.loader").load_tasks([task], dict(arguments))
    if len(loaded) != 1:
        raise ValueError(f"got {len(loaded)} tasks; allowed: one, such as FILE.py@NAME or package/name")
    return InspectEpisodes(inspect, loaded[0])


class InspectEpisodes:
    """Implements :class:`lyceum.tasks._episode_worker.Episodes`."""

    def __init__(self, inspect: Any, task: Any) -> None:
        self.inspect, self.task = inspect, task
        self.alone = asyncio.Lock()
        for number, sample in enumerate(task.dataset, 1):
            sample.id = number if sample.id is None else sample.id

    def tasks(self, first: int, last: int) -> list[dict[str, Any]]:
        return [_task(sample) for sample in self.task.dataset[first:last]]

    async def run(
        self, data: Any, base_url: str, key: str, model: str, max_requests: int, max_tokens: int
    ) -> Mapping[str, Any]:
        asked = importlib.import_module("inspect_ai.model").get_model(
            f"openai-api/lyceum/{model}", base_url=base_url, api_key=key, memoize=False
        )
        limit = importlib.import_module("inspect_ai.util").TokenLimit(tokens=max_tokens, type="output")
        async with self.alone:
            with tempfile.TemporaryDirectory() as folder:
                [log] = await self.inspect.eval_async(
                    self.task,
                    model=asked,
                    sample_id=[data],
                    epochs=1,
                    turn_limit=max_requests,
                    token_limit=limit,
                    max_retries=0,
                    log_dir=folder,
                    log_realtime=False,
                )
                return _graded(log)  # which reads the log's samples from the folder


def _task(sample: Any) -> dict[str, Any]:
    given = sample.input
    messages = given if isinstance(given, str) else [{"role": each.role, "content": each.text} for each in given]
    return {"prompt": messages, "answer": sample.target, "data": sample.id}


def _graded(log: Any) -> dict[str, Any]:
    sample = log.samples[0] if log.samples else None
    if (error := log.error or (None if sample is None else sample.error)) is not None:
        raise RuntimeError(error.message)
    scores = {} if sample is None else sample.scores or {}
    if not scores:
        raise RuntimeError("the task has no score")
    as_float = importlib.import_module("inspect_ai.scorer").value_to_float()
    values = {name: as_float(score.value) for name, score in scores.items() if _is_one(score.value)}
    reward = next(iter(scores))
    if reward not in values:
        raise RuntimeError(f"the scorer {reward} gives {type(scores[reward].value).__name__}; allowed: one value")
    return {"reward": values[reward], "parts": values}


def _is_one(value: Any) -> bool:
    return isinstance(value, str | int | float)
