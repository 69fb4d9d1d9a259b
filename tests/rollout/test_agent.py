"""Agents that know nothing of the run: what they are answered is trained, whatever they do."""

import asyncio
import json
import time
import urllib.error
import urllib.request

import httpx2
import pytest
import torch
from chat_templates import CHATML, QWEN3, chat_tokenizer
from tiny_models import plain_model, policy_like

from lyceum.core.forest import build_forest
from lyceum.core.settings import Composition
from lyceum.core.types import Grade, Origin, Sampling, Task
from lyceum.engine.embedded import EmbeddedEngine
from lyceum.learner.local import LocalConfig
from lyceum.reward.base import allow_code
from lyceum.rollout.agent import Agent
from lyceum.rollout.flat import Flat
from lyceum.runtime.in_process import InProcess
from lyceum.utils.aio import run_async
from lyceum.utils.errors import RecipeError

TASKS = [Task(f"t{i}", ({"role": "user", "content": text},)) for i, text in enumerate(("What is 8*3?", "And 37+8?"))]
ENDS = tuple(range(5, 330, 6))
"""Tokens that end a turn of a random model: one in six."""


def policy_of(template):
    tokenizer = chat_tokenizer(template)
    vocabulary = {"vocab_size": len(tokenizer), "eos_token_id": tokenizer.eos_token_id, "max_position_embeddings": 1024}
    return policy_like(plain_model("qwen3", spread=0.15, **vocabulary), tokenizer)


POLICIES = {"qwen3": policy_of(QWEN3), "smollm2": policy_of(CHATML)}
POLICY = POLICIES["smollm2"]


async def by_last_letter(task, leaves, context):
    return [Grade(float(len(leaf.completion) % 2)) for leaf in leaves]


def trees_of(agent, *, policy=POLICY, grader=by_last_letter, seed=3, rollout=None, tasks=TASKS, **settings):
    sampling = Sampling(max_completion_tokens=60, temperature=0.8, stop_token_ids=ENDS)
    settings = {"samples": 3, "sampling": sampling, **settings}
    rollout = rollout or Agent(function=agent, **settings)
    with allow_code():
        built = rollout.build()
    runtime = InProcess(policy, EmbeddedEngine(policy), grader, seed=seed)
    return rollout, run_async(runtime.run(tasks, built, key=0))


def leaves_of(trees):
    return [leaf for tree in trees for leaf in tree.trajectories]


def policy_tokens(trees):
    return [[(n.address, n.tokens, n.behaviour_logprob) for n in t.nodes() if n.origin is Origin.POLICY] for t in trees]


async def ask(base_url, api_key, messages, **more):
    """A request by an async client of no framework."""
    async with httpx2.AsyncClient() as client:
        body = {"model": "policy", "messages": messages, **more}
        headers = {"authorization": f"Bearer {api_key}"}
        reply = await client.post(f"{base_url}/chat/completions", json=body, headers=headers, timeout=60)
    reply.raise_for_status()
    return reply.json()["choices"][0]["message"]


async def three_turns(base_url, api_key, messages):
    """Asks three times, each time with the whole history and what a tool answered."""
    for turn in range(3):
        said = await ask(base_url, api_key, messages, max_tokens=8)
        messages += [said, {"role": "tool", "tool_call_id": "x", "content": f"result {turn}"}]
    return len(said["content"] or "") % 2


def one_reply(base_url, api_key, messages):
    """The same once, by a function that blocks."""
    body = json.dumps({"messages": messages}).encode()
    request = urllib.request.Request(f"{base_url}/chat/completions", body, {"Authorization": f"Bearer {api_key}"})
    with urllib.request.urlopen(request) as reply:
        return json.load(reply)["choices"][0]["message"]["content"]


# What is trained ---------------------------------------------------------------------------------------------------


def test_an_agent_that_asks_once_draws_what_independent_samples_draw():
    rollout, trees = trees_of(one_reply)
    _, flat = trees_of(None, rollout=Flat(samples=3, sampling=rollout.sampling))
    assert [leaf.tokens for leaf in leaves_of(trees)] == [leaf.tokens for leaf in leaves_of(flat)]
    assert [leaf.address for leaf in leaves_of(trees)] == [leaf.address for leaf in leaves_of(flat)]
    assert all(leaf.grade.outcome == len(leaf.completion.strip()) % 2 for leaf in leaves_of(trees)), "by its text"


def test_a_resent_history_is_one_path_and_nothing_is_tokenised_again():
    rollout, trees = trees_of(three_turns)
    for leaf in leaves_of(trees):
        origins = [node.origin for node in leaf.path()]
        assert origins == [Origin.PROMPT, *[Origin.POLICY, Origin.TOOL] * 2, Origin.POLICY]
        assert leaf.stats | {"requests": 3, "leaves": 1, "refused": 0, "failed": 0} == leaf.stats
        assert leaf.grade.outcome in (0.0, 1.0)
    assert rollout.metrics(trees) == {
        "requests": 3.0, "leaves": 1.0, "refused": 0, "overridden": 0, "vanished": 0, "failed": 0, "late": 0, "cut": 0,
        "silent": 0,
    }  # fmt: skip


@pytest.mark.parametrize("name", POLICIES)
def test_what_is_sampled_through_an_agent_is_what_is_learned_token_by_token(name):
    policy = POLICIES[name]
    rollout, trees = trees_of(three_turns, policy=policy)
    forest = build_forest(trees, temperature=0.8)
    drawn = forest.origin == int(Origin.POLICY)
    assert drawn.sum() == sum(len(n.tokens) for tree in trees for n in tree.nodes() if n.origin is Origin.POLICY)
    for layout in ("tree", "rows"):
        learner = LocalConfig(layout=layout).build(policy, total_steps=1, needs=frozenset({"old_logprob"}))
        learned = learner.annotate(forest, frozenset({"old_logprob"})).columns["old_logprob"]
        torch.testing.assert_close(learned[drawn], forest.behaviour_logprob[drawn], atol=3e-5, rtol=1e-5)
    rows = forest.rows()
    assert torch.equal(forest.trainable(rows), rows.gather(drawn.long()).bool()), (
        "all of it is trained, and nothing else"
    )
