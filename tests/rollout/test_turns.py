"""Turns: what an environment answers is context of what follows, and nothing else."""

import asyncio
import json
import sys
from itertools import pairwise
from typing import Any, Literal

import pytest
import torch
from chat_templates import CHATML, QWEN3, chat_tokenizer
from fake_task import NO_MODEL
from tiny_models import plain_model, policy_like

from lyceum.analysis.measure import Measurement
from lyceum.core.forest import build_forest
from lyceum.core.settings import Composition, EnvironmentSettings
from lyceum.core.types import Exchange, Grade, Observation, Origin, Sampling, Task
from lyceum.engine.embedded import EmbeddedEngine
from lyceum.learner.local import LocalConfig
from lyceum.papers.arpo.rollout_branching_turns import BranchingTurns
from lyceum.papers.rest_rl.curriculum_good_prefixes import GoodPrefixes
from lyceum.recipe.schema import load_recipe
from lyceum.reward.environment import EnvironmentReward
from lyceum.reward.pool import WorkerError
from lyceum.rollout.turns import Turns, exchanges
from lyceum.run.reader import read_recipe
from lyceum.run.trees import read_trees
from lyceum.runtime.in_process import InProcess
from lyceum.tasks.chain import Chain
from lyceum.training.train import train
from lyceum.utils.aio import run_async
from lyceum.utils.errors import RecipeError, RunError

TASKS = [Task(f"t{i}", ({"role": "user", "content": text},)) for i, text in enumerate(("What is 8*3?", "And 37+8?"))]
ENDS = tuple(range(5, 330, 6))
"""Tokens that end a turn of a random model: one in six."""


class Told(EnvironmentSettings):
    """Answers every turn with the same text, in the form that is asked for."""

    kind: Literal["test-told"] = "test-told"
    says: str = "24, twenty-four"
    role: Literal["tool", "user", "inline"] = "tool"

    @property
    def tools(self):
        return ({"name": "times"},) if self.role == "tool" else ()

    def build(self):
        return self

    def reset(self, task):
        return 0

    def replay(self, task, exchanges):
        return len(exchanges)

    async def step(self, state, turn, said, context) -> Observation[int]:
        if self.role == "inline":
            tokens = tuple(context.encode_after(turn.path_tokens(), self.says))
            return Observation(state + 1, tokens=tokens, reward=0.5, key=f"after {state + 1}", calls=1)
        return Observation(state + 1, ({"role": self.role, "content": self.says},), key=f"after {state + 1}", calls=1)


def policy_of(template: str):
    tokenizer = chat_tokenizer(template)
    vocabulary = {"vocab_size": len(tokenizer), "eos_token_id": tokenizer.eos_token_id, "max_position_embeddings": 1024}
    return policy_like(plain_model("qwen3", spread=0.15, **vocabulary), tokenizer)


POLICIES = {"qwen3": policy_of(QWEN3), "smollm2": policy_of(CHATML)}


def settings_of(role: str = "tool", *, says: str = "24, twenty-four", max_turns: int = 3, tokens: int = 40) -> Turns:
    sampling = Sampling(max_completion_tokens=tokens, temperature=0.8, stop_token_ids=ENDS)
    return Turns(samples=3, environment=Told(role=role, says=says, max_turns=max_turns), sampling=sampling)


async def all_right(task, leaves, context):
    return [Grade(float(i % 2)) for i, _ in enumerate(leaves)]


def trees_of(policy, settings: Turns, rollout=None, **more) -> list:
    runtime = InProcess(policy, EmbeddedEngine(policy), all_right, seed=3, tools=settings.tools, **more)
    return run_async(runtime.run(TASKS, rollout or settings.build(), key=0))


class Named(Told):
    """Names the state in which trajectories begin, too."""

    kind: Literal["test-named"] = "test-named"

    def key_of(self, state):
        return f"after {state}"


class Failing(Told):
    """Fails on about a quarter of the turns, in one of the ways in which environments do."""

    kind: Literal["test-failing"] = "test-failing"
    how: Literal["raises", "hangs", "none", "exits", "cancels", "worker"] = "raises"

    async def step(self, state, turn, said, context) -> Observation[int]:
        if turn.address % 4:
            return await super().step(state, turn, said, context)
        if self.how == "hangs":
            await asyncio.sleep(100)
        if self.how == "raises":
            raise RuntimeError("it broke")
        if self.how == "exits":
            sys.exit(0)
        if self.how == "cancels":
            raise asyncio.CancelledError
        if self.how == "worker":
            raise WorkerError("its process died")
        return None


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("raises", "environment 'test-failing': RuntimeError: it broke"),
        ("hangs", "environment 'test-failing': no answer within 0.05 seconds (step_timeout_seconds)"),
        ("exits", "environment 'test-failing': it called sys.exit(0)"),
        ("cancels", "environment 'test-failing': it was cancelled, and not by the run"),
        ("worker", "environment 'test-failing': its process died"),
    ],
)
def test_a_step_that_fails_leaves_its_trajectory_ungraded(how, reason):
    settings = settings_of().model_copy(update={"environment": Failing(how=how, step_timeout_seconds=0.05)})
    trees = trees_of(POLICIES["smollm2"], settings)
    leaves = [leaf for tree in trees for leaf in tree.trajectories]
    failed = [leaf for leaf in leaves if leaf.grade.outcome is None]
    assert 0 < len(failed) < len(leaves)
    assert settings.metrics(trees)["failed_steps"] == len(failed)
    assert {leaf.grade.reason for leaf in failed} == {reason}
    assert all(("it broke" in (leaf.grade.details or "")) == (how == "raises") for leaf in failed)


class Slow(Told):
    kind: Literal["test-slow"] = "test-slow"

    async def step(self, state, turn, said, context) -> Observation[int]:
        await asyncio.sleep(turn.address % 7 * 0.01)
        return await super().step(state, turn, said, context)


def test_the_engine_goes_on_where_an_environment_is_not_waited_for_and_draws_the_same_tokens():
    policy, drawn, steps = POLICIES["smollm2"], [], []
    for waits in (True, False):
        settings = settings_of().model_copy(update={"environment": Slow(max_turns=3), "waits": waits})
        assert settings.by_clock is not waits is not settings.independent().by_clock
        engine = EmbeddedEngine(policy)
        runtime = InProcess(policy, engine, all_right, seed=3, tools=settings.tools)
        trees = run_async(runtime.run(TASKS, settings.build(), key=0))
        drawn.append([leaf.path_tokens() for tree in trees for leaf in tree.trajectories])
        steps.append(engine.occupancy.steps)
    assert drawn[0] == drawn[1]
    assert steps[0] < steps[1], "in smaller batches"


class FailingToBegin(Told):
    """Has no state for one of the tasks."""

    kind: Literal["test-failing-to-begin"] = "test-failing-to-begin"
    how: Literal["raises", "exits"] = "raises"

    def reset(self, task):
        if task.id == TASKS[0].id:
            raise KeyError("no such level") if self.how == "raises" else SystemExit("no such level")
        return super().reset(task)


@pytest.mark.parametrize("rollout", [Turns, BranchingTurns])
@pytest.mark.parametrize("tokens", [40, 1])
def test_a_task_that_the_environment_cannot_begin_is_left_ungraded(rollout, tokens):
    own = settings_of(tokens=tokens)
    settings = rollout(samples=3, environment=FailingToBegin(), sampling=own.sampling)
    failed, *others = trees_of(POLICIES["smollm2"], settings)
    reasons = {leaf.grade.reason for leaf in failed.trajectories}
    assert reasons == {"environment 'test-failing-to-begin': KeyError: 'no such level'"}
    assert all("in reset" in leaf.grade.details for leaf in failed.trajectories)
    assert all(leaf.grade.outcome is not None for tree in others for leaf in tree.trajectories)
    assert settings.metrics([failed, *others])["failed_steps"] == len(failed.trajectories) == 3
    exits = rollout(samples=3, environment=FailingToBegin(how="exits"), sampling=own.sampling)
    failed, *_ = trees_of(POLICIES["smollm2"], exits)
    assert all("it called sys.exit" in leaf.grade.reason for leaf in failed.trajectories)


def test_a_step_that_returns_something_else_ends_the_run():
    settings = settings_of().model_copy(update={"environment": Failing(how="none")})
    with pytest.raises(RunError, match=r"environment 'test-failing': step returned None; allowed: .*Observation"):
        trees_of(POLICIES["smollm2"], settings)


def after_thoughts(policy, settings: Turns):
    """The same rollout where every answer begins with a thought that is given."""
    thought = "<think>\nwell, 8*3\n</think>\n\n"
    tokens = policy.tokenizer(thought, add_special_tokens=False)["input_ids"]

    async def rollout(context, start, n):
        return await settings.build()(context, start.add(tokens, Origin.PREFIX, thought), n)

    return rollout


@pytest.mark.parametrize("thinking", [False, True])
@pytest.mark.parametrize("role", ["tool", "user", "inline"])
@pytest.mark.parametrize("name", POLICIES)
def test_what_is_sampled_through_turns_is_what_is_learned_token_by_token(name, role, thinking):
    policy, settings = POLICIES[name], settings_of(role)
    trees = trees_of(policy, settings, after_thoughts(policy, settings) if thinking else None)
    assert settings.metrics(trees)["mean"] > 1.5
    forest = build_forest(trees, temperature=0.8)
    drawn = forest.origin == int(Origin.POLICY)
    assert drawn.sum() == sum(len(n.tokens) for leaf in all_nodes(trees) for n in leaf if n.origin is Origin.POLICY)
    for layout in ("tree", "rows"):
        config = LocalConfig(layout=layout)
        learner = config.build(policy, total_steps=1, needs=frozenset({"old_logprob"}))
        learned = learner.annotate(forest, frozenset({"old_logprob"})).columns["old_logprob"]
        torch.testing.assert_close(learned[drawn], forest.behaviour_logprob[drawn], atol=3e-5, rtol=1e-5)
    rows = forest.rows()
    assert not (forest.trainable(rows) & ~rows.gather(drawn.long()).bool()).any(), "nothing else is trained"


def all_nodes(trees) -> list[list]:
    """The nodes of each tree that are on the path of a trajectory."""
    return [list({id(n): n for leaf in tree.trajectories for n in leaf.path()}.values()) for tree in trees]


@pytest.mark.parametrize("name", POLICIES)
def test_a_conversation_is_what_the_template_writes(name):
    policy, settings = POLICIES[name], settings_of("tool")
    for tree in trees_of(policy, settings):
        for leaf in tree.trajectories:
            text = policy.tokenizer.decode(leaf.path_tokens())
            answers = sum(node.origin is Origin.TOOL for node in leaf.path())
            assert text.count("<|im_start|>assistant\n") == 1 + answers == leaf.stats["turn"]
            shown = "<tool_response>\n24, twenty-four\n</tool_response>" if name == "qwen3" else "tool\n24, twenty-four"
            assert text.count(shown) == answers
            assert ("<tools>" in text) == (name == "qwen3"), "told of the tools where the template has a place for them"
            assert "twenty-four" not in leaf.completion


def test_where_the_template_takes_thoughts_out_the_trajectory_goes_on_below_what_stands():
    policy, settings = POLICIES["qwen3"], settings_of("user").model_copy(update={"history": "template"})
    trees = trees_of(policy, settings, after_thoughts(policy, settings))
    metrics = settings.metrics(trees)
    assert metrics["rewritten"] > 0
    assert metrics["untrained"] == 0
    for tree in trees:
        for leaf in tree.trajectories:
            path = leaf.path()
            text = policy.tokenizer.decode(leaf.path_tokens())
            assert text.count("<think>") == (leaf.stats["turn"] == 1)
            # The first answer was left at its thought, which is the first thing after the prompt.
            assert [node.origin for node in path[:2]] == [
                Origin.PROMPT,
                Origin.PREFIX if len(path) == 3 else Origin.PROMPT,
            ]
    assert len({node.address for tree in trees for node in tree.nodes()}) == sum(1 for t in trees for _ in t.nodes())
    appended = POLICIES["smollm2"]
    assert settings.metrics(trees_of(appended, settings, after_thoughts(appended, settings)))["rewritten"] == 0


def test_turns_and_tokens_are_limited_and_only_the_policys_tokens_count():
    policy = POLICIES["smollm2"]
    for turns, tokens in ((1, 40), (2, 40), (9, 12)):
        settings = settings_of("inline", says="x" * 50, max_turns=turns, tokens=tokens)
        trees = trees_of(policy, settings)
        for leaf in (leaf for tree in trees for leaf in tree.trajectories):
            assert leaf.finish == "length", "the environment never ends it"
            assert leaf.policy_tokens <= tokens
            assert leaf.stats["turn"] <= turns
            assert leaf.stats["turn"] == turns or leaf.policy_tokens == tokens
        metrics = settings.metrics(trees)
        assert metrics["calls"] >= metrics["cut"] > 0 or tokens == 12
    budgeted = trees_of(policy, settings_of("inline", max_turns=9), max_tokens_per_task=30)
    assert all(tree.sampled_tokens <= 30 for tree in budgeted), "of which each trajectory has a third"


def test_the_models_context_ends_a_trajectory_before_an_answer_that_does_not_fit():
    policy = POLICIES["smollm2"]
    settings = settings_of("inline", says="8*3=24, " * 150, max_turns=9)
    for tree in trees_of(policy, settings):
        for leaf in tree.trajectories:
            assert leaf.origin is Origin.POLICY
            assert leaf.finish == "length"
            assert len(leaf.path_tokens()) <= policy.context_length


def test_where_a_trajectory_begins_is_named_where_the_environment_names_it():
    for environment, key in ((Named(max_turns=1), "after 0"), (Told(max_turns=1), None)):
        settings = settings_of().model_copy(update={"environment": environment})
        assert {tree.root.key for tree in trees_of(POLICIES["smollm2"], settings)} == {key}


def test_rewards_keys_and_counts_stand_on_the_nodes():
    settings = settings_of("inline", max_turns=2)
    trees = trees_of(POLICIES["smollm2"], settings)
    turned = [leaf for tree in trees for leaf in tree.trajectories if leaf.stats["turn"] == 2]
    assert turned
    for leaf in turned:
        _, first, answer, second = leaf.path()
        assert (first.reward, answer.key, answer.origin) == (0.5, "after 1", Origin.TOOL)
        assert first.stats["calls"] == 1
        assert exchanges(second) == ([Exchange(first.text, "24, twenty-four")], second.text)
    calls = sum(node.stats.get("calls", 0) for tree in trees for node in tree.nodes())
    assert settings.metrics(trees)["calls"] == calls


def test_what_turns_are_paid_is_a_reward():
    trees = trees_of(POLICIES["smollm2"], settings_of("inline", tokens=12))
    leaves = [leaf for tree in trees for leaf in tree.trajectories]
    chain = Chain().build("train", 0)
    grades = run_async(EnvironmentReward().build(chain)(TASKS[0], leaves, NO_MODEL))
    # Half a point for each turn that ended, other than by its length.
    assert [grade.outcome for grade in grades] == [
        0.5 * sum("calls" in n.stats for n in leaf.path()) for leaf in leaves
    ]
    assert len({grade.outcome for grade in grades}) > 1


def test_a_rollout_starts_below_turns_that_stand_with_the_state_that_they_lead_to():
    policy, settings = POLICIES["smollm2"], settings_of("inline", max_turns=3)

    async def again(context, start, n):
        leaves = await settings.build()(context, start, 1)
        path = leaves[0].path()
        if len(path) < 4:
            return leaves
        return [*leaves, *await settings.build()(context, path[2], 2)]

    trees = trees_of(policy, settings, again)
    resumed = [leaf for tree in trees for leaf in tree.trajectories[1:]]
    assert resumed
    for leaf in resumed:
        numbers = [node.stats["turn"] for node in leaf.path() if node.origin is Origin.POLICY]
        assert numbers == list(range(1, len(numbers) + 1))
        assert [n.key for n in leaf.path() if n.key] == [f"after {i + 1}" for i in range(len(numbers) - 1)]
        assert leaf.policy_tokens <= 40


def test_a_tree_is_the_same_alone_and_among_others():
    policy, settings = POLICIES["qwen3"], settings_of("tool")
    among = trees_of(policy, settings)
    runtime = InProcess(policy, EmbeddedEngine(policy), all_right, seed=3, tools=settings.tools)
    (alone,) = run_async(runtime.run(TASKS[1:], settings.build(), key=0))
    assert [n.tokens for n in alone.nodes()] == [n.tokens for n in among[1].nodes()]


def test_beginnings_of_completions_without_their_answers_are_refused():
    stage = Composition(rollout=settings_of(), curriculum=GoodPrefixes())
    assert "good-prefixes" in "\n".join(settings_of().conflicts(stage))


def test_traces_of_one_turn_are_not_made_of_several():
    with pytest.raises(RecipeError, match=r"rollout.kind: got 'turns', whose turns an environment answers"):
        load_recipe("bfs-prover", ["rollout={kind: turns}"])


TINY = ["steps=1", "tasks_per_step=3", "rollout.samples=4", "evaluate.n=0", "trees_every=1"]


def run(recipe: str, tmp_path, *keys: str, name: str = "run") -> tuple[dict[str, Any], Any, Any]:
    """The first step's metrics, its trees, and the run's folder."""
    path = train(load_recipe(recipe, [*TINY, f"output={tmp_path}", f"name={name}", *keys]))
    line = json.loads((path / "metrics.jsonl").read_text().splitlines()[0])
    (file,) = (path / "trees").iterdir()
    return line, read_trees(file).trees, path


def test_the_calculators_recipe_as_shipped_calls_it_and_what_it_answers_is_not_trained(tmp_path):
    line, trees, _ = run("calculator", tmp_path, "tasks.levels=[4]")
    assert line["rollout/turns/calls"] >= 3 * 4 * 3
    assert line["rollout/turns/mean"] > 3
    for leaf in (leaf for tree in trees for leaf in tree.trajectories):
        for said, told in pairwise(leaf.path()):
            if told.origin is Origin.TOOL and not told.text.startswith("error"):
                assert said.text.endswith("=")
                assert 0 <= int(told.text) < 100
    # Without it the model writes the results itself: other tokens are drawn and trained.
    _, plain, _ = run("calculator", tmp_path, "tasks.levels=[4]", "rollout={kind: flat, samples: 4}", name="plain")
    assert [n.tokens for tree in plain for n in tree.trajectories] != [
        n.tokens for tree in trees for n in tree.trajectories
    ]
    assert all("=" in leaf.completion for tree in plain for leaf in tree.trajectories)


def test_states_that_an_environment_names_are_what_gigpo_compares(tmp_path):
    # Judged steps are the turns here; those after the same number of calls with the same last result are compared.
    line, trees, _ = run("calculator", tmp_path, "tasks.levels=[6]", "credit={kind: gigpo, state: marked}")
    marked = [node.key for tree in trees for leaf in tree.trajectories for node in leaf.path() if node.key]
    assert len(set(marked)) < len(marked)
    assert 0 < line["credit/steps_compared"] <= line["credit/steps"]


def test_evaluations_take_the_same_turns(tmp_path):
    few = ["evaluate.n=2", "evaluate.samples=1", "evaluate.k=[1]", "evaluate.greedy=false", "tasks.levels=[8]"]
    _, _, path = run("calculator", tmp_path, *few)
    (example, _) = json.loads((path / "examples.json").read_text())[:2]
    assert example["before"]["completion"].count("=") > 4
    assert read_recipe(path)["evaluate"]["environment"] is None
    asked = Measurement.of(path, None, [], k=[1], n=1, samples=1, greedy=False, seed=0)
    assert asked.recipe.evaluation_rollout.environment.modulus == 100
    swapped = Measurement.of(path, None, ["environment.modulus=7"], k=[1], n=1, samples=1, greedy=False, seed=0)
    assert swapped.recipe.evaluation_rollout.environment.modulus == 7
