import asyncio
from dataclasses import replace

import pytest
import torch
from tiny_models import plain_model, policy_like

from lyceum.core.forest import build_forest
from lyceum.core.tree import Node
from lyceum.core.types import Grade, Origin, Sampling
from lyceum.credit.group import GroupRelative
from lyceum.curriculum.base import OnlyTested
from lyceum.engine.embedded import EmbeddedConfig
from lyceum.learner.local import LocalConfig
from lyceum.papers.guide_grpo.guidance_guide_grpo import HintedSamples, chosen
from lyceum.papers.guide_grpo.objective_guide_grpo import GuideLoss
from lyceum.rollout.flat import Flat
from lyceum.runtime.in_process import InProcess
from lyceum.tasks.chain import Chain, make_task
from lyceum.utils.aio import run_async
from lyceum.utils.errors import RecipeError

SOURCE = Chain().build("train", 0)
TASK = make_task("t", 37, [8, -2, 5])
BARE, HINTED = "37+8-2+5=", "37+8-2+5|45,43="


def leaf(outcome: float) -> Node:
    return Node(None, [1], Origin.POLICY, grade=Grade(outcome))


def rolled(right_under, *, samples=2, budget=None, guide=None, task=TASK):
    """One task's tree through the real engine; a trajectory is right by its prompt and its number alone."""
    policy = policy_like(plain_model())

    async def grade(task, leaves, context):
        return [Grade(float(right_under(node.path()[0].text, i))) for i, node in enumerate(leaves)]

    runtime = InProcess(policy, EmbeddedConfig().build(policy), grade, seed=3, max_tokens_per_task=budget)
    guide = (guide or HintedSamples()).build(SOURCE, seed=0)
    rollout = guide(Flat(samples=samples, sampling=Sampling(max_completion_tokens=4)).build())
    (tree,) = run_async(runtime.run([task], rollout, key=0))
    guide.observe([tree])
    return policy, tree, guide.metrics()


def test_a_task_that_is_only_tested_is_not_helped():
    _, tree, metrics = rolled(lambda prompt, i: prompt == HINTED, task=TASK.with_note(OnlyTested()))
    assert [root.text for root in tree.roots] == [BARE]
    assert metrics["groups/failed"] == metrics["groups/guided"] == 0


def test_a_group_that_fails_is_trained_on_what_was_written_under_the_hint_below_its_own_prompt():
    _, tree, metrics = rolled(lambda prompt, i: prompt == HINTED and i == 0)
    assert [root.text for root in tree.roots] == [BARE, HINTED]
    # Catches training under the hinted prompt: every trained path begins with the bare one.
    assert [node.path()[0].text for node in tree.trajectories] == [BARE, BARE]
    written = [node.tokens for node in tree.roots[1].children]
    assert [node.tokens for node in tree.trajectories] == written
    assert [grade.outcome for _, grade, _ in tree.graded_with_outcome()] == [1, 0]
    # Tokens of the failed rollouts were sampled too, and cost.
    assert tree.sampled_tokens == sum(
        len(node.tokens) for root in tree.roots for node in root.children if not node.grafted
    )
    counts = {"groups/failed": 1, "groups/guided": 1, "groups/rescued": 1, "without_hints/tasks": 0}
    counts["too_long/hints"] = 0
    assert metrics == counts | {"correct/guided": 0.5, "correct/unguided": 0}


def test_the_ratio_has_the_unhinted_policy_above_and_the_hinted_one_below():
    policy, tree, _ = rolled(lambda prompt, i: prompt == HINTED and i == 0)
    forest = build_forest([tree])
    learner = LocalConfig().build(policy, total_steps=1, needs=frozenset())
    objective, seen = GuideLoss(shaping="none").build(), []
    surrogate = objective.surrogate
    objective.surrogate = lambda batch: (seen.append(batch), surrogate(batch))[1]
    learner.step(forest, GroupRelative().build()(forest), objective)
    (batch,) = seen
    engine = EmbeddedConfig().build(policy_like(plain_model()))
    for row, node in enumerate(tree.trajectories):
        n = len(node.tokens)
        bare, hinted = (asyncio.run(engine.score([*root.tokens, *node.tokens]))[-n:] for root in tree.roots)
        mask = batch.mask[row]
        assert mask.sum() == n
        torch.testing.assert_close(batch.logprob[row][mask], torch.tensor(bare), rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(batch.behaviour_logprob[row][mask], torch.tensor(hinted), rtol=1e-4, atol=1e-4)
        assert batch.grafted[row].equal(mask)
        assert max(abs(b - h) for b, h in zip(bare, hinted, strict=True)) > 0.01, "the two prompts must tell apart"


def test_a_group_with_one_right_rollout_is_left_alone():
    _, tree, metrics = rolled(lambda prompt, i: i == 1)
    assert len(tree.roots) == 1
    assert metrics["groups/failed"] == metrics["groups/guided"] == 0
    assert metrics["correct/unguided"] == 0.5


def test_where_the_hint_does_not_help_the_failed_group_stays():
    _, tree, metrics = rolled(lambda prompt, i: False)
    # Catches hinted leaves that are trained because they finished: nothing was chosen from the second prompt.
    assert [node.path()[0] for node in tree.trajectories] == [tree.root, tree.root]
    assert not any(node.grafted for node in tree.trajectories)
    assert (metrics["groups/guided"], metrics["groups/rescued"], metrics["correct/guided"]) == (1, 0, 0)


def test_a_task_without_a_budget_left_is_not_sampled_again():
    _, tree, _ = rolled(lambda prompt, i: False, budget=1)
    assert len(tree.roots) == 1
    assert tree.metadata["guide-grpo"].outcome == "no budget"


def test_all_that_the_last_tier_says_is_shown_and_as_many_samples_as_asked():
    _, tree, _ = rolled(lambda prompt, i: prompt != BARE, guide=HintedSamples(tiers=("planning",), samples=3))
    assert tree.roots[1].text == "37+8-2+5:3="
    assert len(tree.trajectories) == 3


def test_what_each_way_of_keeping_trains():
    own, guided = [leaf(0), leaf(0), leaf(0)], [leaf(1), leaf(0), leaf(1)]
    assert chosen(own, guided, "group") == guided
    # Two right ones in the places of two failures: the wrong guided one goes, one failure stays.
    assert chosen(own, guided, "right") == [own[0], guided[0], guided[2]]
    assert chosen(own, guided, "both") == own + guided
    for keep in ("group", "right", "both"):
        assert chosen(own, [leaf(0)], keep) == own


def test_tasks_without_hints_of_the_tiers_are_refused_before_a_model_loads():
    with pytest.raises(RecipeError, match="oracle"):
        HintedSamples(tiers=("oracle",)).check_tasks(SOURCE)


def test_a_hint_for_which_the_context_has_no_room_is_left_out_and_counted():
    # The engine refuses a prompt that fills the context; a long hint is no reason to lose a run.
    task = replace(TASK, columns={**TASK.columns, "hints": [{"tier": "solution", "text": "9" * 5000}]})
    _, tree, metrics = rolled(lambda prompt, i: False, task=task)
    assert [root.text for root in tree.roots] == [BARE]
    assert (metrics["groups/failed"], metrics["groups/guided"], metrics["too_long/hints"]) == (1, 0, 1)
