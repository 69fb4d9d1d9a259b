"""WebRL: new tasks from failed ones within the critic's bounds, advantages of turns, and the loss that fits them."""

import asyncio
import copy
import math
from dataclasses import replace

import pytest
import torch
from fake_task import roll
from guidance_fakes import RIGHT, WRONG, FakeContext, Source, ask, flat
from tiny_models import plain_model, policy_like

from lyceum.core.group import AGE
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Continuation, Grade, MarkedPath, Origin, Task
from lyceum.papers.webrl.credit_state_values import StateValues, mean_probability, numbered_turns, turn_advantages
from lyceum.papers.webrl.guidance_failed_tasks import FailedTasks, verdict_on
from lyceum.papers.webrl.objective_turn_log_ratio import TurnLogRatio, turn_loss
from lyceum.papers.webrl.reward_outcome_judge import OutcomeJudge
from lyceum.papers.webrl.tasks_chain_outcomes import ChainOutcomes, attempted
from lyceum.papers.webrl.value_phase_critic import PhaseCritic
from lyceum.utils.errors import RecipeError


class Writing(FakeContext):
    """A model that rewrites a task as ``writes``, one after another, and a critic that values prompts by ``values``."""

    def __init__(self, writes, values, grades, **how):
        super().__init__(grades, **how)
        self.writes, self.values, self.rewrote = writes, values, []

    async def ask(self, prefix, n, sampling, *, key):
        self.rewrote.append(self.decode(prefix))
        written = [[ord(letter) for letter in text] for text in self.writes]
        return [Continuation(ids, [-1.0] * len(ids), [], [0] * len(ids), "stop") for ids in written][:n]

    async def value(self, paths):
        return [self.values[self.decode(path.path_tokens())] for path in paths]


class Read(Source):
    """What begins with ``Q`` is a task."""

    def to_propose(self, task):
        return [{"role": "user", "content": f"like {task.messages[0]['content']}"}]

    def proposed(self, text, like):
        return ask(text) if text.startswith("Q") else "format"


def step(guide, context, question):
    tree = roll(guide(flat(4)), context, ask(question))
    guide.observe([tree])
    return tree, guide.metrics()


def test_a_failed_task_is_rewritten_and_the_critic_keeps_what_is_neither_easy_nor_hopeless():
    writes = ["nothing", "Qeasy", "Qhopeless", "Qfit", "Qlater"]
    values = {"Qeasy": 0.9, "Qhopeless": 0.01, "Qfit": 0.25, "Qlater": 0.5}
    grades = {"Qgood": [RIGHT], "Qbad": [WRONG], "Qfit": [RIGHT, WRONG]}
    context = Writing(writes, values, grades)
    guide = FailedTasks(attempts=5).build(Read(), seed=0)
    step(guide, context, "Qgood")
    assert guide.pool == {}, "it did not fail"
    _, metrics = step(guide, context, "Qbad")
    assert context.rewrote == []
    assert metrics["pool/failed"] == 1

    tree, metrics = step(guide, context, "Qnew")
    assert context.rewrote == ["like Qbad"]
    assert {leaf.root.text for leaf in tree.chosen} == {"Qfit"}, "the first that passes"
    assert (metrics["tasks/new"], metrics["tasks/written"], metrics["tasks/generation"]) == (1, 5, 1)
    assert [metrics[f"rejected/{why}"] for why in ("format", "easy", "hopeless")] == [1, 1, 1]
    # One of four succeeded, as the critic had said: 1/4; the new task failed, and joins the pool.
    assert (metrics["success/new"], metrics["success/predicted"], metrics["success/error"]) == (0.25, 0.25, 0.0)
    assert [(task.id, task.generation) for task in guide.pool.values()] == [("Qbad", 0), ("Qfit", 1)]

    restored = FailedTasks().build(Read(), seed=0)
    restored.load_state_dict(copy.deepcopy(guide.state_dict()))
    assert restored.pool == guide.pool


@pytest.mark.parametrize("how", [{"share": 0.0}, {"harder": 0.3}, {"easier": 0.2}])
def test_the_drawn_task_is_answered_where_nothing_passes(how):
    context = Writing(["Qfit"], {"Qfit": 0.25}, {"Qbad": [WRONG]})
    guide = FailedTasks(**how).build(Read(), seed=0)
    step(guide, context, "Qbad")
    tree, metrics = step(guide, context, "Qnew")
    assert {leaf.root.text for leaf in tree.chosen} == {"Qnew"}
    assert metrics["tasks/new"] == 0


def test_both_bounds_pass():
    said = [verdict_on(value, harder=0.05, easier=0.75) for value in (0.04, 0.05, 0.75, 0.76)]
    assert said == ["hopeless", "", "", "easy"]


def test_an_advantage_is_half_of_the_outcome_and_half_of_the_step():
    # Values 1/2, 3/4 of a trajectory that succeeds, 1/4 of one that fails in its only turn:
    # (1 - 1/2) / 2 + (3/4 - 1/2) / 2 = 3/8; (1 - 3/4) / 2 + (1 - 3/4) / 2 = 1/4; -1/4.
    value, outcome, row = torch.tensor([0.5, 0.75, 0.25]), torch.tensor([1.0, 1.0, 0.0]), torch.tensor([0, 0, 1])
    torch.testing.assert_close(turn_advantages(value, outcome, row, lam=0.5), torch.tensor([0.375, 0.25, -0.25]))
    torch.testing.assert_close(turn_advantages(value, outcome, row, lam=1.0), torch.tensor([0.5, 0.25, -0.25]))


def test_a_turns_probability_is_the_geometric_mean_of_its_tokens():
    mask = torch.tensor([[0, 1, 1, 0, 1]]).bool()
    number = numbered_turns(mask)
    assert number.tolist() == [[0, 1, 1, 0, 2]]
    logprob = torch.tensor([[9.0, 0.5, 0.125, 9.0, 0.9]]).log()
    torch.testing.assert_close(mean_probability(logprob, number, 2), torch.tensor([0.25, 0.9]))


@pytest.mark.parametrize(
    ("probability", "age", "kept"), [(0.7, 1, 2), (0.97, 1, 0), (0.3, 1, 0), (0.97, 0, 2)], ids=str
)
def test_of_recorded_turns_only_likely_and_uncertain_ones_are_learnt_again(forest_with_tool, probability, age, kept):
    # The first turn's values add up to 3/4, the second's is -1/2, the outcome is 1:
    # (1 - 3/4) / 2 + (-1/2 - 3/4) / 2 = -1/2, (1 + 1/2) / 2 + (1 + 1/2) / 2 = 3/2.
    forest = forest_with_tool
    tokens = torch.full((forest.n_tokens,), math.log(probability))
    forest = forest.with_columns(**{"old_logprob": tokens, AGE: torch.full((forest.n_tokens,), age)})
    credited = StateValues().build()(forest)
    found = [x for x in credited.advantage.flatten().tolist() if x]
    assert found == pytest.approx([-0.5, -0.5, 1.5, 1.5] if kept else [])
    assert credited.metrics["recorded/kept"] == (kept if age else 0)


def test_recorded_failures_are_not_learnt_again(forest_with_tool):
    forest = replace(forest_with_tool, reward=torch.zeros(1))
    tokens = torch.full((forest.n_tokens,), math.log(0.7))
    forest = forest.with_columns(**{"old_logprob": tokens, AGE: torch.ones(forest.n_tokens)})
    assert not StateValues().build()(forest).advantage.any()


def test_turns_without_a_value_are_refused(forest_of):
    forest = forest_of([(1.0, 2), (0.0, 2)], old_logprob=-1.0)
    with pytest.raises(RecipeError, match="no turn has the value of its state; allowed: with reward"):
        StateValues().build()(forest)


def test_the_loss_is_least_where_the_log_ratio_is_the_advantage_over_beta():
    # beta / 2 l^2 - A l with beta 2: at l = 1/2, A = 1: 1/4 - 1/2; at l = 1: 1 - 1.
    loss = turn_loss(torch.tensor([0.5, 1.0, 0.0]), torch.tensor([1.0, 1.0, 1.0]), beta=2.0)
    torch.testing.assert_close(loss, torch.tensor([-0.25, 0.0, 0.0]))


def test_each_turn_counts_once_and_one_without_advantage_not_at_all(batch_of):
    # Turns of two tokens and of one, of two rows; log-ratios 1 (1/2 + 1/2), 0, and 3; advantages 1, 1, none. beta 1/2:
    # slopes 1/2 - 1 and 0 - 1, and no slope; each is a third of the loss, on each token of its turn.
    mask = [[1, 1, 0, 1], [0, 1, 0, 0]]
    batch = batch_of(mask, logprob=[[-0.5, -0.5, 9.0, -1.0], [0, 2.0, 0, 0]], advantage=[[1, 1, 0, 1], [0, 0, 0, 0]])
    objective = TurnLogRatio(beta=0.5).build()
    batch = replace(batch, weight=objective.update_weights(batch.mask).double())
    loss, metrics = objective(batch)
    (gradient,) = torch.autograd.grad(loss, batch.logprob)
    wanted = torch.tensor([[-0.5, -0.5, 0, -1.0], [0, 0, 0, 0]]).double() / 3
    torch.testing.assert_close(gradient, wanted)
    assert float(metrics["regression/held"][0]) == pytest.approx(0.5)


def tree_of(*outcomes):
    """One turn from the state [5, 6], or [5, 7] for failures."""
    leaves = []
    for outcome in outcomes:
        root = Node.prompt([5, 6 if outcome else 7])
        leaves.append(root.add([8, 1], Origin.POLICY, "a"))
        leaves[-1].grade = Grade(outcome)
    tree = Tree(Task("t", ()), [leaf.root for leaf in leaves])
    tree.chosen = leaves
    return tree


def test_the_critic_learns_which_state_succeeds_and_goes_on_alike():
    policy = policy_like(plain_model(spread=0.1))
    critic, other = (PhaseCritic(lr=3e-3, epochs=8, batch=4).build(policy, seed=0) for _ in range(2))
    states = [Node.prompt([5, 6]), Node.prompt([5, 7])]
    assert critic(states) == [0.5, 0.5]
    tree = tree_of(1.0, 0.0, 1.0, 0.0)
    for _ in range(4):
        critic.observe([tree])
    good, bad = critic(states)
    assert good > 0.8
    assert bad < 0.2
    # A turn has the value of the state before it.
    [judged] = critic.judge([MarkedPath([5, 6, 8, 1], 2, [4], [2])])
    assert judged.steps == pytest.approx([good])
    other.load_state_dict(copy.deepcopy(critic.state_dict()))
    for each in (critic, other):
        each.observe([tree])
    assert other(states) == critic(states)
    assert critic.metrics()["history"] == 20, "earlier steps' states are learnt from again"
    with pytest.raises(RecipeError, match=r"reward.cut: .* allowed: 'turns'"):
        critic.judge([MarkedPath([5, 6, 8, 1], 2, [4])])


class Judging(FakeContext):
    """A frozen model that finds the first word likely where ``says`` holds the trajectory."""

    def encode(self, completion):
        return [ord(letter) for letter in completion] + [0]

    async def score_under(self, model, paths):
        assert model == "reference"
        texts = [self.decode(path.tokens) for path in paths]
        return [[-0.1 if ("good" in text) == text.endswith("1") else -3.0] for text in texts]


def test_a_trained_model_says_what_succeeded_and_is_measured_against_the_rule():
    grader = OutcomeJudge(ask="@", words=("1", "0")).build(Source())
    tree = Tree(ask("Q"), [Node.prompt([1])])
    drawn = [tree.root.add_drawn(Continuation([i], [-1.0], [], [0], "stop"), text) for i, text in enumerate("gbx")]
    for leaf, text in zip(drawn, ("good", "bad", "good"), strict=True):
        leaf.text = text
    drawn[2].finish = "length"
    grades = asyncio.run(grader(ask("Q"), drawn, Judging()))
    assert [grade.outcome for grade in grades] == [1, 0, 0], "what was truncated never succeeds"
    # By the rule the first failed and the second succeeded: both are judged wrongly.
    for leaf, grade, verdict in zip(drawn, grades, (False, True, False), strict=True):
        leaf.grade = Grade(grade.outcome, verdict, parts={"outcome-judge/success": grade.outcome})
    tree.chosen = drawn
    grader.observe([tree])
    assert grader.metrics() == {
        "right": pytest.approx(1 / 3),
        "failures_paid": 0.5,
        "successes_unpaid": 1.0,
    }


def test_attempts_to_judge_fail_by_a_correction_or_by_stopping_early():
    assert attempted(37, [8, -2], None) == "37+8=45-2=43#43"
    assert attempted(37, [8, -2], 0) == "37+8=45!35-2=33#33"
    tasks = [ChainOutcomes(levels=[2, 3]).build("train", 0)[i] for i in range(40)]
    assert {task.columns["demonstration"] for task in tasks} == {"0", "1"}
    for task in tasks:
        chain, attempt, _ = (message["content"] for message in task.messages)
        whole = sum(sign in "+-" for sign in attempt) == sum(sign in "+-" for sign in chain)
        assert (task.answer == "1") == (whole and "!" not in attempt)
