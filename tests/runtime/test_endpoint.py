"""The endpoint: what OpenAI's API says, by the run's engine, to whoever has a key and to nobody else."""

import asyncio
import json
import math

import pytest
from agent_fixtures import POLICY, SAMPLING, ask, leaves_of, one_tree, post, trees_of

from lyceum.core.types import Origin, Spoken, ToolCall
from lyceum.engine.constraint.json_schema import JsonSchemaConstraint
from lyceum.engine.embedded import EmbeddedEngine
from lyceum.runtime._chat import read_reply
from lyceum.runtime._responses import messages_of

HELLO = [{"role": "user", "content": "What is 8*3?"}]


def answered(*bodies, **settings):
    """Status and reply of each request of one episode, in turn, and its tree."""
    replies = []

    async def agent(base_url, api_key):
        for body in bodies:
            given = {"messages": HELLO, **body} if isinstance(body, dict) else body
            replies.append(await post(base_url, api_key, given))
        return 1.0

    tree = one_tree(agent, **{"max_requests": 1000, **settings})
    return replies, tree


def test_a_reply_is_what_openai_says():
    [(status, reply)], tree = answered({"model": "gpt-9", "max_tokens": 5, "logprobs": True, "top_logprobs": 2})
    (leaf,) = tree.trajectories
    assert status == 200
    assert (reply["object"], reply["model"]) == ("chat.completion", "gpt-9")
    assert reply["usage"] == {
        "prompt_tokens": len(tree.root.tokens),
        "completion_tokens": len(leaf.tokens),
        "total_tokens": len(tree.root.tokens) + len(leaf.tokens),
    }
    [choice] = reply["choices"]
    assert choice["finish_reason"] == leaf.finish
    assert (choice["message"]["content"] or "") == leaf.text
    listed = choice["logprobs"]["content"]
    assert [each["logprob"] for each in listed] == leaf.model_logprob
    assert [len(each["top_logprobs"]) for each in listed] == [2] * len(leaf.tokens)
    for each in listed:
        assert each["logprob"] <= each["top_logprobs"][0]["logprob"] + 1e-5


def test_several_choices_are_siblings_and_all_are_trained():
    [(_, reply)], tree = answered({"n": 3, "max_tokens": 4})
    assert [choice["index"] for choice in reply["choices"]] == [0, 1, 2]
    leaves = tree.trajectories[0].episode
    assert [leaf.parent for leaf in leaves] == [tree.root] * 3
    assert len({leaf.address for leaf in leaves}) == 3


def test_the_same_request_again_is_another_draw_from_the_same_place():
    replies, tree = answered({"max_tokens": 6}, {"max_tokens": 6})
    leaves = tree.trajectories[0].episode
    assert [leaf.parent for leaf in leaves] == [tree.root] * 2
    assert leaves[0].tokens != leaves[1].tokens
    assert replies[0][1]["id"] != replies[1][1]["id"]


def test_a_stop_string_ends_a_reply_and_is_not_in_it():
    letters = list("aeiourstn")
    [(_, reply)], tree = answered({"stop": letters[:4], "n": 8})
    stopped = [
        (choice["message"]["content"] or "", leaf.text)
        for choice, leaf in zip(reply["choices"], tree.trajectories[0].episode, strict=True)
        if leaf.text.endswith(tuple(letters[:4]))
    ]
    assert stopped
    for content, text in stopped:
        assert content == text[:-1]


def test_a_stream_has_the_same_reply_in_events():
    async def agent(base_url, api_key):
        import httpx2

        async with httpx2.AsyncClient(verify=False) as client:
            body = {"messages": HELLO, "stream": True, "stream_options": {"include_usage": True}, "n": 2}
            headers = {"authorization": f"Bearer {api_key}"}
            async with client.stream("POST", f"{base_url}/chat/completions", json=body, headers=headers) as reply:
                kind = reply.headers["content-type"]
                lines.extend([line async for line in reply.aiter_lines() if line])
        assert kind == "text/event-stream"
        return 1.0

    lines = []
    leaves = one_tree(agent).trajectories[0].episode
    assert lines[-1] == "data: [DONE]"
    events = [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]
    assert events[-1]["usage"]["completion_tokens"] == sum(len(leaf.tokens) for leaf in leaves)
    for i, leaf in enumerate(leaves):
        deltas = [c["delta"] for e in events for c in e["choices"] if c["index"] == i]
        assert "".join(delta.get("content") or "" for delta in deltas) == leaf.text
        assert [c["finish_reason"] for e in events for c in e["choices"] if c["index"] == i] == [None, leaf.finish]


WRONG = [
    (b"{", 400, "not JSON"),
    (b"[]", 400, "a list; allowed: a JSON object"),
    (b"\xff\xfe", 400, "not JSON"),
    (b'{"messages": ' + b"[" * 100_000, 400, "not JSON"),
    (b'{"messages": [{"role": "user", "content": "\\ud800"}]}', 400, "not JSON"),
    ({"messages": []}, 400, "messages"),
    ({"messages": "hello"}, 400, "messages"),
    ({"messages": [{"content": "hello"}]}, 400, "messages.0.role"),
    ({"messages": [{"role": "user", "content": 5}]}, 400, "messages.0.content"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}, 400, "messages.0.content"),
    ({"messages": [{"role": "assistant", "tool_calls": 5}]}, 400, "messages.0.tool_calls"),
    ({"messages": [{"role": "assistant", "tool_calls": [5]}]}, 400, "messages.0.tool_calls.0"),
    ({"n": 0}, 400, "n: "),
    ({"n": 129}, 400, "n: "),
    ({"n": 1.5}, 400, "n: "),
    ({"n": 61}, 429, "has drawn its tokens"),
    ({"max_tokens": 0}, 400, "max_tokens"),
    ({"max_completion_tokens": "many"}, 400, "max_completion_tokens"),
    ({"stop": ["a"] * 5}, 400, "stop"),
    ({"top_logprobs": 21, "logprobs": True}, 400, "top_logprobs"),
    ({"tools": "search"}, 400, "tools"),
    ({"tools": [{"type": "retrieval"}]}, 400, "tools.0.type"),
    ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, 400, "tools.0.function.name"),
    ({"tools": [{"type": "function", "function": {"name": "a", "parameters": {"type": 5}}}]}, 400, "a JSON schema"),
    ({"functions": [{"name": "a"}]}, 400, "functions"),
    ({"modalities": ["audio"]}, 400, "modalities"),
    ({"response_format": {"type": "json_object"}}, 400, "rollout.sampling.constraint (there is none)"),
    ({"response_format": {"type": "xml"}}, 400, "response_format.type"),
    ({"messages": [{"role": "user", "content": "long " * 1000}]}, 400, "tokens; this model's context is 256"),
    (b'{"messages": [{"role": "user", "content": "' + b"x" * 900_000 + b'"}]}', 400, "far more tokens"),
    (b'{"messages": [{"role": "user", "content": "' + b"x" * (1 << 20) + b'"}]}', 413, "longer than 1048576 bytes"),
]  # fmt: skip


def test_what_cannot_be_answered_is_refused_as_openai_refuses_it_and_costs_nothing():
    replies, tree = answered(*(body for body, _, _ in WRONG), {"max_tokens": 3})
    for (body, status, says), (got, reply) in zip(WRONG, replies, strict=False):
        assert got == status, (body, reply)
        assert set(reply["error"]) == {"message", "type", "param", "code"}
        assert says.replace("context is 256", "context is 1024") in reply["error"]["message"], reply
        assert len(reply["error"]["message"]) < 1000
    assert replies[-1][0] == 200, "and the next request is answered"
    (leaf,) = tree.trajectories
    assert leaf.stats["requests"] == 1
    assert leaf.stats["refused"] == len(WRONG)
    assert [node.origin for node in tree.nodes()] == [Origin.PROMPT, Origin.POLICY]


def test_only_paths_that_are_served_are_found():
    async def agent(base_url, api_key):
        paths = ("/embeddings", "/completions", "/../../etc/passwd", "/chat/completions/")
        found.extend([await post(base_url, api_key, {"messages": HELLO}, path=path) for path in paths])

    found = []
    one_tree(agent)
    assert {status for status, _ in found} == {404}
    assert "allowed: POST /v1/chat/completions, POST /v1/responses, GET /v1/models" in found[0][1]["error"]["message"]


# Keys --------------------------------------------------------------------------------------------------------------


def test_a_key_opens_its_own_episode_alone_and_only_while_it_lasts():
    keys, seen = {}, []

    async def agent(base_url, api_key, messages, task):
        keys[task.id] = api_key
        said = await ask(base_url, api_key, messages, max_tokens=4)
        if task.id == "t1":
            while "t0 ended" not in keys:
                await asyncio.sleep(0.01)
            tried = (
                {},
                {"authorization": f"Bearer {keys['t0']}"},  # which has ended
                {"authorization": f"Bearer {api_key[:-1]}"},
                {"authorization": f"Basic {api_key}"},
                {"authorization": "Bearer"},
                {"api-key": api_key},
            )
            seen.extend([await post(base_url, "", {"messages": HELLO}, headers=headers) for headers in tried])
        else:
            asyncio.get_running_loop().call_later(0.2, keys.update, {"t0 ended": ""})
        return float(len(said["content"] or ""))

    _, trees = trees_of(agent, samples=1)
    assert [status for status, _ in seen] == [401] * 6
    assert {reply["error"]["code"] for _, reply in seen} == {"invalid_api_key"}
    assert [leaf.stats["requests"] for leaf in leaves_of(trees)] == [1, 1]


def test_with_another_episodes_key_nobody_earns_anything():
    """A key is what an episode is told by: the request is that one's, and whoever waits for it is out of time."""
    keys = {}

    async def agent(base_url, api_key, messages, task):
        keys[task.id] = api_key
        while len(keys) < 2:
            await asyncio.sleep(0.01)
        if task.id == "t0":
            await ask(base_url, keys["t1"], HELLO, max_tokens=4)
        await asyncio.sleep(0.3)
        return 1.0

    rollout, trees = trees_of(agent, samples=1, timeout_seconds=2)
    assert [leaf.grade.outcome for leaf in leaves_of(trees)] == [None, None]
    metrics = rollout.metrics(trees)
    assert (metrics["late"] + metrics["failed"], metrics["silent"]) == (1, 2)
    assert all(not node.tokens for tree in trees for node in tree.nodes() if node.origin is Origin.POLICY)


def test_nothing_listens_once_the_step_is_done():
    import httpx2

    async def agent(base_url, api_key):
        found.append(base_url)
        await ask(base_url, api_key, HELLO)

    found = []
    one_tree(agent)
    assert found[0].startswith("http://127.0.0.1:")
    with pytest.raises(httpx2.ConnectError):
        httpx2.get(f"{found[0]}/models")


# Clients -----------------------------------------------------------------------------------------------------------


def test_two_requests_at_once_are_two_draws():
    async def agent(base_url, api_key, messages):
        await asyncio.gather(*(ask(base_url, api_key, messages, max_tokens=5) for _ in range(4)))
        return 1.0

    engine = EmbeddedEngine(POLICY)
    leaves = one_tree(agent, engine=engine).trajectories[0].episode
    assert len(leaves) == 4
    assert len({leaf.address for leaf in leaves}) == 4
    assert engine.occupancy.steps <= 10, "and share the engine's batches"


def raw(*parts, close=True):
    """An agent that sends bytes, and may be gone before it is answered."""

    async def agent(base_url, api_key, messages):
        port = int(base_url.rpartition(":")[2].partition("/")[0])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for part in parts:
            writer.write(part.replace(b"KEY", api_key.encode()))
            await writer.drain()
        replies = b"" if close else await asyncio.wait_for(reader.read(1 << 16), 20)
        writer.close()
        await asyncio.sleep(0.2)
        await ask(base_url, api_key, messages, max_tokens=3)
        seen.append(replies)
        return 1.0

    seen = []
    tree = one_tree(agent)
    return seen[0], tree.trajectories[0]


BODY = json.dumps({"messages": HELLO, "max_tokens": 30}).encode()
HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer KEY\r\nContent-Length: %d\r\n\r\n"


def test_a_client_that_vanishes_leaves_no_reply_behind():
    _, leaf = raw(HEAD % len(BODY), BODY)
    assert leaf.episode == [leaf], "what nobody has heard is not trained"
    assert len(leaf.parent.children) == 1
    assert leaf.stats["vanished"] == 1


@pytest.mark.parametrize(
    "sent",
    [
        [b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"],  # https
        [b"GET / HTTP/9.9\r\n\r\n"],
        [b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n"],
        [b"GET /" + b"x" * 200_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n"],
        [HEAD % 10, b"{}"],  # and the rest never comes
    ],
)
def test_what_is_no_http_harms_nobody(sent):
    _, leaf = raw(*sent)
    assert leaf.grade.outcome == 1.0


def test_requests_one_after_the_other_on_a_connection_are_answered_in_order():
    body = json.dumps({"messages": HELLO, "max_tokens": 2}).encode()
    whole = HEAD % len(body) + body
    replies, leaf = raw(whole + whole.replace(b"HTTP/1.1\r\n", b"HTTP/1.1\r\nConnection: close\r\n"), close=False)
    assert replies.count(b"HTTP/1.1 200") >= 1
    assert leaf.grade.outcome == 1.0


# What training could not repeat --------------------------------------------------------------------------------------


def test_how_tokens_are_drawn_is_the_recipes_and_is_counted():
    plain, tree = answered({"max_tokens": 6})
    told, other = answered({"max_tokens": 6, "temperature": 0, "top_p": 0.1, "seed": 5, "logit_bias": {"5": 100}})
    assert [node.tokens for node in tree.nodes()] == [node.tokens for node in other.nodes()]
    assert (tree.trajectories[0].stats["overridden"], other.trajectories[0].stats["overridden"]) == (0, 1)
    assert plain[0][1]["choices"] == told[0][1]["choices"]


def test_a_form_of_the_reply_is_what_the_recipe_constrains_it_to():
    schema = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 9}}, "required": ["a"]}
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    other = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}}
    sampling = SAMPLING.model_copy(
        update={"constraint": JsonSchemaConstraint(json_schema=schema), "stop_token_ids": ()}
    )
    replies, _ = answered(
        *({"response_format": each} for each in (form, {"type": "json_object"}, other)), sampling=sampling
    )
    assert [status for status, _ in replies] == [200, 200, 400]
    assert json.loads(replies[0][1]["choices"][0]["message"]["content"])["a"] in range(10)
    assert "(another one)" in replies[2][1]["error"]["message"]


def test_lengths_are_those_of_the_episode():
    replies, tree = answered({}, {}, {"max_tokens": 1000}, *[{}] * 60, max_requests=60)
    assert sum(node.policy_tokens for node in tree.trajectories[0].episode) == 60
    statuses = [status for status, _ in replies]
    assert set(statuses) == {200, 429}
    assert statuses == sorted(statuses)
    assert tree.trajectories[0].finish == "length"
    assert not math.isnan(tree.trajectories[0].grade.outcome)


def test_models_are_listed():
    async def agent(base_url, api_key):
        import httpx2

        async with httpx2.AsyncClient(verify=False) as client:
            reply = await client.get(f"{base_url}/models", headers={"authorization": f"Bearer {api_key}"})
        listed.append(reply.json()["data"][0]["id"])

    listed = []
    one_tree(agent)
    assert listed == ["policy"]


@pytest.mark.parametrize("calls", [True, False])
def test_a_reply_is_read_in_the_form_of_the_models_template(calls):
    form = Spoken("Let me see.<|im_end|>", "It is a product.", (ToolCall("times", {"a": 8}),))
    text = "<think>It is a product.</think>Let me see. CALL"
    said = read_reply(text, form, ending="<|im_end|>", stops=(), calls=calls)
    assert (said.content, said.calls) == (("Let me see.", (("times", '{"a": 8}'),)) if calls else (text, ()))
    assert said.thoughts == "It is a product."
    # Hermes' calls stand in the text, for those of the endpoint to read: what is none stays.
    call = '<tool_call>{"name": "times", "arguments": {"a": 8}}</tool_call>'
    text = f"<think>Hm.</think>\n\nSo {call}<tool_call>{{</tool_call>"
    said = read_reply(text, None, ending="", stops=(), calls=calls)
    assert said.thoughts == "Hm."
    assert said.calls == ((("times", '{"a": 8}'),) if calls else ())
    assert said.content.endswith("<tool_call>{</tool_call>")


# Responses -----------------------------------------------------------------------------------------------------------

CALLED = {"type": "function_call", "call_id": "c", "name": "times", "arguments": "{}"}


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({}, "input: got None"),
        ({"input": []}, "messages"),
        ({"input": [5]}, "input.0: got 5"),
        ({"input": [{"type": "file_search_call"}]}, "input.0: got"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "messages.0.content"),
        ({"input": [{**CALLED, "name": 5}]}, "messages.0.tool_calls.0"),
        ({"input": "a", "max_output_tokens": 0}, "max_completion_tokens"),
        ({"input": "a", "tools": [{"type": "web_search"}]}, "tools.0"),
        ({"input": "a", "tools": 5}, "tools"),
        ({"input": "a", "previous_response_id": "resp_1"}, "previous_response_id"),
        ({"input": "a", "text": {"format": {"type": "json_object"}}}, "rollout.sampling.constraint (there is none)"),
        (b"[", "not JSON"),
    ],
)
def test_a_response_that_cannot_be_given_is_refused(body, says):
    async def agent(base_url, api_key):
        replies.append(await post(base_url, api_key, body, path="/responses"))
        replies.append(await post(base_url, api_key, {"input": "a", "max_output_tokens": 2}, path="/responses"))
        return 1.0

    replies = []
    one_tree(agent)
    (status, reply), (after, _) = replies
    assert (status, after) == (400, 200), reply
    assert says in reply["error"]["message"]


def test_calls_are_of_the_turn_before_them_and_thoughts_are_left_out():
    items = [
        {"role": "user", "content": [{"type": "input_text", "text": "What?"}]},
        {"type": "reasoning", "summary": []},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "So"}]},
        CALLED,
        {**CALLED, "call_id": "d"},
        {"type": "function_call_output", "call_id": "c", "output": "5"},
        CALLED,
    ]
    messages = messages_of(items, "Be brief.")
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "tool", "assistant"]
    assert [len(message.get("tool_calls", ())) for message in messages] == [0, 0, 2, 0, 1]
    assert messages[2]["content"] == [{"type": "text", "text": "So"}]
