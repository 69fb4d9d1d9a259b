"""What a component of the user's own gives to the loop: a mistake is a line with its name and what is allowed."""

from types import SimpleNamespace
from typing import Literal

import pytest
import torch

from lyceum.core.built import require_built
from lyceum.core.types import Batch, Credit, Credited, Curriculum, Environment, Objective
from lyceum.credit.base import BaseCredit, OutcomeCredit
from lyceum.credit.leave_one_out import LeaveOneOut
from lyceum.curriculum.uniform import Uniform
from lyceum.environment.calculator import Calculator
from lyceum.objective.base import BaseObjective, PolicyObjective
from lyceum.objective.kl import KLPenalty
from lyceum.objective.reinforce import ReinforceLoss
from lyceum.training.stages._sampling import Sampler
from lyceum.training.stages.method import CheckedObjective, Method
from lyceum.utils.errors import Diverged, RecipeError, RunError


class OwnCredit(LeaveOneOut):
    kind: Literal["own-results"] = "own-results"


class OwnCurriculum(Uniform):
    kind: Literal["own-results"] = "own-results"


class OwnEnvironment(Calculator):
    kind: Literal["own-results"] = "own-results"


class VerlLoss(BaseObjective):
    def __call__(self, old_log_prob, log_prob, advantages):
        return 0


class Gym:
    def reset(self, *, seed=None, options=None):
        return 0

    def step(self, action):
        return 0, 0.0, True, False, {}

    def replay(self, task, exchanges):
        return 0


class Sync(Gym):
    def reset(self, task):
        return 0

    def step(self, state, turn, said, context):
        return None


@pytest.mark.parametrize(
    ("settings", "built", "declared", "said"),
    [
        (OwnCredit(), None, Credit, "credit 'own-results': build returned None, without .*needs.*types.Credit"),
        (OwnCurriculum(), object(), Curriculum, "curriculum 'own-results': build returned an object, without .*draw"),
        (OwnCredit(), VerlLoss("token", skips=False), Objective, r"__call__ takes \(old_log_prob.*__call__\(batch\)"),
        (OwnEnvironment(), Gym(), Environment, r"reset takes \(\*, seed=None.*allowed: reset\(task\)"),
        (OwnEnvironment(), Sync(), Environment, r"step is not async; allowed: async def step\(\.\.\.\)"),
    ],
)
def test_what_build_returns(settings, built, declared, said):
    with pytest.raises(RecipeError, match=said):
        require_built(settings, built, declared)


class Of(BaseCredit):
    needs = frozenset()

    def __init__(self, result):
        self.result = result

    def __call__(self, forest):
        return self.result(forest)


def outcome(function):
    return OutcomeCredit(frozenset(), KLPenalty(), function)


@pytest.mark.parametrize(
    ("credit", "error", "said"),
    [
        (
            outcome(lambda r, g: r[1:]),
            RunError,
            r"returned a Tensor of shape \(31,\); allowed: a tensor of shape \(32,\)",
        ),
        (outcome(lambda r, g: r.tolist()), RunError, "returned a list; allowed"),
        (outcome(lambda r, g: r / 0 * 0), Diverged, "an advantage is nan, of outcomes between 0 and 1; look for"),
        (Of(lambda forest: forest.reward), RunError, r"returned a Tensor of shape \(32,\); allowed: .*Credited"),
        (Of(lambda forest: Credited(torch.zeros(2, 3))), RunError, r"advantage: a Tensor of shape \(2, 3\); allowed"),
        (
            Of(lambda forest: Credited(torch.full(forest.rows().index.shape, torch.inf))),
            Diverged,
            "an advantage that is nan or infinite",
        ),
    ],
)
def test_what_a_credit_returns(credit, error, said, forest):
    method = Method(SimpleNamespace(credit=OwnCredit()), credit, None)
    with pytest.raises(error, match=f"credit 'own-results'.*{said}"):
        method.credited(forest)


@pytest.fixture
def forest():
    """32 rows of two tokens, half of which are right."""
    from lyceum.core.forest import build_forest
    from lyceum.core.tree import Node, Tree
    from lyceum.core.types import Continuation, Grade, Task

    trees = []
    for number in range(4):
        root = Node.prompt([1, 2], "")
        leaves = [root.add_drawn(Continuation([3, i], [-1.0] * 2, [-1.0] * 2, [0, 0], "stop"), "") for i in range(8)]
        for place, leaf in enumerate(leaves):
            leaf.grade = Grade(float(place % 2))
        tree = Tree(Task(f"t{number}", ()), [root])
        tree.chosen = leaves
        trees.append(tree)
    return build_forest(trees)


LOGPROB = torch.full((2, 3), -1.0, requires_grad=True)


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        (lambda b: b.logprob.sum(), r"a Tensor of shape \(\); allowed: \(loss, metrics\)"),
        (lambda b: (b.logprob, {}), r"a Tensor of shape \(2, 3\) as its loss; allowed: one number"),
        (lambda b: (b.logprob.sum().detach(), {}), "a loss without a gradient; allowed: .*batch.logprob"),
        (lambda b: (b.logprob.sum(), {"share": 0.5}), r"metric 'share': a float; allowed: \(sum, weight\)"),
    ],
)
def test_what_an_objective_returns(returned, said):
    with pytest.raises(RunError, match=f"objective 'mine' returned {said}"):
        CheckedObjective("objective 'mine'", returned)(SimpleNamespace(logprob=LOGPROB))


def batch(**columns):
    rows = {"advantage": LOGPROB, "old_logprob": LOGPROB, "behaviour_logprob": LOGPROB, "origin": LOGPROB.long()}
    return Batch(
        LOGPROB > -9,
        torch.ones_like(LOGPROB),
        logprob=LOGPROB,
        group=torch.zeros(len(LOGPROB), dtype=torch.long),
        **rows,
    )


@pytest.mark.parametrize(
    ("surrogate", "said"),
    [
        # As verl's policy losses: summed over tokens already, which would be weighted and summed once more.
        (lambda b: (b.logprob.mean(), {}), r"a Tensor of shape \(\) as its loss; allowed: a tensor of shape \(2, 3\)"),
        (lambda b: (b.logprob.sum(1), {}), r"a Tensor of shape \(2,\) as its loss"),
        (lambda b: b.logprob, r"a Tensor of shape \(2, 3\); allowed: \(loss, metrics\)"),
        (lambda b: (b.logprob, None), r"a tuple; allowed: \(loss, metrics\), metrics a dict"),
    ],
)
def test_what_a_surrogate_returns(surrogate, said):
    objective = CheckedObjective("objective 'mine'", PolicyObjective(ReinforceLoss(), surrogate))
    with pytest.raises(RunError, match=f"objective 'mine': its surrogate returned {said}"):
        objective(batch())


def test_a_name_of_another_library_is_told_with_those_of_the_batch():
    objective = CheckedObjective("objective 'mine'", lambda b: (b.log_prob * b.advantages, {}))
    with pytest.raises(RunError, match=r"'mine' reads batch.log_prob \(did you mean 'logprob'\?\); allowed: mask"):
        objective(batch())


def test_a_loss_that_is_not_finite_names_the_objective():
    objective = CheckedObjective("objective 'mine'", lambda b: (b.logprob.sum() * torch.nan, {}))
    method = Method(SimpleNamespace(), None, objective)
    with pytest.raises(Diverged, match=r"^skipped$"), method.learning():  # the weights', not the loss's
        raise Diverged("skipped")
    objective(SimpleNamespace(logprob=LOGPROB * torch.nan))
    assert not objective.not_finite
    objective(SimpleNamespace(logprob=LOGPROB))
    with (
        pytest.raises(Diverged, match=r"skipped\nthe first loss that .* is nan, .*objective 'mine'"),
        method.learning(),
    ):
        raise Diverged("skipped")


@pytest.mark.parametrize(
    ("drawn", "said"), [([], "an empty list"), ([1, 2, 3], "3 of int"), (None, "None"), ([1], "1 of int")]
)
def test_what_a_curriculum_draws(drawn, said):
    of = SimpleNamespace(
        settings=SimpleNamespace(curriculum=OwnCurriculum()), curriculum=SimpleNamespace(draw=lambda n: drawn)
    )
    with pytest.raises(RunError, match=rf"curriculum 'own-results': draw\(3\) returned {said}; allowed: a list of 3"):
        Sampler.draw(of, 3)


def test_what_a_curriculum_weighs():
    for weight in (float("nan"), None):
        of = SimpleNamespace(
            settings=SimpleNamespace(curriculum=OwnCurriculum()),
            curriculum=SimpleNamespace(weight=lambda tree: weight),  # noqa: B023
        )
        with pytest.raises(RunError, match=f"the weight of task 't' is {weight}; allowed: a finite number"):
            Sampler.weight(of, SimpleNamespace(task=SimpleNamespace(id="t")))
