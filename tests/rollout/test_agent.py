"""Agents that know nothing of the run: what they are answered is trained, whatever they do."""

import asyncio
import sys
import time

import pytest
import torch
from agent_fixtures import (
    POLICIES,
    POLICY,
    TASKS,
    ask,
    drawn,
    leaves_of,
    one_reply,
    one_tree,
    post,
    three_turns,
    trees_of,
)
from ended_processes import has_ended

from lyceum.core.forest import build_forest
from lyceum.core.types import Grade, Origin
from lyceum.engine.embedded import EmbeddedEngine
from lyceum.learner.local import LocalConfig
from lyceum.reward.base import allow_code
from lyceum.rollout._program import run_program
from lyceum.rollout.agent import Agent
from lyceum.rollout.flat import Flat
from lyceum.utils.errors import Diverged, RecipeError

# What is trained ---------------------------------------------------------------------------------------------------


def test_an_agent_that_asks_once_draws_what_independent_samples_draw():
    rollout, trees = trees_of(one_reply)
    _, flat = trees_of(rollout=Flat(samples=3, sampling=rollout.sampling))
    assert [leaf.tokens for leaf in leaves_of(trees)] == [leaf.tokens for leaf in leaves_of(flat)]
    assert [leaf.address for leaf in leaves_of(trees)] == [leaf.address for leaf in leaves_of(flat)]
    assert all(leaf.grade.outcome == len(leaf.completion) % 2 for leaf in leaves_of(trees)), "graded by its text"


def test_a_resent_history_is_one_path_and_nothing_is_tokenised_again():
    rollout, trees = trees_of(three_turns)
    for leaf in leaves_of(trees):
        origins = [node.origin for node in leaf.path()]
        assert origins == [Origin.PROMPT, *[Origin.POLICY, Origin.TOOL] * 2, Origin.POLICY]
        assert leaf.grade.outcome in (0.0, 1.0)
    assert rollout.metrics(trees) == {
        "requests": 3.0, "leaves": 1.0, "refused": 0, "overridden": 0, "vanished": 0, "unknown": 0, "failed": 0,
        "late": 0, "cut": 0, "silent": 0,
    }  # fmt: skip


async def rewrites(base_url, api_key, messages):
    """Keeps of its history what it likes: each request begins with another line."""
    for turn in range(3):
        said = await ask(base_url, api_key, [{"role": "system", "content": f"Turn {turn}."}, *messages], max_tokens=8)
        messages += [{"role": "assistant", "content": f"I said {said['content']}"}, {"role": "user", "content": "On."}]
    return 1.0


@pytest.mark.parametrize("agent", [three_turns, rewrites])
@pytest.mark.parametrize("name", POLICIES)
def test_what_is_sampled_through_an_agent_is_what_is_learned_token_by_token(name, agent):
    policy = POLICIES[name]
    _, trees = trees_of(agent, policy=policy)
    assert {len(leaf.episode) for leaf in leaves_of(trees)} == {1 if agent is three_turns else 3}
    forest = build_forest(trees, temperature=0.8)
    of_policy = forest.origin == int(Origin.POLICY)
    assert of_policy.sum() == sum(len(n.tokens) for tree in trees for n in tree.nodes() if n.origin is Origin.POLICY)
    for layout in ("tree", "rows"):
        learner = LocalConfig(layout=layout).build(policy, total_steps=1, needs=frozenset({"old_logprob"}))
        learned = learner.annotate(forest, frozenset({"old_logprob"})).columns["old_logprob"]
        torch.testing.assert_close(learned[of_policy], forest.behaviour_logprob[of_policy], atol=3e-5, rtol=1e-5)
    rows = forest.rows()
    assert torch.equal(forest.trainable(rows), rows.gather(of_policy.long()).bool()), "all of it, and nothing else"


@pytest.mark.parametrize("agent", [three_turns, rewrites])
def test_a_run_is_the_same_run_however_long_the_agents_tools_take(agent):
    async def slow(base_url, api_key, messages, seed):
        await asyncio.sleep(seed % 7 * 0.01)
        return await agent(base_url, api_key, messages)

    assert drawn(trees_of(agent)[1]) == drawn(trees_of(slow)[1])


def test_an_agent_that_is_not_waited_for_draws_the_same_tokens():
    async def slow(base_url, api_key, messages, seed):
        await asyncio.sleep(seed % 7 * 0.01)
        return await three_turns(base_url, api_key, messages)

    free = drawn(trees_of(slow, waits=False)[1])
    assert [[tokens for _, tokens, _ in of] for of in drawn(trees_of(three_turns)[1])] == [
        [tokens for _, tokens, _ in of] for of in free
    ]


# Results -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("result", "outcome", "correct", "graded"),
    [
        (0.25, 0.25, None, None),
        (True, 1.0, True, None),
        ({"reward": 2, "correct": True, "steps": 3}, 2.0, True, None),
        ("its text", 8.0, None, "its text"),
        ({"role": "assistant", "content": "a message"}, 9.0, None, "a message"),
        ([{"role": "user", "content": "?"}, {"role": "assistant", "content": "last"}], 4.0, None, "last"),
    ],
)
def test_a_number_is_the_reward_and_a_text_is_graded(result, outcome, correct, graded):
    seen = []

    async def grader(task, leaves, context):
        seen.extend(leaf.completion for leaf in leaves)
        return [Grade(float(len(leaf.completion)), steps=((0, 1, 1.0),)) for leaf in leaves]

    async def agent(base_url, api_key, messages):
        await ask(base_url, api_key, messages)
        return result

    (leaf,) = one_tree(agent, grader=grader).trajectories
    assert (leaf.grade.outcome, leaf.grade.correct) == (outcome, correct)
    assert leaf.grade.steps == (), "which would be places in the model's own text"
    assert seen == ([] if graded is None else [graded])


def test_without_a_result_the_last_reply_is_graded():
    async def agent(base_url, api_key, messages):
        await ask(base_url, api_key, messages)

    (leaf,) = one_tree(agent).trajectories
    assert leaf.grade.outcome == len(leaf.completion) % 2


# Failures ----------------------------------------------------------------------------------------------------------


async def raises(base_url, api_key, messages):
    await ask(base_url, api_key, messages)
    raise KeyError("no such tool")


async def hangs(base_url, api_key, messages):
    await ask(base_url, api_key, messages)
    await asyncio.sleep(100)


def hangs_in_a_thread(base_url, api_key, messages):
    one_reply(base_url, api_key, messages)
    time.sleep(100)


async def exits(base_url, api_key, messages):
    await ask(base_url, api_key, messages)
    sys.exit(0)


async def cancels(base_url, api_key, messages):
    await ask(base_url, api_key, messages)
    raise asyncio.CancelledError


async def returns_a_set(base_url, api_key, messages):
    await ask(base_url, api_key, messages)
    return {1, 2}


async def times_out_by_itself(base_url, api_key, messages):
    await ask(base_url, api_key, messages)
    async with asyncio.timeout(0.01):
        await asyncio.sleep(100)


class Quits(BaseException):
    """No ``Exception``: most code lets it pass."""


async def quits(base_url, api_key, messages):
    await ask(base_url, api_key, messages)
    raise Quits("for today")


def interrupts_in_a_thread(base_url, api_key, messages):
    one_reply(base_url, api_key, messages)
    raise KeyboardInterrupt


LATE = "agent: no result within 0.5 seconds of its own (timeout_seconds)"
FAILURES = [
    (raises, "failed", "agent: KeyError: 'no such tool'"),
    (hangs, "late", LATE),
    (hangs_in_a_thread, "late", LATE),
    (exits, "failed", "agent: it called sys.exit(0)"),
    (cancels, "failed", "agent: it was cancelled, and not by the run"),
    (times_out_by_itself, "failed", "agent: TimeoutError:"),
    (quits, "failed", "agent: Quits: for today"),
    (interrupts_in_a_thread, "failed", "agent: RuntimeError: KeyboardInterrupt"),
    (returns_a_set, "failed", "agent: TypeError: the agent returned {1, 2} "),
]


@pytest.mark.parametrize(("agent", "counted", "reason"), FAILURES, ids=lambda value: getattr(value, "__name__", None))
def test_an_agent_that_fails_is_ungraded_counted_and_named(agent, counted, reason):
    seconds = 0.5 if counted == "late" else 60
    rollout, trees = trees_of(agent, timeout_seconds=seconds)
    for leaf in leaves_of(trees):
        assert leaf.grade.outcome is None
        assert leaf.grade.reason.startswith(reason)
    metrics = rollout.metrics(trees)
    assert metrics[counted] == 6 == metrics["failed"] + metrics["late"]
    if agent is raises:
        assert 'raise KeyError("no such tool")' in leaf.grade.details
    _, trees = trees_of(agent, timeout_seconds=seconds, failed_reward=-1.0, samples=1)
    assert {leaf.grade.outcome for leaf in leaves_of(trees)} == {-1.0}


class SlowEngine(EmbeddedEngine):
    async def extend(self, request):
        await asyncio.sleep(0.5)
        return await super().extend(request)


def test_the_time_that_the_model_takes_is_not_the_agents():
    _, trees = trees_of(three_turns, timeout_seconds=1, engine=SlowEngine(POLICY), samples=1)
    assert [leaf.stats["late"] for leaf in leaves_of(trees)] == [0, 0]


@pytest.mark.parametrize("fails", [False, True])
def test_an_agent_that_never_asks_is_ungraded_and_trains_nothing(fails):
    async def agent(task):
        if fails:
            raise ValueError(f"no idea of {task.id}")
        return 1.0

    rollout, trees = trees_of(agent)
    assert rollout.metrics(trees)["silent"] == 6
    reason = "agent: ValueError: no idea of t0" if fails else "agent: it ended without asking the model"
    assert trees[0].trajectories[0].grade.reason == reason
    assert build_forest(trees).n_rows == 0


def test_an_agent_that_asks_endlessly_is_cut_and_graded_as_it_stands():
    async def agent(base_url, api_key, messages):
        while True:
            said = await ask(base_url, api_key, messages, max_tokens=2)
            messages += [said, {"role": "user", "content": "And?"}]

    rollout, trees = trees_of(agent, max_requests=4)
    assert rollout.metrics(trees) | {"requests": 4.0, "cut": 6, "refused": 6, "failed": 0} == rollout.metrics(trees)
    assert {leaf.finish for leaf in leaves_of(trees)} == {"length"}
    assert all(leaf.grade.outcome is not None for leaf in leaves_of(trees))
    rollout, trees = trees_of(agent, max_requests=1000)
    assert rollout.metrics(trees)["cut"] == 6, "at its tokens"
    assert max(leaf.policy_tokens for leaf in leaves_of(trees)) <= 60


def test_an_agent_that_does_not_take_no_for_an_answer_is_ended():
    async def agent(base_url, api_key, messages):
        while True:
            try:
                await ask(base_url, api_key, messages)
            except AssertionError:
                continue

    began = time.monotonic()
    rollout, trees = trees_of(agent, max_requests=2, samples=1)
    assert rollout.metrics(trees) | {"requests": 2.0, "refused": 200, "cut": 2} == rollout.metrics(trees)
    assert time.monotonic() - began < 60


def test_requests_without_the_key_of_an_episode_under_way_are_refused_and_counted():
    ended = []

    async def agent(base_url, api_key, messages):
        body = {"messages": messages}
        for headers in ({}, {"authorization": "Bearer sk-guessed"}, {"authorization": f"Basic {api_key}"}):
            assert (await post(base_url, "", body, headers=headers))[0] == 401
        if ended:
            assert (await post(base_url, ended[-1], body))[0] == 401
        await ask(base_url, api_key, messages, max_tokens=2)
        ended.append(api_key)
        return 1.0

    rollout, trees = trees_of(agent, samples=2, concurrency=1, tasks=TASKS[:1])
    assert rollout.metrics(trees) | {"unknown": 7, "refused": 0, "requests": 1.0} == rollout.metrics(trees)


def test_requests_after_the_last_episode_has_ended_are_told(caplog):
    place = []

    async def agent(base_url, api_key, messages):
        place[:] = base_url, api_key
        await ask(base_url, api_key, messages, max_tokens=2)
        return "done"  # graded when the episode has ended

    async def late(task, leaves, context):
        base_url, api_key = place
        for _ in range(3):
            assert (await post(base_url, api_key, {"messages": []}))[0] == 401
        return [Grade(1.0) for _ in leaves]

    rollout, trees = trees_of(agent, samples=1, tasks=TASKS[:1], grader=late)
    assert rollout.metrics(trees)["unknown"] == 0
    assert [record.getMessage() for record in caplog.records if "3 requests" in record.getMessage()] == [
        "3 requests came when no episode was under way any more; refused"
    ]


def test_a_flood_with_no_episodes_key_is_counted_whole_and_one_with_its_own_ends_the_episode():
    sent = []

    async def agent(base_url, api_key, messages):
        for _ in range(150):  # more than the 100 refusals that end an episode: these are not the episode's own
            assert (await post(base_url, "sk-guessed", {"messages": messages}))[0] == 401
        await ask(base_url, api_key, messages, max_tokens=2)
        while len(sent) < 10_000:
            sent.append((await post(base_url, api_key, {"messages": messages}))[0])
        await post(base_url, "sk-guessed", {"messages": messages})  # never sent, so that unknown stays 150

    rollout, trees = trees_of(agent, samples=1, max_requests=1, tasks=TASKS[:1])
    assert rollout.metrics(trees) | {"unknown": 150, "refused": 100, "requests": 1.0, "cut": 1} == rollout.metrics(
        trees
    )
    assert 99 <= len(sent) <= 100


class AskedEngine(EmbeddedEngine):
    """Says when so many requests have reached it, none of which it has answered yet."""

    def __init__(self, policy, requests):
        super().__init__(policy)
        self.missing, self.asked = requests, asyncio.Event()

    async def extend(self, request):
        self.missing -= 1
        if not self.missing:
            self.asked.set()
        return await super().extend(request)


def test_a_task_is_not_held_up_by_what_another_ones_agent_leaves():
    engine = AskedEngine(POLICY, requests=6)

    async def agent(base_url, api_key, messages, task):
        asking = asyncio.ensure_future(ask(base_url, api_key, messages))
        if task.id == "t0":
            await engine.asked.wait()
            return 1.0  # and nobody hears the reply
        await asking
        return 1.0

    rollout, trees = trees_of(agent, engine=engine)
    assert [leaf.stats["silent"] for leaf in leaves_of(trees)] == [1] * 3 + [0] * 3
    assert rollout.metrics(trees)["failed"] == 0


class BrokenEngine(EmbeddedEngine):
    async def extend(self, request):
        raise Diverged("the model's logits are not finite")


@pytest.mark.parametrize("agent", [three_turns, one_reply])
def test_an_error_of_the_run_ends_it_whatever_the_agent_makes_of_it(agent):
    with pytest.raises(Diverged, match="logits are not finite"):
        trees_of(agent, engine=BrokenEngine(POLICY))


def test_a_reward_that_is_no_finite_number_is_none():
    async def agent(base_url, api_key, messages):
        await ask(base_url, api_key, messages, max_tokens=2)
        return float("nan")

    _, trees = trees_of(agent, samples=1)
    assert {leaf.grade.reason for leaf in leaves_of(trees)} == {
        "agent: ValueError: the agent returned nan; allowed: a finite number"
    }


# Programs ----------------------------------------------------------------------------------------------------------

PROGRAM = """
import json, os, sys, urllib.request
task = json.load(sys.stdin)
url, key = os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"]
body = json.dumps({"model": os.environ["OPENAI_MODEL"], "messages": task["messages"]}).encode()
request = urllib.request.Request(url + "/chat/completions", body, {"Authorization": "Bearer " + key})
said = json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"]
"""


def program(tmp_path, ends):
    file = tmp_path / "agent.py"
    file.write_text(PROGRAM + ends)
    return Agent(program=[sys.executable, str(file), "{prompt}"], samples=2, sampling=Agent(function="a.py:b").sampling)


def test_a_program_is_asked_by_its_environment_and_prints_its_result(tmp_path):
    rollout = program(tmp_path, "print(sys.argv[1])\nprint(json.dumps({'reward': len(task['prompt'])}))")
    _, trees = trees_of(rollout=rollout)
    assert [leaf.grade.outcome for leaf in leaves_of(trees)] == [12, 12, 9, 9]
    rollout = program(tmp_path, "print(sys.argv[1])")

    async def grader(task, leaves, context):
        return [Grade(float(leaf.completion == task.messages[0]["content"])) for leaf in leaves]

    _, trees = trees_of(rollout=rollout, grader=grader)
    assert [leaf.grade.outcome for leaf in leaves_of(trees)] == [1.0] * 4


def test_a_program_that_fails_says_its_last_line(tmp_path):
    _, trees = trees_of(rollout=program(tmp_path, "raise ValueError('not today')"))
    for leaf in leaves_of(trees):
        assert leaf.grade.reason == "agent: it ended with status 1: ValueError: not today"
        assert "Traceback" in leaf.grade.details
    _, trees = trees_of(rollout=Agent(program="/no/such/program", samples=1))
    assert "No such file" in leaves_of(trees)[0].grade.reason


def test_a_program_that_hangs_is_ended():
    rollout = Agent(program="sleep 100", samples=1, timeout_seconds=0.2)
    _, trees = trees_of(rollout=rollout, tasks=TASKS[:1])
    assert leaves_of(trees)[0].grade.reason.startswith("agent: no result within 0.2 seconds")


def test_a_program_is_ended_with_its_children(tmp_path):
    pid = tmp_path / "pid"
    command = ["sh", "-c", f"sleep 100 & echo $! > {pid}.new; mv {pid}.new {pid}; wait"]

    async def ended_once_it_has_a_child():
        running = asyncio.ensure_future(run_program(command, b"", {}))
        while not pid.exists():
            await asyncio.sleep(0.01)
            assert not running.done()
        running.cancel()
        await asyncio.wait([running])

    asyncio.run(ended_once_it_has_a_child())
    child = int(pid.read_text())
    while not has_ended(child):  # signals arrive in their own time; one that does not meets the test's limit
        time.sleep(0.01)


# Settings ----------------------------------------------------------------------------------------------------------


def test_settings_that_cannot_work_are_refused():
    with pytest.raises(ValueError, match=r"got both; allowed: one, such as function=FILE\.py:NAME"):
        Agent(function="a.py:b", program=["c"])
    with pytest.raises(RecipeError, match=r"got neither; allowed: one, such as function=FILE\.py:NAME, or tasks"):
        Agent().check_tasks(TASKS)
    with pytest.raises(ValueError, match="No closing quotation"):
        Agent(program="python 'a.py")

    def agent(tsak):
        return 1.0

    with (
        allow_code(),
        pytest.raises(RecipeError, match=r"rollout.function: 'agent' asks for 'tsak' \(did you mean 'task'"),
    ):
        Agent(function=agent).check_tasks(TASKS)
    with pytest.raises(RecipeError, match="trust_code=true"):
        Agent(function="agent.py:solve").build()
