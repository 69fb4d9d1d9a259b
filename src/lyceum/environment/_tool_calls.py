"""Tool calls as chat templates write them, and how the policy's turn goes on with their results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lyceum.core.tree import Node
from lyceum.core.types import GradingContext, Message, Observation, ToolCall
from lyceum.environment._notation import AnswerSoFar, Notation
from lyceum.models.responses import hermes_call, hermes_spans
from lyceum.utils.documents import DocumentError, DocumentLimits, read_json
from lyceum.utils.numbers import to_json

ERROR = "error"
"""Beginning of a result that says what is wrong with a call."""


@dataclass(frozen=True)
class CallResult:
    """What a call gets.

    Attributes:
        name: the tool's; empty where there is none of the name that was called.
    """

    text: str
    name: str = ""
    failed: bool = False

    @classmethod
    def error(cls, why: str, name: str = "") -> CallResult:
        return cls(f"{ERROR}: {why}", name, failed=True)


def tool_calls(
    said: str, turn: Node, context: GradingContext, *, limits: DocumentLimits, most: int
) -> list[ToolCall | CallResult]:
    """The calls of a turn, in order; those that cannot be read, and the first beyond ``most``, as the result that they
    get.

    They are read as the model's chat template writes calls, outside of thoughts; where it has no form of its own, which
    prompts then have to tell of, as ``<tool_call>{"name": ..., "arguments": {...}}</tool_call>``.

    Args:
        said: the turn's text, without control tokens.
    """
    spoken = context.spoken(turn)
    if spoken is None:
        return hermes_calls(said, limits=limits, most=most)
    if spoken.fault:
        return [CallResult.error(f"the call cannot be read ({spoken.fault}); allowed: as the chat template writes it")]
    if spoken.calls is None:
        return hermes_calls(spoken.content, limits=limits, most=most)
    calls = [_within(call, limits) for call in spoken.calls[:most]]
    return [*calls, *(_more(most) if len(spoken.calls) > most else ())]


def hermes_calls(said: str, *, limits: DocumentLimits, most: int) -> list[ToolCall | CallResult]:
    """The calls ``<tool_call>{"name": ..., "arguments": {...}}</tool_call>`` of a text, as :func:`tool_calls`."""
    spans = hermes_spans(said)
    calls = [_read(said[begin:end], limits) for begin, end in spans[:most]]
    return [*calls, *(_more(most) if len(spans) > most else ())]


def _more(most: int) -> list[CallResult]:
    return [CallResult.error(f"more than {most} calls in a turn")]


def _within(call: ToolCall, limits: DocumentLimits) -> ToolCall | CallResult:
    """A call whose arguments are within the limits of a document."""
    try:
        arguments = read_json(to_json(call.arguments), limits=limits)
    except (DocumentError, ValueError, RecursionError) as error:
        return CallResult.error(f"the call's arguments cannot be read ({error})")
    return ToolCall(call.name, arguments)


def _read(call: str, limits: DocumentLimits) -> ToolCall | CallResult:
    try:
        return hermes_call(call, limits)
    except ValueError as error:
        return CallResult.error(str(error))


def answered(
    state: AnswerSoFar,
    turn: Node,
    said: str,
    results: Sequence[CallResult],
    context: GradingContext,
    *,
    notation: Notation | None,
    failed_reward: float,
    counts: Mapping[str, int] | None = None,
) -> Observation[AnswerSoFar]:
    """What the policy reads of its calls' results: one message of the tool for each, or with a notation the one result
    within the text. No results end the trajectory.

    Args:
        failed_reward: of each call that gets an error.
    """
    if not results:
        return Observation(state, end=True)
    known = answer = ";".join(result.text for result in results)
    messages: tuple[Message, ...] = ()
    tokens: tuple[int, ...] = ()
    if notation is None:
        messages = tuple(
            {"role": "tool", **({"name": result.name} if result.name else {}), "content": result.text}
            for result in results
        )
    else:
        answer = f"{notation.before}{known}{notation.after}"
        tokens = tuple(context.encode_after(turn.path_tokens(), answer))
    after, failed = state.then(said, answer), sum(result.failed for result in results)
    return Observation(
        after,
        messages,
        tokens,
        reward=failed_reward * failed,
        key=f"{after.calls}:{known}",
        calls=len(results),
        failed=failed,
        counts=counts or {},
    )
