"""What a turn says in the model's own form: thoughts, tool calls, and the rest, read by transformers.

Which form a model's calls have is asked of its chat template: a call is rendered, and the form that reads it back is
the model's. So no list of models is needed, and a template of the user's own has a form too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lyceum.core.types import Message, Spoken, ToolCall
from lyceum.models._appended import beginning, identity
from lyceum.utils.documents import DOCUMENT, DocumentError, DocumentLimits, read_json
from lyceum.utils.errors import RecipeError
from lyceum.utils.numbers import to_json

LONGEST = 100_000
"""Characters of a turn beyond which its calls are not read."""


def _call(**how: Any) -> dict[str, Any]:
    """A field of calls, each with its name and its arguments, which are the field's content."""
    return {
        "repeats": True,
        "transform": {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}},
        **how,
    }


def _tagged(pattern: str) -> dict[str, Any]:
    """Arguments as tags; a value is text until the tool's schema says otherwise."""
    return {"content": "xml-inline", "content_args": {"tag_pattern": pattern, "value_parser": {"name": "text"}}}


def _form(calls: Mapping[str, Any], thoughts: Mapping[str, Any] | None = None, **begins: str) -> Mapping[str, Any]:
    """A form whose content is all that is neither a call nor a thought."""
    before = {} if thoughts is None else {"thoughts": thoughts}
    return {**begins, "fields": {**before, "tool_calls": calls, "content": {"repeats": True, "join": ""}}}


_THINK = {"open": "<think>", "close": "</think>"}
_QUOTED = {"string_delims": [['<|"|>', '<|"|>']], "unquoted_keys": True}

HERMES = _form(
    {
        "open": "<tool_call>",
        "close": "</tool_call>",
        "repeats": True,
        "content": "json",
        "transform": {"type": "function", "function": "{content}"},
    },
    _THINK,
    start_anchor_pattern=r"assistant(?:<\|end_header_id\|>|\|>)?\s*",
)
"""``<tool_call>{"name": ..., "arguments": {...}}</tool_call>``: Qwen 2.5 and 3, Hermes."""

FORMS: Mapping[str, Mapping[str, Any]] = {
    "hermes": HERMES,
    # <tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></tool_call>: Qwen 3.5 and later, Nemotron 3.
    "function-tags": _form(
        _call(
            open_pattern=r"<tool_call>\s*<function=(?P<name>[^>\n]{1,200})>",
            close="</tool_call>",
            **_tagged(r"<parameter=(?P<key>[^>\n]{1,200})>\n?(?P<value>.*?)\n?</parameter>"),
        ),
        _THINK,
        start_anchor="<|im_start|>assistant\n",
    ),
    # <tool_call>NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value></tool_call>: GLM 4.5.
    "argument-tags": _form(
        _call(
            open_pattern=r"<tool_call>(?P<name>[^\s<]{1,200})",
            close="</tool_call>",
            **_tagged(r"<arg_key>(?P<key>[^<]{1,200})</arg_key>\s*<arg_value>(?P<value>.*?)</arg_value>"),
        ),
        _THINK,
        start_anchor="<|assistant|>",
    ),
    # {"name": NAME, "parameters": {...}} as the whole turn: Llama 3.1 and later.
    "bare-json": _form(
        _call(
            open_pattern=r'\{"name":\s*"(?P<name>[^"\n]{1,200})",\s*"parameters":\s*',
            close_pattern=r"\}\s*(?:<\|eot_id\|>|<\|eom_id\|>|$)",
            content="json",
        ),
        start_anchor="<|start_header_id|>assistant<|end_header_id|>\n\n",
    ),
    # Channels of analysis, commentary and final: gpt-oss.
    "harmony": {
        "start_anchor": "<|start|>assistant",
        "fields": {
            "thoughts": {"open": "<|channel|>analysis<|message|>", "close": "<|end|>", "repeats": True, "join": "\n"},
            "tool_calls": _call(
                open_pattern=r"to=functions\.(?P<name>[^\s<]{1,200}?)(?:<\|channel\|>commentary)?\s*json<\|message\|>",
                close="<|call|>",
                content="json",
            ),
            "content": {"open": "<|channel|>final<|message|>", "close_pattern": r"<\|return\|>|<\|end\|>|$"},
        },
    },
    # <|tool_call>call:NAME{KEY:<|"|>TEXT<|"|>}<tool_call|>: Gemma 4.
    "call-braces": _form(
        _call(
            open_pattern=r"<\|tool_call>call:(?P<name>\w{1,200})",
            close="<tool_call|>",
            content="json",
            content_args=_QUOTED,
        ),
        {"open": "<|channel>thought\n", "close": "<channel|>"},
        start_anchor_pattern=r"<\|turn>model\n|<tool_response\|>",
    ),
    # [TOOL_CALLS][{"name": NAME, "arguments": {...}}]: Mistral.
    "call-list": _form(
        {"open": "[TOOL_CALLS]", "close_pattern": r"</s>|$", "content": "json"},
        start_anchor_pattern=r"\[/INST\]|\[/TOOL_RESULTS\]",
    ),
}
"""Forms of calls, as transformers' response templates."""

_PROBE_TOOL = {
    "type": "function",
    "function": {
        "name": "times",
        "description": "Multiply.",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer", "description": "a"}, "to": {"type": "string", "description": "b"}},
            "required": ["a", "to"],
        },
    },
}
_PROBE: ToolCall = ToolCall("times", {"a": 8, "to": "three"})

Write = Callable[[Sequence[Message], Sequence[Mapping[str, Any]], bool], str]
"""A chat template: messages, tools, and whether it ends where the next answer begins."""


@dataclass(frozen=True)
class Form:
    """How a model calls tools.

    Attributes:
        name: among ``FORMS``, or ``tokenizer`` where the model's files say it.
        template: a response template of transformers.
    """

    name: str
    template: Mapping[str, Any]

    def read(self, prefix: str, text: str, tools: Sequence[Mapping[str, Any]], *, probing: bool = False) -> Spoken:
        """What a turn says. Whatever it is, nothing is raised: what cannot be read is the result's ``fault``.

        Args:
            prefix: what stands before it, which may have begun the turn.
            text: of the turn, control tokens included.
            tools: as JSON schemas, by which arguments get their types.
            probing: whether Hermes' calls are read too.
        """
        if len(text) > LONGEST:
            return Spoken(text, fault=f"more than {LONGEST} characters in a turn")
        # Hermes' calls are read by who answers them, one by one: one that is wrong spoils no other.
        aside = {"tool_calls"} if self.name == "hermes" and not probing else set()
        fields = {name: how for name, how in self.template["fields"].items() if name not in aside}
        try:
            said = _parsed(text, {**self.template, "fields": fields}, prefix, tools)
            return Spoken(
                content=str(said.get("content") or ""),
                thoughts=str(said.get("thoughts") or said.get("reasoning_content") or said.get("thinking") or ""),
                calls=None if aside else tuple(call for each in said.get("tool_calls") or [] for call in _calls(each)),
            )
        except Exception as error:  # RecursionError of a deeply nested text, too
            return Spoken(text, fault=f"{type(error).__name__} where a call begins")


def form_of(write: Write, own: Mapping[str, Any] | None) -> Form | None:
    """The form in which a chat template writes calls; None where it writes none, or in a form that is not known.

    Args:
        own: the tokenizer's response template; None without one.
    """
    asked: Message = {"role": "user", "content": "What?"}
    for arguments in (_PROBE.arguments, to_json(_PROBE.arguments)):
        call = {"name": _PROBE.name, "arguments": arguments}
        turn: Message = {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": identity(0), "type": "function", "function": call}],
        }
        try:
            prompt, whole = write([asked], [_PROBE_TOOL], True), write([asked, turn], [_PROBE_TOOL], False)
        except RecipeError:
            continue
        prefix = beginning(prompt, whole)
        candidates = {"tokenizer": own} if own else {}
        for name, template in (candidates | dict(FORMS)).items():
            form = Form(name, template)
            if form.read(prefix, whole[len(prefix) :], [_PROBE_TOOL], probing=True).calls == (_PROBE,):
                return form
    return None


HERMES_BEGIN, HERMES_END = "<tool_call>", "</tool_call>"
HERMES_CALL = '{"name": TOOL, "arguments": {...}}'
"""What stands between them."""


def hermes_spans(text: str) -> list[tuple[int, int]]:
    """Where each ``<tool_call>...</tool_call>`` of a text begins and ends, in characters."""
    # Not by a regular expression, which is quadratic where calls begin and do not end.
    spans: list[tuple[int, int]] = []
    at = 0
    while (begin := text.find(HERMES_BEGIN, at)) >= 0 and (end := text.find(HERMES_END, begin)) >= 0:
        at = end + len(HERMES_END)
        spans.append((text.rfind(HERMES_BEGIN, begin, end), at))
    return spans


def hermes_call(text: str, limits: DocumentLimits = DOCUMENT) -> ToolCall:
    """The call of one of :func:`hermes_spans`.

    Raises:
        ValueError: it is none, and why.
    """
    try:
        read = read_json(text[len(HERMES_BEGIN) : -len(HERMES_END)], limits=limits)
    except DocumentError as error:
        raise ValueError(f"the call is not JSON ({error}); allowed: {HERMES_CALL}") from error
    name, arguments = (read.get("name"), read.get("arguments")) if isinstance(read, dict) else (None, None)
    if not isinstance(name, str) or not isinstance(arguments, dict):
        raise ValueError(f"no call of a tool with arguments; allowed: {HERMES_CALL}")
    return ToolCall(name, arguments)


def _parsed(
    text: str, template: Mapping[str, Any], prefix: str, tools: Sequence[Mapping[str, Any]]
) -> Mapping[str, Any]:
    from transformers.utils.chat_parsing import parse_response

    return parse_response(text, dict(template), prefix=prefix, tools=[dict(tool) for tool in tools])


def _calls(given: Any) -> list[ToolCall]:
    """The calls of one parsed region.

    Raises:
        ValueError: it is none.
    """
    if isinstance(given, list):
        return [call for each in given for call in _calls(each)]
    function = given.get("function", given) if isinstance(given, dict) else None
    name, arguments = (function.get("name"), function.get("arguments")) if isinstance(function, dict) else (None, None)
    if isinstance(arguments, str):
        arguments = json.loads(arguments)
    if not isinstance(name, str) or not isinstance(arguments, dict):
        raise ValueError("no call of a tool with arguments")
    return [ToolCall(name, arguments)]
