"""OpenAI's responses API as values: its requests as those of chat completions, and their replies as its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lyceum.runtime._chat import ChatRequest, NotServed, chat_request, read_object
from lyceum.utils.numbers import to_json
from lyceum.utils.terminal import quoted

_SAME = ("model", "stream", "tool_choice", "temperature", "top_p", "seed")
"""Fields that mean the same in both."""
Event = tuple[str, dict[str, Any]]
_CALL, _OUTPUT = "function_call", "function_call_output"


def read_response_request(body: bytes) -> ChatRequest:
    """The same request as one of chat completions. Raises NotServed, with the first thing that is wrong."""
    given = read_object(body)
    for name in ("previous_response_id", "conversation", "background"):
        if given.get(name):
            what = f"{name}: got {quoted(given[name])}; allowed: null, and input with the whole conversation"
            raise NotServed(400, what, "invalid_value", name)
    asked: dict[str, Any] = {name: given[name] for name in _SAME if given.get(name) is not None}
    asked["messages"] = messages_of(given.get("input"), given.get("instructions"))
    if given.get("max_output_tokens") is not None:
        asked["max_completion_tokens"] = given["max_output_tokens"]
    if given.get("tools") is not None:
        asked["tools"] = _tools(given["tools"])
    if isinstance(asked.get("tool_choice"), dict):  # one tool by its name: counted as overridden
        asked["tool_choice"] = "required"
    form = (given.get("text") or {}).get("format") if isinstance(given.get("text"), dict) else None
    if isinstance(form, dict) and form.get("type") != "text":
        asked["response_format"] = {"type": form.get("type"), "json_schema": {"schema": form.get("schema")}}
    return chat_request(asked)


def messages_of(items: Any, instructions: Any) -> list[dict[str, Any]]:
    """Items of an input as messages: calls belong to the assistant's turn before them, and thoughts are left out."""
    messages: list[dict[str, Any]] = []
    if instructions is not None:
        messages.append({"role": "system", "content": instructions})
    if isinstance(items, str):
        return [*messages, {"role": "user", "content": items}]
    if not isinstance(items, list):
        raise NotServed(
            400, f"input: got {quoted(items)}; allowed: a text, or a list of items", "invalid_value", "input"
        )
    of_turn = False
    """Whether the last message is of the turn that the assistant is taking."""
    for i, item in enumerate(items):
        kind = item.get("type", "message") if isinstance(item, dict) else None
        if kind == "reasoning":
            continue
        if kind == _CALL:
            if not of_turn:
                messages.append({"role": "assistant", "content": ""})
            call = {"name": item.get("name"), "arguments": item.get("arguments")}
            messages[-1].setdefault("tool_calls", []).append(
                {"id": item.get("call_id"), "type": "function", "function": call}
            )
            of_turn = True
        elif kind == _OUTPUT:
            content = _content(item.get("output"))
            messages.append({"role": "tool", "tool_call_id": item.get("call_id"), "content": content})
            of_turn = False
        elif kind == "message":
            messages.append({"role": item.get("role"), "content": _content(item.get("content"))})
            of_turn = item.get("role") == "assistant"
        else:
            what = f"input.{i}: got {quoted(item)}; allowed: a message, {_CALL}, {_OUTPUT} or reasoning"
            raise NotServed(400, what, "invalid_value", f"input.{i}")
    return messages


def _content(given: Any) -> Any:
    """Parts of a text under the name that chat completions have for them; everything else as it is."""
    if not isinstance(given, list):
        return given
    texts = ("input_text", "output_text")
    return [
        {"type": "text", "text": part.get("text")} if isinstance(part, dict) and part.get("type") in texts else part
        for part in given
    ]


def _tools(given: Any) -> Any:
    if not isinstance(given, list):
        return given
    named = ("name", "description", "parameters", "strict")
    return [
        {"type": "function", "function": {name: tool[name] for name in named if tool.get(name) is not None}}
        if isinstance(tool, dict) and tool.get("type") == "function"
        else tool
        for tool in given
    ]


def response_of(completion: Mapping[str, Any], asked: ChatRequest) -> dict[str, Any]:
    """The reply that chat completions give, as a response."""
    [choice] = completion["choices"]
    message, name = choice["message"], completion["id"].removeprefix("chatcmpl-")
    cut, usage = choice["finish_reason"] == "length", completion["usage"]
    output: list[dict[str, Any]] = []
    if message.get("reasoning_content"):
        thoughts = [{"type": "reasoning_text", "text": message["reasoning_content"]}]
        output.append({"type": "reasoning", "id": f"rs_{name}", "summary": [], "content": thoughts})
    if message["content"] or not message.get("tool_calls"):
        text = {"type": "output_text", "text": message["content"] or "", "annotations": [], "logprobs": []}
        status = "incomplete" if cut else "completed"
        output.append(
            {"type": "message", "id": f"msg_{name}", "role": "assistant", "status": status, "content": [text]}
        )
    output += [
        {"type": _CALL, "id": f"fc_{call['id']}", "call_id": call["id"], "status": "completed", **call["function"]}
        for call in message.get("tool_calls") or ()
    ]
    return {
        "id": f"resp_{name}",
        "object": "response",
        "created_at": completion["created"],
        "status": "incomplete" if cut else "completed",
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "error": None,
        "instructions": None,
        "metadata": {},
        "model": completion["model"],
        "output": output,
        "parallel_tool_calls": True,
        "tool_choice": "auto" if asked.tool_choice is None else asked.tool_choice,
        "tools": [{"type": "function", "strict": None, **tool["function"]} for tool in asked.schemas],
        "usage": {
            "input_tokens": usage["prompt_tokens"],
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": usage["completion_tokens"],
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": usage["total_tokens"],
        },
    }


def response_events(response: Mapping[str, Any]) -> bytes:
    """The same as a stream of events. A reply is drawn whole, so that its text is one of them."""
    sent = [
        b"event: %s\ndata: %s\n\n" % (kind.encode(), to_json({"type": kind, "sequence_number": i, **event}).encode())
        for i, (kind, event) in enumerate(_events(response))
    ]
    return b"".join(sent)


def _events(response: Mapping[str, Any]) -> Iterator[Event]:
    begun = {**response, "status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
    yield "response.created", {"response": begun}
    for index, item in enumerate(response["output"]):
        place = {"output_index": index, "item_id": item["id"]}
        empty = {"message": {"content": []}, _CALL: {"arguments": ""}}.get(item["type"], {})
        status = {"status": "in_progress"} if "status" in item else {}
        yield "response.output_item.added", {"output_index": index, "item": {**item, **empty, **status}}
        if item["type"] == "message":
            yield from _text_events(item["content"], place)
        elif item["type"] == _CALL:
            yield "response.function_call_arguments.delta", {**place, "delta": item["arguments"]}
            whole = {"name": item["name"], "arguments": item["arguments"]}
            yield "response.function_call_arguments.done", {**place, **whole}
        yield "response.output_item.done", {"output_index": index, "item": item}
    yield f"response.{response['status']}", {"response": response}


def _text_events(
    content: Sequence[Mapping[str, Any]], place: Mapping[str, Any]
) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, part in enumerate(content):
        at = {**place, "content_index": number}
        yield "response.content_part.added", {**at, "part": {**part, "text": ""}}
        yield "response.output_text.delta", {**at, "delta": part["text"], "logprobs": []}
        yield "response.output_text.done", {**at, "text": part["text"], "logprobs": []}
        yield "response.content_part.done", {**at, "part": part}
