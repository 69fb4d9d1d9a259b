"""A user's own reward: one Python function of one trajectory, or one that was written for TRL or verl."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Literal

from lyceum.core.tree import Node
from lyceum.core.types import Grade, Grader, Task, TaskSource
from lyceum.reward.base import each_at_once
from lyceum.reward.function_registry import convention_of
from lyceum.reward.trl import Trl
from lyceum.reward.user_code import CodePart, abstained, accepting, check_parameters, failed
from lyceum.reward.verl import Verl
from lyceum.utils.messages import prompt_text


class Function(CodePart):
    """The result of ``function(...)`` for a trajectory: a number, a dict with ``reward``, or None to abstain.

    It is called with those of these keywords that its parameters name (all of them for ``**kwargs``): ``task``,
    ``completion``, ``prompt`` (text), ``messages``, ``answer``, ``columns``, ``completion_ids``, ``finish`` ("stop" or
    "length"), ``id``, and every column of the task by its own name. A dict's other numbers are recorded as parts; its
    ``correct``, or a returned bool, says whether the answer is right.

    A function with parameters ``completions`` or ``prompts`` is called as reward kind ``trl`` does, one with
    ``solution_str`` or ``solution_strs`` as ``verl``.
    """

    kind: Literal["function"] = "function"
    function: str
    """``path/to/file.py:name`` or ``package.module:name``."""

    def build(self, source: TaskSource) -> Grader:
        example = keywords(source[0], None)
        found = self.found(self.function, example, columns=source[0].columns)
        function = found.function
        convention = convention_of(function)
        if convention != "function":
            return self._as(Trl if convention == "trl" else Verl).build(source)
        check_parameters(found, example)
        call, picked = self.caller(found, "function"), accepting(function)

        async def one(task: Task, leaf: Node) -> Grade:
            given = picked(keywords(task, leaf))
            if "task" in given:
                given["task"] = asdict(given["task"])
            try:
                return self._grade(await call(given))
            except Exception as error:
                return failed(error, self.function, task, given)

        return each_at_once(one)

    def _as(self, kind: type[Trl | Verl]) -> Trl | Verl:
        shared = {name: getattr(self, name) for name in CodePart.model_fields}
        return kind.model_validate({**shared, "kind": kind.model_fields["kind"].default, "function": self.function})

    def _grade(self, reply: Mapping[str, Any]) -> Grade:
        reward = reply["reward"]
        if reward is None:
            return abstained(self.function)
        return Grade(reward, self.correctness(reward, reply["correct"]), parts=reply["parts"])


def keywords(task: Task, leaf: Node | None) -> dict[str, Any]:
    """Keywords available to a function. A column named like one of the fixed ones is reached through ``columns``."""
    return {
        **task.columns,
        "task": task.public(),
        "completion": "" if leaf is None else leaf.completion,
        "prompt": prompt_text(task.messages),
        "messages": [dict(message) for message in task.messages],
        "answer": task.answer,
        "columns": dict(task.columns),
        "completion_ids": [] if leaf is None else leaf.completion_ids,
        "finish": None if leaf is None else leaf.finish,
        "id": task.id,
    }
