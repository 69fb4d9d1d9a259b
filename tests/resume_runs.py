"""What the kill test runs in processes of its own; imported once by the server that they are forked from."""

import gc
import importlib
import os
import signal
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch

from lyceum.core.settings import RewardSettings
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Grade, Grader, GradingContext, Task, TaskSource
from lyceum.models import scratch
from lyceum.recipe.schema import parse
from lyceum.reward.base import BaseGrader, each, verdict
from lyceum.run import checkpoint
from lyceum.training.train import train

torch.set_num_threads(1)
for needed_later in (
    "lyceum.run.rollout_table",
    "pyarrow.parquet",
    "tensorboard.compat.proto.event_pb2",
    "tensorboard.compat.proto.summary_pb2",
    "tensorboard.summary.writer.event_file_writer",
    "transformers.models.llama.modeling_llama",
):
    importlib.import_module(needed_later)  # a run imports it when it gets there: no process should have to
gc.freeze()  # nor should it walk what it shares with the server


class Digits(RewardSettings):
    """The share of digits among what was written: an untrained model's samples differ in it, and it can be learnt."""

    kind: Literal["test-digits"] = "test-digits"

    def build(self, source: TaskSource) -> Grader:
        return each(lambda task, leaf: Grade(sum(map(str.isdigit, leaf.completion)) / (1 + len(leaf.completion))))


class Begins(RewardSettings):
    """Right where the first letter is a digit: seldom enough to be searched for, and an untrained model finds it."""

    kind: Literal["test-begins"] = "test-begins"

    def build(self, source: TaskSource) -> Grader:
        return each(lambda task, leaf: verdict(leaf.completion[:1].isdigit()))


class Surprise(RewardSettings):
    """The share of digits beyond the mean of all steps before: a grader with state."""

    kind: Literal["test-surprise"] = "test-surprise"

    def build(self, source: TaskSource) -> Grader:
        return Surprised()


class Surprised(BaseGrader):
    def __init__(self) -> None:
        self.total, self.seen = 0.0, 0

    async def __call__(self, task: Task, leaves: Sequence[Node], context: GradingContext) -> list[Grade]:
        digits = await Digits().build(None)(task, leaves, context)  # pyright: ignore[reportArgumentType]
        expected = self.total / max(1, self.seen)
        return [Grade(grade.outcome - expected, parts={"digits": grade.outcome}) for grade in digits]

    def observe(self, trees: Sequence[Tree]) -> None:
        grades = [leaf.grade for tree in trees for leaf in tree.trajectories]
        self.total += sum(grade.parts["test-surprise/digits"] for grade in grades)
        self.seen += len(grades)

    def metrics(self) -> dict[str, float]:
        return {"digits/mean": self.total / max(1, self.seen)}

    def state_dict(self) -> dict[str, Any]:
        return {"total": self.total, "seen": self.seen}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.total, self.seen = state["total"], state["seen"]


_SHORT = {"max_completion_tokens": 5}
_GRPO: dict[str, Any] = {
    "kind": "online",
    "steps": 3,
    "tasks_per_step": 3,
    "rollout": {"kind": "flat", "samples": 3, "sampling": _SHORT},
    "credit": "group",
    "objective": {"kind": "ppo-clip", "kl": {"coefficient": 0.1}},
    "learner": {"lr": 1e-3, "schedule": "cosine", "warmup_steps": 2},
}
_SFT: dict[str, Any] = {"kind": "sft", "steps": 3, "tasks_per_step": 3, "learner": {"lr": 1e-3}}
_CURRICULUM: dict[str, Any] = _GRPO | {
    "curriculum": {"kind": "prompt-value", "pool": 2, "lr": 1e-3, "draws": "self-evolving"}
}
_PPO: dict[str, Any] = _GRPO | {
    "credit": "gae",
    "objective": {"kind": "ppo-clip", "value_coefficient": 0.5},
    "learner": {"lr": 1e-3, "epochs": 2, "updates_per_step": 2},
}
_TRACKED: dict[str, Any] = _GRPO | {"credit": "spo", "objective": "epo", "reward": ["test-surprise"]}
"""A credit, an objective and a grader with state, and tasks that come again."""
_PARTIAL: dict[str, Any] = _GRPO | {"rollout": _GRPO["rollout"] | {"tokens_per_step": 2}}
_TURNS: dict[str, Any] = _GRPO | {
    "rollout": {
        "kind": "turns",
        "samples": 3,
        "environment": {"kind": "calculator", "notation": {"end": "1"}},
        "sampling": {"max_completion_tokens": 40},
    }
}
_ROLES: dict[str, Any] = _GRPO | {
    "roles": {
        "models": ["first", "second"],
        "play": {"pioneer": "first", "observer": "second"},
        "swap_every": 1,
    },
    "guidance": [{"kind": "pioneer-observer", "prompt": "!="}],
    "rollout": {"kind": "flat", "samples": 2, "sampling": _SHORT},
}
"""Two models, whose optimisers and roles have to come back."""
_REPLAY: dict[str, Any] = _GRPO | {
    "steps": 4,
    "replay": {"kind": "own", "priority": "advantage", "once": True, "max_age": 2},
    "credit": {"kind": "self-imitation", "warm_up_steps": 2},
    "objective": {"kind": "clip-cov", "cov_low": 0.0},
}
"""Groups of earlier steps, whose index has to come back, and whose files up to the checkpoint alone."""
_DEEPSEARCH: dict[str, Any] = _GRPO | {
    "steps": 4,
    "reward": ["test-begins"],
    "curriculum": {"kind": "hard-filter", "pool": 3, "least": 3, "hard": 0.7},
    "guidance": [
        {
            "kind": "search-where-hard",
            "tests": 2,
            "hard": 0.7,
            "direct": {"kind": "flat", "samples": 3, "sampling": _SHORT},
        }
    ],
    "rollout": {
        "kind": "mcts",
        "trajectories": 3,
        "width": 2,
        "depth": 5,
        "step": {"tokens": 2},
        "negative": "random",
        "sampling": _SHORT,
    },
    "credit": "node-value",
}
_CRITIC: dict[str, Any] = {
    "kind": "search-and-distil",
    "name": "critic",
    "steps": 2,
    "rounds": 2,
    "tasks_per_round": 3,
    "rollout": {"kind": "segments", "samples": 3, "segment_tokens": 2, "sampling": _SHORT},
    "value": {"kind": "model", "lr": 1e-3},
    "targets": "mean-outcome",
    "traces": None,
}
_ACTOR: dict[str, Any] = _GRPO | {
    "steps": 2,
    "rollout": {"kind": "beam", "beams": 2, "width": 2, "step": {"tokens": 2}, "sampling": _SHORT},
    "value": {"kind": "model", "from_stage": "critic"},
}
_RUN: dict[str, Any] = {
    "model": "scratch",
    "tasks": {"kind": "chain-demonstrations", "size": 4},
    "reward": "test-digits",
    "evaluate": {"n": 0},
    "checkpoint_every": 1,
    "rollouts_every": 2,
}
_OFFLINE: dict[str, Any] = {
    "kind": "offline",
    "steps": 3,
    "tasks_per_step": 3,
    "data": {"kind": "sampled", "tasks": 6, "part": 2},
    "curriculum": _CURRICULUM["curriculum"],
    "rollout": _GRPO["rollout"],
    "objective": "dpo",
    "learner": {"lr": 1e-3},
}
_AGAIN: dict[str, Any] = {
    "kind": "offline",
    "name": "again",
    "steps": 2,
    "tasks_per_step": 4,
    "data": {"kind": "recorded", "from_stage": "offline"},
    "rollout": _GRPO["rollout"],
    "objective": "ppo-clip",
    "learner": {"lr": 1e-3, "updates_per_step": 2},
}
_MIDDLING = _GRPO | {"steps": 2, "curriculum": {"kind": "middling", "from_stage": "offline", "low": 0.05}}
"""The end of a cascade, each of whose stages trains on what one before has left."""
SCENARIOS: dict[str, dict[str, Any]] = {
    "cascade": _RUN | {"stages": [_SFT | {"steps": 2}, _OFFLINE, _AGAIN, _MIDDLING]},
    "learners": _RUN
    | {
        "stages": [_SFT, _CURRICULUM, _PPO, _TRACKED],
        "evaluate": {"n": 2, "samples": 2, "k": [1], "every": 2},
    },
    "rollouts": _RUN | {"stages": [_PARTIAL, _TURNS, _REPLAY, _ROLES], "checkpoint_every": 2},
    "searches": _RUN | {"stages": [_DEEPSEARCH, _CRITIC, _ACTOR]},
}
"""Each stage leaves something else that a resumed run must find again; a kill may hit any of them."""


def run(scenario: str, output: str, name: str, die_at_write: int | None) -> None:
    """Begin a run or go on with it; killed in the middle of its ``die_at_write``-th write of a checkpoint's files."""
    said = os.open(f"{output}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(said, 1)
    os.dup2(said, 2)
    # So small that most of a step is not its own.
    scratch.build_scratch = partial(scratch.build_scratch, width=32, layers=2, heads=2, feed_forward=64)
    if die_at_write is not None:
        _die_at(die_at_write)
    train(parse(SCENARIOS[scenario] | {"output": output, "name": name}), resume="auto")


def _die_at(number: int) -> None:
    """Writes and renames are counted; the one that is hit is done by half."""
    left = number
    write_file, into_place = checkpoint.write_file, checkpoint._into_place

    def hit() -> bool:
        nonlocal left
        left -= 1
        return left < 0

    def half_written(path: Path, content: bytes, **how: Any) -> None:
        if hit():
            path.write_bytes(content[: len(content) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        write_file(path, content, **how)

    def never_renamed(partial: Path, target: Path) -> None:
        if hit():
            os.kill(os.getpid(), signal.SIGKILL)
        into_place(partial, target)

    checkpoint.write_file, checkpoint._into_place = half_written, never_renamed
