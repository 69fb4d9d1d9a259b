"""Tools: Python functions of the user's own, which the policy calls."""

from __future__ import annotations

import inspect
import json
from abc import abstractmethod
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, field_validator, model_validator

from lyceum.core.settings import EnvironmentSettings
from lyceum.core.tree import Node
from lyceum.core.types import Environment, GradingContext, Observation, TaskSource, ToolCall
from lyceum.core.user_files import describe
from lyceum.environment._notation import AnswerSoFar, Notation, WithinTurn
from lyceum.environment._tool_calls import CallResult, answered, tool_calls
from lyceum.reward.function_registry import PLACE, SYNC, TOOL, registered_tool, shown
from lyceum.reward.function_worker import cut
from lyceum.reward.user_code import UserFunction, caller, trusted_function
from lyceum.utils.aio import gather
from lyceum.utils.documents import DocumentLimits
from lyceum.utils.errors import RecipeError, nearest
from lyceum.utils.terminal import quoted

if TYPE_CHECKING:
    import jsonschema_rs

KEY = "environment.functions"
ADVICE = (
    "allowed: a docstring, and for each parameter a type hint (int, float, str, bool, list, dict, Literal) "
    "and a line in the docstring's 'Args:'"
)
_CALL_LIMITS = DocumentLimits(characters=100_000, depth=20, values=10_000, digits=18)


class CalledTools(EnvironmentSettings):
    """Settings of the kinds that answer calls of tools."""

    step_timeout_seconds: float | None = Field(default=None, gt=0)
    """Time limit of the answer to a turn, in seconds; null, since each call has its own and may wait for a process."""
    timeout_seconds: float = Field(default=30.0, gt=0)
    """Time limit per call, in seconds."""
    max_calls: int = Field(default=16, ge=1, le=1000)
    """Maximum calls of one turn that are answered."""
    max_characters: int = Field(default=4000, ge=1)
    """Maximum characters of a result; a longer one is cut, and says so."""
    failed_reward: float = 0.0
    """Reward of each call that gets an error, read by the reward ``environment``."""

    @property
    @abstractmethod
    def names(self) -> Collection[str]:
        """What the policy calls each tool."""

    @abstractmethod
    def loaded(self) -> Mapping[str, Tool]:
        """The tools by the names that the policy calls them. Raises RecipeError where there are none."""

    @property
    def counted(self) -> tuple[str, ...]:
        return tuple(f"{what}/{name}" for what in ("calls", "failed_calls") for name in self.names)

    @property
    def tools(self) -> tuple[Mapping[str, Any], ...]:
        return tuple(tool.schema for tool in self.loaded().values())

    def check_tasks(self, source: TaskSource) -> None:
        super().check_tasks(source)
        self.loaded()

    def build(self) -> Environment[AnswerSoFar]:
        return ToolsEnvironment(self, self.loaded())


class Tools(CalledTools):
    """Answers the policy's calls of Python functions; a turn without a call ends the trajectory.

    The chat template tells the policy of each function what its signature and docstring (Google's style) say, as with
    TRL's ``tools``. The policy calls in its template's own form, or with ``<tool_call>{"name": "add", "arguments":
    {"a": 8}}</tool_call>`` (as Qwen and Hermes models do) where that has none, several times in a turn if it likes, and
    reads each result in a message of the tool:
    texts as they are, everything else as JSON. A call that does not fit the signature, raises, or takes too long gets a
    text that begins with ``error: `` and counts as failed.
    """

    kind: Literal["tools"] = "tools"
    functions: tuple[str, ...] = Field(min_length=1)
    """``path/to/file.py:name`` or ``package.module:name`` of each function; they may be ``async``. In Python also the
    functions themselves."""
    notation: Notation | None = None
    """How calls stand within the policy's text instead, for models that know no tool calls: what is written there is
    the one argument, a text, of the one function. Prompts then tell nothing of it."""
    processes: int = Field(default=1, ge=0, le=64)
    """Processes for each function that is not async. 1 keeps its state in one place; 0 calls it in the run's own
    process, without a time limit, as functions are that were passed in from Python."""

    @field_validator("functions", mode="before")
    @classmethod
    def _functions_themselves(cls, given: Any) -> Any:
        listed = given if isinstance(given, list | tuple) else (given,)
        return [registered_tool(each) if callable(each) else each for each in listed]

    @model_validator(mode="after")
    def _told_apart(self) -> Tools:
        twice = [name for name, times in Counter(self.names).items() if times > 1]
        if twice:
            raise ValueError(f"functions: got two that are called {twice[0]!r}; allowed: functions of different names")
        if self.notation is not None and len(self.functions) > 1:
            raise ValueError("functions: got several with a notation; allowed: one, or notation=null")
        return self

    @property
    def names(self) -> list[str]:
        """What the policy calls each function."""
        return [name_of(spec) for spec in self.functions]

    @property
    def stops(self) -> tuple[str, ...]:
        return () if self.notation is None else (self.notation.end,)

    @property
    def tools(self) -> tuple[Mapping[str, Any], ...]:
        return super().tools if self.notation is None else ()

    def code(self) -> tuple[str, ...]:
        return self.functions

    def build(self) -> Environment[AnswerSoFar]:
        return ToolsEnvironment(self, self.loaded(), self.notation)

    def loaded(self) -> dict[str, Tool]:
        """The functions by the names that the policy calls them.

        Raises:
            RecipeError: code is not allowed, there is no such function, or its docstring and type hints do not tell
                how it is called.
        """
        tools = {name_of(spec): self._tool(spec) for spec in self.functions}
        if self.notation is not None:
            [(spec, tool)] = zip(self.functions, tools.values(), strict=True)
            if len(tool.parameters) != 1 or tool.parameters[tool.only].get("type") != "string":
                raise RecipeError(
                    f"{KEY}: {spec!r} takes {tool.takes}, and calls within the text give one text; allowed: a function "
                    "of one parameter, a str, or environment.notation=null"
                )
        return tools

    def _tool(self, spec: str) -> Tool:
        place, name, function = trusted_function(spec, key=KEY)
        spec = shown(spec)
        schema = schema_of(function, spec)
        found = UserFunction(spec, place, name, function, None, {})
        processes = SYNC if place == PLACE else self.processes
        limits: dict[str, Any] = {"processes": processes, "timeout_seconds": self.timeout_seconds}
        call = caller(found, "tool", **limits, repeatable=False)  # it may have effects
        return Tool(schema, call, validators(schema, spec, key=KEY))


@dataclass(frozen=True)
class Tool:
    """A function that can be called.

    Attributes:
        schema: what the chat template tells of it.
        call: with a job as :func:`prepare` takes it; gives the result's text.
        allows: what each parameter may be.
    """

    schema: Mapping[str, Any]
    call: Callable[[Any], Awaitable[str]]
    allows: Mapping[str, jsonschema_rs.Validator]

    @property
    def parameters(self) -> Mapping[str, Mapping[str, Any]]:
        return self.schema["function"]["parameters"]["properties"]

    @property
    def required(self) -> Sequence[str]:
        return self.schema["function"]["parameters"].get("required", ())

    @property
    def only(self) -> str:
        return next(iter(self.parameters))

    @property
    def takes(self) -> str:
        """Its parameters with their types, for messages."""
        optional = {name: "" if name in self.required else ", optional" for name in self.parameters}
        told = (f"{name} ({_type(schema)}{optional[name]})" for name, schema in self.parameters.items())
        return ", ".join(told) or "no argument"

    def refused(self, arguments: Mapping[str, Any]) -> str | None:
        """What is wrong with a call's arguments; None where they fit."""
        wrong = [f"{name!r} is missing" for name in self.required if name not in arguments]
        wrong += [f"unknown argument {quoted(name)}" for name in arguments if name not in self.parameters]
        wrong += [
            f"{name!r} is {quoted(value)}"
            for name, value in arguments.items()
            if name in self.allows and not self.allows[name].is_valid(value)
        ]
        return f"{wrong[0]}; allowed: {self.takes}" if wrong else None


class ToolsEnvironment(WithinTurn):
    def __init__(self, settings: CalledTools, tools: Mapping[str, Tool], notation: Notation | None = None) -> None:
        self.settings, self.tools, self.notation = settings, tools, notation

    async def step(
        self, state: AnswerSoFar, turn: Node, said: str, context: GradingContext
    ) -> Observation[AnswerSoFar]:
        of = self.settings
        # Together: a turn takes as long as its slowest call.
        results: list[CallResult] = await gather(self.result(call) for call in self.calls(state, said, turn, context))
        counts = Counter(f"calls/{result.name}" for result in results if result.name)
        counts += Counter(f"failed_calls/{result.name}" for result in results if result.name and result.failed)
        return answered(
            state, turn, said, results, context, notation=self.notation, failed_reward=of.failed_reward, counts=counts
        )

    def calls(
        self, state: AnswerSoFar, said: str, turn: Node, context: GradingContext
    ) -> Sequence[ToolCall | CallResult]:
        """The turn's calls, or the error that one gets."""
        notation = self.notation
        if notation is None:
            return tool_calls(said, turn, context, limits=_CALL_LIMITS, most=self.settings.max_calls)
        [(name, tool)] = self.tools.items()
        query = notation.query(state.text, said)
        return [] if query is None else [ToolCall(name, {tool.only: query})]

    async def result(self, call: ToolCall | CallResult) -> CallResult:
        if isinstance(call, CallResult):
            return call
        tool, most = self.tools.get(call.name), self.settings.max_characters
        if tool is None:
            near = nearest(call.name, self.tools)
            return CallResult.error(f"no tool {quoted(call.name)}{near}; allowed: {', '.join(self.tools)}")
        if (wrong := tool.refused(call.arguments)) is not None:
            return CallResult.error(wrong, call.name)
        try:
            text = await tool.call({"arguments": dict(call.arguments), "most": most})
            return CallResult(text, call.name)
        except Exception as error:
            return CallResult.error(cut(describe(error), most), call.name)


def name_of(spec: str) -> str:
    """What the policy calls the function that a recipe names."""
    place, _, name = spec.rpartition(":")
    return name.removeprefix(TOOL) if place == PLACE else name


def schema_of(function: Callable[..., Any], spec: str) -> dict[str, Any]:
    """What a chat template tells of a function, under the name that the policy calls it.

    Raises:
        RecipeError: its docstring or type hints do not tell it, or it takes arguments other than by name.
    """
    from transformers.utils.chat_template_utils import get_json_schema

    try:
        for name, parameter in inspect.signature(function).parameters.items():
            if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
                raise ValueError(f"parameter {name!r} has no name that a call could give")
        schema = get_json_schema(function)
    except Exception as error:  # whatever a type hint raises that cannot be resolved
        raise RecipeError(f"{KEY}: {spec!r}: {describe(error)}; {ADVICE}") from error
    return {**schema, "function": {**schema["function"], "name": name_of(spec)}}


def validators(schema: Mapping[str, Any], spec: str, *, key: str) -> dict[str, jsonschema_rs.Validator]:
    """What each parameter of a function may be.

    Args:
        key: of the recipe, which messages name.
    Raises:
        RecipeError: its schema is none.
    """
    import jsonschema_rs

    parameters: Mapping[str, Any] = schema["function"]["parameters"]
    named = {name: parameters[name] for name in ("$defs", "definitions") if name in parameters}
    properties: Mapping[str, Any] = parameters["properties"]
    try:
        return {
            name: jsonschema_rs.validator_for(_with_null({**named, **each} if named else each))
            for name, each in properties.items()
        }
    except ValueError as error:  # an image or a tensor
        raise RecipeError(f"{key}: {spec!r}: {describe(error)}; {ADVICE}") from error


def _with_null(schema: Any) -> Any:
    """The same with OpenAPI's ``nullable``, which JSON schema does not know, written as a type."""
    if isinstance(schema, list):
        return [_with_null(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {key: each if key == "enum" else _with_null(each) for key, each in schema.items() if key != "nullable"}
    return {"anyOf": [inner, {"type": "null"}]} if schema.get("nullable") else inner


def _type(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return " or ".join(json.dumps(value, ensure_ascii=False, allow_nan=False) for value in schema["enum"])
    kind = schema.get("type", "anything")
    told = kind if isinstance(kind, str) else " or ".join(kind)
    return f"{told} or null" if schema.get("nullable") else told
