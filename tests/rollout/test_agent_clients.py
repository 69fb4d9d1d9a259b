"""Agents written with OpenAI's own client, which parses what the endpoint says."""

import asyncio
import json

import pytest
from agent_fixtures import POLICY, SAMPLING, ask, drawn, leaves_of, one_tree, trees_of

from lyceum.core.types import Continuation, Grade, Origin
from lyceum.rollout.agent import Agent

openai = pytest.importorskip("openai")

LONGER = SAMPLING.model_copy(update={"max_completion_tokens": 400})
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "times",
            "description": "Product of two numbers.",
            "parameters": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}},
        },
    }
]


class Scripted:
    """An engine that says what a script does, character by character: tokens that no tokenizer would give."""

    version, tokens_computed, may_step = 0, 0, None

    def __init__(self, script):
        self.script, self.prompts = script, []

    async def extend(self, request):
        self.prompts.append(list(request.prefix))
        text = POLICY.tokenizer.decode(list(request.prefix), skip_special_tokens=False)
        said = [token for letter in self.script(text) for token in POLICY.encode(letter)[:1]]
        ids = [*said, POLICY.tokenizer.eos_token_id]
        return [
            Continuation([*ids], [-0.5] * len(ids), [-0.5] * len(ids), [0] * len(ids), "stop") for _ in request.seeds
        ]


def calls_twice(text):
    turn = text.count("<|im_start|>tool")
    call = '<tool_call>\n{"name": "times", "arguments": {"a":%d,  "b": 3}}\n</tool_call>'
    return f"Let me see. {call % (8 * 3**turn)}" if turn < 2 else "It is 72."


async def uses_tools(client, model, messages):
    """The loop of OpenAI's guide."""
    while True:
        reply = await client.chat.completions.create(model=model, messages=messages, tools=TOOLS)
        message = reply.choices[0].message
        messages.append(message)
        if not message.tool_calls:
            return message.content
        for call in message.tool_calls:
            given = json.loads(call.function.arguments)
            result = str(given["a"] * given["b"])
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})


def test_tools_are_called_and_the_history_is_one_path():
    engine = Scripted(calls_twice)
    seen = []

    async def grader(task, leaves, context):
        seen.extend(leaf.completion for leaf in leaves)
        return [Grade(1.0) for _ in leaves]

    (leaf,) = one_tree(uses_tools, engine=engine, grader=grader, sampling=LONGER).trajectories
    assert seen == ["It is 72."]
    assert [node.origin for node in leaf.path()] == [Origin.PROMPT, *[Origin.POLICY, Origin.TOOL] * 2, Origin.POLICY]
    assert [node.text for node in leaf.path() if node.origin is Origin.TOOL][1].count("72") == 1
    for earlier, later in zip(engine.prompts, engine.prompts[1:], strict=False):
        assert later[: len(earlier)] == earlier, "token for token"
    assert engine.prompts[2] == leaf.path_tokens()[: len(engine.prompts[2])]


async def uses_responses(client, model, prompt):
    """The loop of OpenAI's guide to the responses API."""
    items = [{"role": "user", "content": prompt}]
    tools = [{"type": "function", **TOOLS[0]["function"]}]
    while True:
        response = await client.responses.create(model=model, input=items, tools=tools)
        items += response.output
        calls = [item for item in response.output if item.type == "function_call"]
        if not calls:
            return response.output_text
        for call in calls:
            given = json.loads(call.arguments)
            result = str(given["a"] * given["b"])
            items.append({"type": "function_call_output", "call_id": call.call_id, "output": result})


def test_the_responses_api_asks_the_same_and_gets_the_same():
    ways = [one_tree(agent, engine=Scripted(calls_twice), sampling=LONGER) for agent in (uses_tools, uses_responses)]
    chat, responses = [[node.tokens for node in tree.nodes()] for tree in ways]
    assert chat == responses, "the history is one path, token for token"


def test_a_streamed_response_is_the_response():
    async def agent(client, model, prompt):
        async with client.responses.stream(model=model, input=prompt, max_output_tokens=6) as stream:
            deltas = [event.delta async for event in stream if event.type == "response.output_text.delta"]
            texts.append(("".join(deltas), (await stream.get_final_response()).output_text))
        return 1.0

    texts = []
    leaf = one_tree(agent, engine=Scripted(lambda text: "It is 72."), sampling=LONGER).trajectories[0]
    assert texts == [(leaf.text, leaf.text)] == [("It is 72.", "It is 72.")]
    assert drawn(trees_of(uses_responses)[1]) == drawn(trees_of(uses_responses)[1])


async def many_at_once(client, model, messages):
    """Requests at once, a stream, several choices."""
    one = client.chat.completions.create(model=model, messages=messages, max_tokens=6)
    two = client.chat.completions.create(
        model=model, messages=messages, max_tokens=6, n=2, logprobs=True, top_logprobs=1
    )
    first, second = await asyncio.gather(one, two)
    stream = await client.chat.completions.create(model=model, messages=messages, max_tokens=6, stream=True)
    text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices])
    assert len(second.choices) == 2
    assert second.choices[1].logprobs.content[0].top_logprobs
    return float(len(text) + len(first.choices[0].message.content or ""))


def test_an_agent_without_a_socket_gives_the_same_bits_every_time():
    first, again = drawn(trees_of(many_at_once)[1]), drawn(trees_of(many_at_once)[1])
    assert first == again
    assert [len(leaf.episode) for leaf in leaves_of(trees_of(many_at_once)[1])] == [4] * 6


def blocking(client, model, messages):
    return client.chat.completions.create(model=model, messages=messages, max_tokens=6).choices[0].message.content


async def over_a_socket(base_url, api_key, messages):
    return (await ask(base_url, api_key, messages, max_tokens=6))["content"]


async def without(client, model, messages):
    return (
        (await client.chat.completions.create(model=model, messages=messages, max_tokens=6)).choices[0].message.content
    )


def test_it_does_not_matter_how_an_agent_gets_there():
    ways = [drawn(trees_of(agent)[1]) for agent in (blocking, over_a_socket, without)]
    assert ways[0] == ways[1] == ways[2]


def test_what_the_client_raises_is_not_retried():
    async def agent(client, model, messages):
        for wrong in ({"n": 0}, {"messages": []}):
            with pytest.raises(openai.BadRequestError):
                await client.chat.completions.create(**{"model": model, "messages": messages, **wrong})
        await client.chat.completions.create(model=model, messages=messages, max_tokens=3)
        with pytest.raises(openai.RateLimitError, match="max_requests"):
            await client.chat.completions.create(model=model, messages=messages)
        return 1.0

    rollout, trees = trees_of(agent, max_requests=1)
    assert rollout.metrics(trees) | {"refused": 18, "failed": 0, "requests": 1.0} == rollout.metrics(trees)


def test_a_client_is_of_its_own_episode():
    async def agent(client, model, messages):
        assert (await client.models.list()).data[0].id == "policy"
        kept.append(client)
        return 1.0

    kept = []
    trees_of(agent)
    assert len({client.api_key for client in kept}) == 6
    assert Agent(function=agent).code()[0].endswith(":agent_agent")
