"""Reward functions written for verl, unchanged."""

from __future__ import annotations

import asyncio
import numbers
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from lyceum.core.tree import Node
from lyceum.core.types import Grade, Grader, GradingContext, Task, TaskSource
from lyceum.reward._code import CodePart, abstained, accepted, check_parameters, failed
from lyceum.utils.errors import RecipeError
from lyceum.utils.numbers import real

PREPARE = "lyceum.reward.verl:prepare"


class Verl(CodePart):
    """``compute_score(data_source, solution_str, ground_truth, extra_info)``: a number, or a dict with ``score``.

    The arguments are verl's columns where a task has them (``data_source``, ``reward_model.ground_truth``,
    ``extra_info``), and else the task's provenance, its answer and an empty dict. A dict's other numbers are recorded
    as parts; ``acc`` says whether the answer is correct, as in verl's own validation.
    """

    kind: Literal["verl"] = "verl"
    function: str
    """``path/to/file.py:name`` or ``package.module:name``; a file alone means its ``compute_score``."""
    kwargs: dict[str, Any] = Field(default_factory=dict)
    """Further keywords of every call (verl's ``reward_kwargs``)."""

    def build(self, source: TaskSource) -> Grader:
        function, call = self.caller(self.function, PREPARE, key="reward.function", default_name="compute_score")

        given = {**arguments(source[0], None), **self.kwargs}
        check_parameters(function, given, spec=self.function, key="reward.function")
        if unread := sorted(set(self.kwargs) - set(accepted(function, self.kwargs))):
            raise RecipeError(
                f"reward.kwargs: got {', '.join(unread)}, which {self.function!r} does not take; allowed: its "
                "parameters"
            )

        async def one(task: Task, leaf: Node) -> Grade:
            given = {**accepted(function, arguments(task, leaf)), **self.kwargs}
            try:
                answer = await call(given)
            except TimeoutError:
                return Grade.ungraded(f"no result within {self.timeout_seconds:g} seconds")
            except Exception as error:
                return failed(error, self.function, task, given)
            if answer["reward"] is None:
                return abstained(self.function)
            correct = self.correctness(answer["reward"], answer["correct"])
            return Grade(answer["reward"], correct, parts=answer["parts"])

        async def grade(task: Task, leaves: Sequence[Node], context: GradingContext) -> list[Grade]:
            return list(await asyncio.gather(*(one(task, leaf) for leaf in leaves)))

        return grade


def arguments(task: Task, leaf: Node | None) -> dict[str, Any]:
    """verl's four keywords for one trajectory; ``extra_info`` has the two entries that verl itself adds."""
    model, extra = task.columns.get("reward_model"), task.columns.get("extra_info")
    truth = model["ground_truth"] if isinstance(model, Mapping) and "ground_truth" in model else task.answer
    info = {**(extra if isinstance(extra, Mapping) else {}), "num_turns": None, "rollout_reward_scores": {}}
    return {
        "data_source": task.columns.get("data_source", task.provenance),
        "solution_str": "" if leaf is None else leaf.completion,
        "ground_truth": truth,
        "extra_info": info,
    }


def prepare(job: dict[str, Any]) -> tuple[dict[str, Any], Callable[[Any], Any]]:
    """The call of one trajectory; its reply is {reward, correct, parts}."""
    return job, reply


def reply(result: Any) -> dict[str, Any]:
    if result is None:
        return {"reward": None}
    if not isinstance(result, Mapping):
        return {"reward": real(result, "the score"), "correct": None, "parts": {}}
    if "score" not in result:
        raise TypeError(f"a dict without 'score', with {', '.join(map(str, result))}; allowed: one with it")
    parts: dict[str, float] = {}
    for name, value in result.items():
        # verl logs everything that a function returns beside the score, text too: here only numbers are parts.
        if name != "score" and isinstance(value, numbers.Real):
            parts[str(name)] = real(value, f"part {name!r}")
    correct = result.get("acc")
    return {
        "reward": real(result["score"], "the score"),
        "correct": None if correct is None else bool(correct),
        "parts": parts,
    }
