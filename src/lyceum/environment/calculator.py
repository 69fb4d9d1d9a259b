"""A calculator: what the policy asks is parsed as arithmetic, computed exactly, and answered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, Literal

from pydantic import Field

from lyceum.core.settings import EnvironmentSettings
from lyceum.core.tree import Node
from lyceum.core.types import Environment, GradingContext, Observation, ToolCall
from lyceum.environment._notation import AnswerSoFar, Notation, WithinTurn
from lyceum.environment._tool_calls import ERROR, CallResult, answered, tool_calls
from lyceum.utils.arithmetic import ALL, OF_EXPRESSIONS, NotArithmetic, evaluate
from lyceum.utils.documents import DocumentLimits
from lyceum.utils.terminal import quoted

NAME = "calculator"
MOST_CALLS = 16
"""Maximum calls of one turn that are answered."""

_CALL_LIMITS = DocumentLimits(characters=2000, depth=5, values=50)
_SCHEMA = {
    "type": "function",
    "function": {
        "name": NAME,
        "description": "Value of an expression of numbers, + - * / // % ** and brackets.",
        "parameters": {
            "type": "object",
            "properties": {"expression": {"type": "string", "description": "For example (37+8)*2"}},
            "required": ["expression"],
        },
    },
}


class Calculator(EnvironmentSettings):
    """Answers calls in the policy's text; a turn without one ends the trajectory.

    Calls are the chat template's own (``<tool_call>{"name": "calculator", "arguments": {"expression": "8*3"}}
    </tool_call>`` in Qwen 3, and where it has none; answered by a message of the tool), or stand within the text
    (``notation``), as the calculator of GSM8K's authors (arXiv:2110.14168, appendix C), which answers at each ``=``.
    """

    kind: Literal["calculator"] = "calculator"
    notation: Notation | None = Notation()
    """How calls stand within the policy's text; null: as tool calls of the chat template, answered when the policy ends
    its turn. The prompt then tells of the tool, where the template has a place for it."""
    modulus: int | None = Field(default=None, ge=2)
    """Results are modulo this number, for tasks that count so (``chain``: 100); null: they are not."""
    max_digits: int = Field(default=30, ge=1, le=300)
    """Maximum digits of a result's whole part; a longer one is an error."""
    failed_reward: float = 0.0
    """Reward of each call that gets an error, read by the reward ``environment``."""

    @property
    def stops(self) -> tuple[str, ...]:
        return () if self.notation is None else (self.notation.end,)

    @property
    def tools(self) -> tuple[Mapping[str, Any], ...]:
        return (_SCHEMA,) if self.notation is None else ()

    def build(self) -> Environment[AnswerSoFar]:
        return CalculatorEnvironment(self)


class CalculatorEnvironment(WithinTurn):
    def __init__(self, settings: Calculator) -> None:
        self.settings = settings

    async def step(
        self, state: AnswerSoFar, turn: Node, said: str, context: GradingContext
    ) -> Observation[AnswerSoFar]:
        of = self.settings
        results = [self.result(call) for call in self.calls(state, said, turn, context)]
        return answered(state, turn, said, results, context, notation=of.notation, failed_reward=of.failed_reward)

    def calls(
        self, state: AnswerSoFar, said: str, turn: Node, context: GradingContext
    ) -> Sequence[ToolCall | CallResult]:
        """The turn's calls, or the error that one gets."""
        if self.settings.notation is None:
            return tool_calls(said, turn, context, limits=_CALL_LIMITS, most=MOST_CALLS)
        query = self.settings.notation.query(state.text, said)
        if query is not None and not self.settings.notation.begin:
            # 55!45-2 corrects 55 and asks for 45-2.
            query = query[len(query.rstrip(OF_EXPRESSIONS)) :]
        return [] if query is None else [ToolCall(NAME, {"expression": query})]

    def result(self, call: ToolCall | CallResult) -> CallResult:
        if isinstance(call, CallResult):
            return replace(call, name=NAME)
        if call.name != NAME:
            return CallResult.error(f"no tool {quoted(call.name)}; allowed: {NAME}", NAME)
        expression = call.arguments.get("expression")
        if not isinstance(expression, str):
            return CallResult.error("no text 'expression' in arguments", NAME)
        text = self.compute(expression)
        return CallResult(text, NAME, failed=text.startswith(ERROR))

    def compute(self, expression: str) -> str:
        """A result, or a line that begins with ``error`` and says what is wrong."""
        try:
            value, _ = evaluate(expression, ALL, signed_decimals=True)
        except NotArithmetic as error:
            return f"{ERROR}: {error}"
        value = value if self.settings.modulus is None else value % self.settings.modulus
        if abs(value) >= 10**self.settings.max_digits:
            return f"{ERROR}: more than {self.settings.max_digits} digits"
        return written(value)


def written(value: Fraction) -> str:
    """A whole number as it is, another one with at most ten decimals."""
    if value.denominator == 1:
        return str(value.numerator)
    whole, decimals = divmod(round(abs(value) * 10**10), 10**10)
    return f"{'-' if value < 0 else ''}{whole}.{decimals:010}".rstrip("0").rstrip(".")
