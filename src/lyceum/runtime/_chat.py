"""OpenAI's chat completions as values: what a request asks for, and what a reply says."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from lyceum.core.tree import Node
from lyceum.core.types import Spoken
from lyceum.core.user_files import describe
from lyceum.models.responses import hermes_call, hermes_spans
from lyceum.utils.documents import DocumentError, DocumentLimits, read_json
from lyceum.utils.errors import RecipeError
from lyceum.utils.messages import is_picture_part, text_of
from lyceum.utils.numbers import to_json
from lyceum.utils.terminal import printable, quoted

MOST_BYTES = 1 << 20
"""Maximum bytes of a request."""
_LIMITS = DocumentLimits(characters=MOST_BYTES, depth=60, values=100_000)
_ROLES = {"developer": "system", "function": "tool"}
_KEPT = ("role", "content", "name", "tool_calls", "tool_call_id")
"""What of a message the chat template is given."""

SAMPLING = ("temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty", "logit_bias", "seed")
"""What a request says of how tokens are drawn. Training draws them as the recipe says, or their log-probabilities would
be another distribution's."""
USUAL: Mapping[str, Any] = {"presence_penalty": 0, "frequency_penalty": 0, "logit_bias": {}, "top_k": 0, "min_p": 0}


class NotServed(Exception):
    """A request that is not answered.

    Attributes:
        status: of HTTP.
        code: in a word, for programs.
        param: the field that it is about.
    """

    def __init__(self, status: int, message: str, code: str | None = None, param: str | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.param = status, code, param

    def body(self) -> dict[str, Any]:
        kinds = {401: "authentication_error", 429: "rate_limit_error", 500: "server_error"}
        kind = kinds.get(self.status, "invalid_request_error")
        return {"error": {"message": str(self), "type": kind, "param": self.param, "code": self.code}}


class _Function(BaseModel):
    model_config = ConfigDict(extra="allow")
    name: Annotated[str, Field(pattern=r"^[a-zA-Z0-9_.:-]{1,128}$")]
    parameters: dict[str, Any] | None = None

    @field_validator("parameters")
    @classmethod
    def _is_a_schema(cls, schema: dict[str, Any] | None) -> dict[str, Any] | None:
        import jsonschema_rs  # here: most runs have no endpoint

        if schema is not None and not jsonschema_rs.meta.is_valid(schema):
            raise ValueError(f"got {quoted(schema)}; allowed: a JSON schema")
        return schema


class _Tool(BaseModel):
    model_config = ConfigDict(extra="allow")
    type: Literal["function"]
    function: _Function


class _Format(BaseModel):
    model_config = ConfigDict(extra="allow")
    type: Literal["text", "json_object", "json_schema"]
    json_schema: dict[str, Any] | None = None


class _StreamOptions(BaseModel):
    include_usage: bool | None = None


class ChatRequest(BaseModel):
    """The fields that are read; others are allowed, as each framework sends some of its own."""

    model_config = ConfigDict(extra="allow")
    messages: Annotated[list[dict[str, Any]], Field(min_length=1)]
    tools: list[_Tool] | None = None
    tool_choice: Any = None
    n: Annotated[int, Field(ge=1, le=128, strict=True)] | None = None
    stop: str | Annotated[list[str], Field(max_length=4)] | None = None
    max_tokens: Annotated[int, Field(ge=1, strict=True)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1, strict=True)] | None = None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    response_format: _Format | None = None
    modalities: list[Literal["text"]] | None = None
    functions: None = None
    function_call: None = None

    @property
    def samples(self) -> int:
        return self.n or 1

    @property
    def stops(self) -> tuple[str, ...]:
        given = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())
        return tuple(filter(None, given))

    @property
    def most(self) -> float:
        """Maximum tokens of a reply."""
        given = (self.max_tokens, self.max_completion_tokens)
        return min((most for most in given if most is not None), default=math.inf)

    @property
    def schemas(self) -> list[dict[str, Any]]:
        """The tools as the chat template is told of them."""
        return [tool.model_dump(exclude_unset=True) for tool in self.tools or ()]

    @property
    def calls(self) -> bool:
        """Whether a reply's calls of tools are read."""
        return bool(self.tools) and self.tool_choice != "none"

    @property
    def overridden(self) -> list[str]:
        """What it says of how tokens are drawn, where that is something."""
        given = self.model_extra or {}
        named = [name for name in SAMPLING if given.get(name) not in (None, USUAL.get(name))]
        return named + (["tool_choice"] if self.tool_choice not in (None, "auto", "none") else [])


def read_request(body: bytes) -> ChatRequest:
    """Raises NotServed, with the first thing that is wrong."""
    return chat_request(read_object(body))


def read_object(body: bytes) -> dict[str, Any]:
    """A body's JSON object. Raises NotServed where it is none."""
    try:
        given = read_json(body, limits=_LIMITS)
    except DocumentError as error:
        raise NotServed(400, f"the body is not JSON: {printable(str(error))}", "invalid_json") from error
    if not isinstance(given, dict):
        raise NotServed(400, f"the body is a {type(given).__name__}; allowed: a JSON object", "invalid_json")
    return given


def chat_request(given: Mapping[str, Any]) -> ChatRequest:
    """Raises NotServed, with the first thing that is wrong."""
    try:
        return ChatRequest.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        param = ".".join(map(str, first["loc"]))
        why = first["msg"].removeprefix("Value error, ")
        raise NotServed(400, f"{param}: {why}; got {quoted(first['input'])}", "invalid_value", param) from error


def chat_of(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Messages as the chat template takes them: contents as one text, arguments of calls as values.

    Raises:
        NotServed: a message has no role, or content that is no text.
    """
    return [_message(i, message) for i, message in enumerate(messages)]


def _message(number: int, given: Mapping[str, Any]) -> dict[str, Any]:
    param = f"messages.{number}"
    role = given.get("role")
    if not isinstance(role, str):
        raise NotServed(400, f"{param}.role: got {quoted(role)}; allowed: system, user, assistant, tool", None, param)
    message = {name: given[name] for name in _KEPT if given.get(name) is not None}
    message["role"] = _ROLES.get(role, role)
    content = given.get("content")
    try:
        if isinstance(content, list) and any(map(is_picture_part, content)):
            raise TypeError("a picture has no text")
        message["content"] = "" if content is None else text_of(content)
    except (RecipeError, TypeError) as error:
        what = f"{param}.content: got {quoted(content)}; allowed: text, or parts {{type: text, text: ...}}"
        raise NotServed(400, what, "invalid_value", param) from error
    if "tool_calls" in message:
        message["tool_calls"] = [_call(f"{param}.tool_calls.{i}", call) for i, call in enumerate(_list(message, param))]
    return message


def _list(message: Mapping[str, Any], param: str) -> list[Any]:
    if not isinstance(calls := message["tool_calls"], list):
        raise NotServed(400, f"{param}.tool_calls: got {quoted(calls)}; allowed: a list", "invalid_value", param)
    return calls


def _call(param: str, call: Any) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        allowed = '{"type": "function", "function": {"name": ..., "arguments": ...}}'
        raise NotServed(400, f"{param}: got {quoted(call)}; allowed: {allowed}", "invalid_value", param)
    arguments = function.get("arguments") or {}
    if isinstance(arguments, str):
        try:  # most templates write a mapping as JSON, and a text with its quotes
            read = read_json(arguments)
            arguments = read if isinstance(read, dict) else arguments
        except DocumentError:
            pass
    return {**call, "function": {"name": function["name"], "arguments": arguments}}


@dataclass(frozen=True)
class ReplyText:
    """A reply's text in its parts.

    Attributes:
        calls: (name, arguments as JSON) of each call of a tool.
    """

    content: str
    thoughts: str = ""
    calls: tuple[tuple[str, str], ...] = ()


def read_reply(text: str, form: Spoken | None, *, ending: str, stops: Sequence[str], calls: bool) -> ReplyText:
    """Thoughts, calls and what else a reply says, without the string that it was stopped by.

    Args:
        text: without control tokens.
        form: what it says in the form of the model's chat template; None where that has none.
        ending: the control token that ended it; empty without one.
        calls: whether to read calls of tools; what is none stays text.
    """
    ended = max((stop for stop in stops if text.endswith(stop)), key=len, default="")
    if form is not None and not form.fault and form.calls is not None and not ended:
        if calls or not form.calls:
            content = form.content.removesuffix(ending)
            named = tuple((call.name, to_json(call.arguments)) for call in form.calls)
            return ReplyText(content.strip() if named else content, form.thoughts, named)
        return ReplyText(text, form.thoughts)
    text = text[: len(text) - len(ended)]
    thoughts, closed, content = text.rpartition("</think>")
    thoughts = thoughts.strip().removeprefix("<think>").strip()
    content = content.lstrip("\n") if closed else content
    if not calls:
        return ReplyText(content, thoughts)
    found: list[tuple[str, str]] = []
    rest, at = "", 0
    for begin, end in hermes_spans(content):
        try:
            call = hermes_call(content[begin:end])
        except ValueError:
            continue
        found.append((call.name, to_json(call.arguments)))
        rest, at = rest + content[at:begin], end
    return ReplyText((rest + content[at:]).strip() if found else content, thoughts, tuple(found))


def message_of(said: ReplyText, node: Node) -> dict[str, Any]:
    """A reply as the message that the agent gets. Ids of calls follow from the place in the tree."""
    message: dict[str, Any] = {"role": "assistant", "content": said.content or None, "refusal": None}
    if said.thoughts:
        message["reasoning_content"] = said.thoughts
    if said.calls:
        message["tool_calls"] = [
            {
                "id": f"call_{node.address & 0xFFFFFFFFFFFF:012x}{i}",
                "type": "function",
                "function": {"name": name, "arguments": arguments},
            }
            for i, (name, arguments) in enumerate(said.calls)
        ]
    return message


def choice_of(index: int, message: Mapping[str, Any], node: Node, logprobs: Any) -> dict[str, Any]:
    finish = "tool_calls" if "tool_calls" in message else node.finish
    return {"index": index, "message": message, "finish_reason": finish, "logprobs": logprobs}


def logprobs_of(node: Node, top: int, text: Callable[[int], str]) -> dict[str, Any]:
    """Log-probabilities (nats, temperature 1) of a reply's tokens, as OpenAI lists them.

    Args:
        top: number of likely tokens listed with each.
        text: of a token.
    """

    def entry(token: int, logprob: float) -> dict[str, Any]:
        written = text(token)
        return {"token": written, "logprob": max(logprob, -9999.0), "bytes": list(written.encode("utf-8", "replace"))}

    # An engine without untempered ones has the sampled distribution's.
    own = [b if math.isnan(m) else m for m, b in zip(node.model_logprob, node.behaviour_logprob, strict=True)]
    listed = [
        {
            **entry(token, logprob),
            "top_logprobs": [entry(*each) for each in node.top[i][:top]] if top and node.top else [],
        }
        for i, (token, logprob) in enumerate(zip(node.tokens, own, strict=True))
    ]
    return {"content": listed, "refusal": None}


def completion_of(
    name: str, model: str, created: int, choices: Sequence[Mapping[str, Any]], prompt: int, drawn: int
) -> dict[str, Any]:
    """The whole reply.

    Args:
        created: seconds since 1970.
        prompt, drawn: tokens.
    """
    usage = {"prompt_tokens": prompt, "completion_tokens": drawn, "total_tokens": prompt + drawn}
    head = {"id": name, "object": "chat.completion", "created": created, "model": model}
    return {**head, "choices": list(choices), "usage": usage}


def events_of(completion: Mapping[str, Any], *, usage: bool) -> bytes:
    """The same as a stream of events. A reply is drawn whole, so that its text is one of them."""
    return b"".join(b"data: " + each + b"\n\n" for each in (*_chunks(completion, usage), b"[DONE]"))


def _chunks(completion: Mapping[str, Any], usage: bool) -> Iterator[bytes]:
    head = {**{name: completion[name] for name in ("id", "created", "model")}, "object": "chat.completion.chunk"}
    last = {"usage": None} if usage else {}
    for choice in completion["choices"]:
        delta = {name: value for name, value in choice["message"].items() if value is not None}
        delta = {"role": "assistant", "content": "", **delta}
        if "tool_calls" in delta:
            delta["tool_calls"] = [{"index": i, **call} for i, call in enumerate(delta["tool_calls"])]
        of = {"index": choice["index"], "logprobs": choice["logprobs"]}
        yield _line({**head, "choices": [{**of, "delta": delta, "finish_reason": None}], **last})
        end = {**of, "logprobs": None, "delta": {}, "finish_reason": choice["finish_reason"]}
        yield _line({**head, "choices": [end], **last})
    if usage:
        yield _line({**head, "choices": [], "usage": completion["usage"]})


def _line(value: Mapping[str, Any]) -> bytes:
    return to_json(value).encode()


def refused_by_template(error: Exception) -> NotServed:
    """What the chat template, or the tokenizer, says of the messages."""
    return NotServed(400, describe(error).removeprefix("RecipeError: "), "invalid_value", "messages")
