"""Episodes of an environment of verifiers (called by ``_episode_worker``); it needs no other package.

Written for 0.4, whose environments are of its ``v1`` interface: a taskset makes tasks, a harness plays one by asking
an endpoint of OpenAI's kind, and the task's own functions score the trace.
"""

from __future__ import annotations

import copy
import importlib
import itertools
import os
from collections.abc import Mapping
from typing import Any

KEY = "LYCEUM_EPISODE_KEY_"
"""Beginning of the name of the environment variable that holds an episode's key: verifiers reads keys there alone."""


def make(taskset: Mapping[str, Any], agent: Mapping[str, Any]) -> VerifiersEpisodes:
    """Raises what verifiers raises where there is no such taskset."""
    vf, loaders = importlib.import_module("verifiers.v1"), importlib.import_module("verifiers.v1.utils.loaders")
    fields = loaders.env_config_type(taskset["id"]).model_fields
    seats = [name for name, field in fields.items() if isinstance(field.default, vf.AgentConfig)]
    if len(seats) != 1:
        raise ValueError(f"it has the agents {', '.join(seats)}; allowed: an environment with one")
    # verifiers' own default is a sandbox at a service; this one every machine has.
    given = {"runtime": {"type": "subprocess"}, **agent}
    config = loaders.resolve_env_config({"taskset": dict(taskset), seats[0]: given})
    return VerifiersEpisodes(vf, seats[0], vf.load_environment(config))


class VerifiersEpisodes:
    """Implements :class:`lyceum.tasks._episode_worker.Episodes`."""

    def __init__(self, vf: Any, seat: str, environment: Any) -> None:
        self.vf, self.seat, self.environment = vf, seat, environment
        self.numbers = itertools.count()

    def tasks(self, first: int, last: int) -> list[dict[str, Any]]:
        found = itertools.islice(self.environment.taskset, first, last)
        return [_task(task.data.model_dump(mode="json", exclude_unset=True)) for task in found]

    async def run(
        self, data: Any, base_url: str, key: str, model: str, max_requests: int, max_tokens: int
    ) -> Mapping[str, Any]:
        kind = type(self.environment.taskset).task_type()
        task = kind(kind.data_type().model_validate(data), self.environment.config.taskset.task)
        # One that ends at a limit is scored by verifiers where it knows the limit itself.
        limits = {"max_turns": max_requests, "max_output_tokens": max_tokens}
        given = getattr(self.environment.config, self.seat)
        limits = {name: most for name, most in limits.items() if getattr(given, name) is None}
        # An environment keeps a connection for each key until it ends: so each episode has one of its own.
        environment = copy.copy(self.environment)
        environment.config = environment.config.model_copy(update={self.seat: given.model_copy(update=limits)})
        name = f"{KEY}{next(self.numbers)}"
        os.environ[name] = key
        try:
            client = self.vf.EvalClientConfig(base_url=base_url, api_key_var=name)
            context = self.vf.ModelContext(model=model, client=client)
            async with environment.serving():
                episode = await environment.run_episode(task, context)
        finally:
            del os.environ[name]
        return _graded(episode)


def _task(data: dict[str, Any]) -> dict[str, Any]:
    prompt = data.get("prompt") or ""
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    if data.get("system_prompt"):
        messages = [{"role": "system", "content": data["system_prompt"]}, *messages]
    return {"prompt": messages, "answer": data.get("answer"), "data": data}


def _graded(episode: Any) -> dict[str, Any]:
    failed = [*episode.errors, *(trace.last_error for trace in episode.traces if not trace.ok)]
    if failed or not episode.traces:
        error = failed[0] if failed else None
        raise RuntimeError("no trace" if error is None else f"{error.type}: {error.message}")
    [trace] = episode.traces
    values = {name: reward.value for name, reward in trace.rewards.items() if reward is not None}
    counted = {name: value for name, value in trace.metrics.items() if value is not None}
    return {"reward": trace.reward, "parts": {**counted, **values}}
