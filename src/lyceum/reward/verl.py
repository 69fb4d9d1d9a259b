"""Reward functions written for verl, unchanged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from lyceum.core.tree import Node
from lyceum.core.types import Grade, Grader, GradingContext, Task, TaskSource
from lyceum.reward.base import each_at_once
from lyceum.reward.function_registry import VERL_TEXTS, parameters_of
from lyceum.reward.user_code import (
    CodePart,
    UserFunction,
    abstained,
    accepting,
    check_parameters,
    failed,
)


class Verl(CodePart):
    """``compute_score(data_source, solution_str, ground_truth, extra_info)``: a number, or a dict with ``score``.

    The arguments are verl's columns where a task has them (``data_source``, ``reward_model.ground_truth``,
    ``extra_info``), and else the task's provenance, its answer and an empty dict. A dict's other numbers are recorded
    as parts; ``acc`` says whether the answer is correct, as in verl's own validation, where it is a bool, 0 or 1. A
    function of ``data_sources``, ``solution_strs``, ``ground_truths`` and ``extra_infos`` (verl's reward manager
    ``batch``) is called with the completions of one task, and returns a list. ``model_output`` and ``predict_str``, as
    some of verl's own call the completion, are the completion too. ``arguments`` are verl's ``reward_kwargs``, and
    replace any of these.
    """

    default_name = "compute_score"

    kind: Literal["verl"] = "verl"
    function: str
    """``path/to/file.py:name`` or ``package.module:name``; a file alone means its ``compute_score``."""

    def build(self, source: TaskSource) -> Grader:
        example = source[0]
        given = arguments(example, None)
        found = self.found(self.function, given, columns=example.columns)
        function = found.function
        if "solution_strs" in parameters_of(function):
            return self._batched(found, example)
        text = [name for name in VERL_TEXTS if name in parameters_of(function)]
        check_parameters(found, {**given, **dict.fromkeys(text, "")})
        call, picked = self.caller(found, "verl"), accepting(function)

        async def one(task: Task, leaf: Node) -> Grade:
            given = picked({**arguments(task, leaf), **dict.fromkeys(text, leaf.completion)})
            try:
                return self._grade(await call(given))
            except Exception as error:
                return failed(error, self.function, task, given)

        return each_at_once(one)

    def _batched(self, found: UserFunction, example: Task) -> Grader:
        check_parameters(found, batch(example, []))
        call, picked = self.caller(found, "verl-batch"), accepting(found.function)

        async def grade(task: Task, leaves: Sequence[Node], context: GradingContext) -> list[Grade]:
            given = picked(batch(task, leaves))
            try:
                answers = await call({"arguments": given, "count": len(leaves)})
                return [self._grade(answer) for answer in answers]
            except Exception as error:
                return [failed(error, self.function, task, given)] * len(leaves)

        return grade

    def _grade(self, answer: Mapping[str, Any]) -> Grade:
        if answer["reward"] is None:
            return abstained(self.function)
        correct = self.correctness(answer["reward"], answer["correct"])
        return Grade(answer["reward"], correct, parts=answer["parts"])


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


def batch(task: Task, leaves: Sequence[Node]) -> dict[str, Any]:
    """The same, as lists with one entry per completion, in the plural."""
    rows = [arguments(task, leaf) for leaf in leaves]
    plural = {name: "extra_infos" if name == "extra_info" else f"{name}s" for name in arguments(task, None)}
    return {plural[name]: [row[name] for row in rows] for name in plural}
