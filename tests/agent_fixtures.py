"""Agents for tests, and the small models that they ask."""

import json
import urllib.request

import httpx2
import torch
from chat_templates import CHATML, QWEN3, chat_tokenizer
from tiny_models import plain_model, policy_like

from lyceum.core.forest import build_forest
from lyceum.core.types import Grade, Origin, Sampling, Task
from lyceum.engine.constraint.regex import RegexConstraint
from lyceum.engine.embedded import EmbeddedEngine
from lyceum.learner.local import LocalConfig
from lyceum.models.load import ModelSettings, load_policy
from lyceum.reward.base import allow_code
from lyceum.rollout.agent import Agent
from lyceum.run.trees import read_trees
from lyceum.runtime.in_process import InProcess
from lyceum.utils.aio import run_async

TASKS = [Task(f"t{i}", ({"role": "user", "content": text},)) for i, text in enumerate(("What is 8*3?", "And 37+8?"))]
ENDS = tuple(range(5, 330, 6))
"""Tokens that end a turn of a random model: one in six."""
SAMPLING = Sampling(max_completion_tokens=60, temperature=0.8, stop_token_ids=ENDS)


def policy_of(template):
    tokenizer = chat_tokenizer(template)
    vocabulary = {"vocab_size": len(tokenizer), "eos_token_id": tokenizer.eos_token_id, "max_position_embeddings": 1024}
    return policy_like(plain_model("qwen3", spread=0.15, **vocabulary), tokenizer)


POLICIES = {"qwen3": policy_of(QWEN3), "smollm2": policy_of(CHATML)}
POLICY = POLICIES["smollm2"]


async def by_length(task, leaves, context):
    return [Grade(float(len(leaf.completion) % 2)) for leaf in leaves]


def trees_of(agent=None, *, policy=POLICY, grader=by_length, rollout=None, tasks=TASKS, engine=None, **settings):
    """The rollout, by default of three episodes of this agent, and its trees of the tasks."""
    if rollout is None:
        rollout = Agent(**{"function": agent, "samples": 3, "sampling": SAMPLING, **settings})
    with allow_code():
        built = rollout.build()
    runtime = InProcess(policy, engine or EmbeddedEngine(policy), grader, seed=3)
    return rollout, run_async(runtime.run(tasks, built, key=0))


def one_tree(agent, **settings):
    """The tree of one episode of one task."""
    return trees_of(agent, tasks=TASKS[:1], samples=1, **settings)[1][0]


def leaves_of(trees):
    return [leaf for tree in trees for leaf in tree.trajectories]


def drawn(trees):
    """What the policy wrote, the log-probabilities to the last bit, in the order of trees and leaves."""
    return [
        [(node.address, node.tokens, node.behaviour_logprob) for node in each.path() if node.origin is Origin.POLICY]
        for leaf in leaves_of(trees)
        for each in leaf.episode
    ]


async def post(base_url, api_key, body, *, path="/chat/completions", headers=None):
    """Status and JSON of a request whose body is a value, or bytes."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    given = {"authorization": f"Bearer {api_key}"} if headers is None else headers
    async with httpx2.AsyncClient(verify=False) as client:  # reading certificates takes longer than the rest
        reply = await client.post(f"{base_url}{path}", content=content, headers=given, timeout=60)
    return reply.status_code, reply.json()


async def ask(base_url, api_key, messages, **more):
    """The message that an async client of no framework gets."""
    status, reply = await post(base_url, api_key, {"model": "policy", "messages": messages, **more})
    assert status == 200, reply
    return reply["choices"][0]["message"]


async def three_turns(base_url, api_key, messages):
    """Asks three times, each time with the whole history and what a tool answered."""
    for turn in range(3):
        said = await ask(base_url, api_key, messages, max_tokens=8)
        messages += [said, {"role": "tool", "tool_call_id": "x", "content": f"result {turn}"}]
    return len(said["content"] or "") % 2


def one_reply(base_url, api_key, messages):
    """Asks once; a function that blocks."""
    body = json.dumps({"messages": messages}).encode()
    request = urllib.request.Request(f"{base_url}/chat/completions", body, {"Authorization": f"Bearer {api_key}"})
    with urllib.request.urlopen(request) as reply:
        return json.load(reply)["choices"][0]["message"]["content"]


def model_folder(folder):
    """The folder, with a model of random weights that has Qwen3's template and room for long requests."""
    tokenizer = chat_tokenizer(QWEN3)
    vocabulary = {"vocab_size": len(tokenizer), "eos_token_id": tokenizer.eos_token_id}
    plain_model("qwen3", spread=0.15, **vocabulary, max_position_embeddings=32768).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def trained_trees(run, model, constraint):
    """The first step's trees of a run, as trees and as a forest, and how far its log-probabilities are from those that
    the learner computes. All that was sampled is trained."""
    policy = load_policy(ModelSettings(path=str(model)))
    trees = [group.tree for group in read_trees(sorted(run.glob("trees/*"))[0]).groups]
    forest = build_forest(trees, temperature=1.0, constraint=RegexConstraint(**constraint).build(policy))
    of_policy, rows = forest.origin == int(Origin.POLICY), forest.rows()
    written = [(tree, node) for tree in trees for node in tree.nodes() if node.origin is Origin.POLICY]
    paths = [(tree.task.id, node.path_tokens(), len(node.tokens)) for tree, node in written]
    sampled = {(task, *path[: len(path) - end]) for task, path, number in paths for end in range(number)}
    assert of_policy.sum() == len(sampled), "each token once, where several samples have it"
    assert torch.equal(forest.trainable(rows), rows.gather(of_policy.long()).bool()), "all that was sampled is trained"
    learner = LocalConfig().build(policy, total_steps=1, needs=frozenset({"old_logprob"}))
    learned = learner.annotate(forest, frozenset({"old_logprob"})).columns["old_logprob"]
    gap = float((learned[of_policy] - forest.behaviour_logprob[of_policy]).abs().max())
    assert gap < 3e-5
    return trees, forest, gap
