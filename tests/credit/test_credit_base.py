from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lyceum.core.component import kinds
from lyceum.core.forest import build_forest
from lyceum.core.settings import Composition
from lyceum.core.types import Sampling
from lyceum.credit.base import kl_cost, last_token, row_reward, token_reward, whiten
from lyceum.objective.kl import KLPenalty
from lyceum.papers.rest_mcts.rollout_value_mcts import ValueMCTS
from lyceum.rollout.flat import Flat
from lyceum.rollout.mcts import MCTS

CREDITS = sorted(kinds("credit"))
WITH_KL = [kind for kind in CREDITS if "kl_in_reward" in kinds("credit")[kind].model_fields]
NEEDED = {kind: {"steps": "tokens", "step_tokens": 1} for kind in ("action-gae", "empg", "gigpo", "salt")}
"""Settings of those whose defaults ask a grader or a rollout for steps, which these forests have not."""
OF_OUTCOMES = [kind for kind in CREDITS if kind not in ("turn-advantage", "state-values")]
"""Those that read more than what was said of each turn, of which these forests have nothing."""
COLUMNS = {"old_value": 0.25, "old_logprob": -1.0, "old_entropy": 0.5, "reference_logprob": -1.0}


def timed(forest):
    """Each row's action took a second, which ``duration-aware`` reads."""
    return replace(forest, parts={"progress-marks/duration": torch.ones(forest.n_rows)})


@pytest.mark.parametrize("kind", OF_OUTCOMES)
def test_the_curriculums_weight_multiplies_finished_advantages_once(kind, forest_of):
    # Weights before a whitening or a division by std would cancel; weights in two places would give 9.
    groups = [(0.0, 1), (1.0, 2)], [(0.0, 3), (0.0, 1), (2.0, 2)]
    credit = kinds("credit")[kind](**NEEDED.get(kind, {})).build()
    plain = timed(forest_of(*groups, **COLUMNS))
    weighted = timed(forest_of(*groups, weights=[1.0, 3.0], **COLUMNS))
    factor = torch.tensor([1.0, 1, 3, 3, 3])[:, None]
    expected = credit(plain)
    assert expected.advantage.abs().sum() > 0
    torch.testing.assert_close(credit(weighted).advantage, expected.advantage * factor)
    if expected.value_target is not None:  # what a value head learns is no matter of how much a task counts
        torch.testing.assert_close(credit(weighted).value_target, expected.value_target)


@pytest.mark.parametrize("kind", CREDITS)
def test_only_what_the_policy_wrote_has_an_advantage(kind, forest_with_tool):
    n = forest_with_tool.n_tokens
    forest = forest_with_tool.with_columns(**{name: torch.full((n,), value) for name, value in COLUMNS.items()})
    credited = kinds("credit")[kind](**({"whiten": False} if kind == "gae" else {})).build()(timed(forest))
    # prompt, two written, two of a tool, two written
    written = torch.tensor([[False, True, True, False, False, True, True]])
    assert (credited.advantage[~written] == 0).all()
    if kind in ("reinforce", "gae"):  # the others compare, and here is one row
        assert (credited.advantage[written] != 0).all()


@pytest.mark.parametrize("kind", CREDITS)
def test_a_step_whose_every_row_was_ungraded_has_no_rows(kind):
    forest = build_forest([]).with_columns(**{name: torch.zeros(0) for name in COLUMNS})
    assert kinds("credit")[kind]().build()(forest).advantage.shape == (0, 0)


@pytest.mark.parametrize("kind", WITH_KL)
def test_kl_in_reward_asks_for_the_columns_it_reads(kind):
    credit = kinds("credit")[kind]
    on = credit(kl_in_reward={"coefficient": 0.1}).build()
    assert {"old_logprob", "reference_logprob"} <= on.needs
    assert not {"old_logprob", "reference_logprob"} & credit().build().needs
    average = credit(kl_in_reward={"coefficient": 0.1, "against": "average"}).build()
    assert {"old_logprob", "average_logprob"} <= average.needs
    assert "reference_logprob" not in average.needs


@pytest.mark.parametrize("kind", WITH_KL)
def test_a_coefficient_alone_keeps_the_estimator_of_the_reward(kind):
    # a default on the field, and not on its class, would be lost as soon as a recipe names the coefficient
    assert kinds("credit")[kind](kl_in_reward={"coefficient": 0.1}).kl_in_reward.estimator == "k1"


@pytest.mark.parametrize(
    ("kind", "settings", "compares"),
    [
        ("group", {}, True),
        ("leave-one-out", {}, True),
        ("reinforce-plus-plus", {"baseline": "group"}, True),
        ("reinforce-plus-plus", {}, False),
        ("reinforce", {}, False),
    ],
)
def test_one_sample_a_task_is_refused_where_rows_are_compared(kind, settings, compares):
    credit = kinds("credit")[kind](**settings)
    check = credit.conflicts
    one, two = (Composition(rollout=Flat(samples=n)) for n in (1, 2))
    assert check(two) == []
    assert check(Composition(rollout=ValueMCTS(iterations=1))) == []  # no fixed number of trajectories
    why = f"credit.kind '{kind}' compares the samples of a task"
    line = f"got 1, but {why}; allowed: 2 or more, or credit.kind 'reinforce'"
    assert check(one) == ([f"rollout.samples: {line}"] if compares else [])
    assert check(Composition(rollout=MCTS(trajectories=1))) == ([f"rollout.trajectories: {line}"] if compares else [])
    alike = Composition(rollout=Flat(sampling=Sampling(temperature=0)))
    line = f"rollout.sampling.temperature: got 0, but {why}, which are then equal; allowed: above 0"
    assert check(alike) == ([line] if compares else [])


@pytest.fixture
def drifted(forest_of):
    # one row: prompt, two tokens; log(old / reference) is 0.5 and -1; the prompt's own 9 must not count
    forest = forest_of([(1.0, 2)])
    return forest.with_columns(
        old_logprob=torch.tensor([9.0, -1.0, -2.0]), reference_logprob=torch.tensor([0.0, -1.5, -1.0])
    )


def test_kl_cost_is_of_written_tokens_alone(drifted):
    penalty = KLPenalty(coefficient=0.1, estimator="k1")
    rows = drifted.rows()
    torch.testing.assert_close(kl_cost(drifted, rows, penalty), torch.tensor([[0.0, 0.05, -0.1]]))
    # the outcome of 1 on the last token; the sum is what a credit of the outcome sees
    torch.testing.assert_close(token_reward(drifted, rows, penalty), torch.tensor([[0.0, -0.05, 1.1]]))
    torch.testing.assert_close(row_reward(drifted, rows, penalty), torch.tensor([1.05]))


def test_last_token_is_of_the_mask_and_not_of_the_row():
    mask = torch.tensor([[False, True, True, False], [False, False, False, False], [True, False, False, True]])
    expected = torch.tensor([[False, False, True, False], [False] * 4, [False, False, False, True]])
    assert (last_token(mask) == expected).all()


def test_whiten_takes_mean_and_std_over_the_mask():
    # 1, 1, 4: mean 2, variance (1 + 1 + 4) / 3 = 2. With the 100 outside, or with n - 1, nothing fits.
    value, mask = torch.tensor([[1.0, 100.0], [1.0, 4.0]]), torch.tensor([[True, False], [True, True]])
    torch.testing.assert_close(whiten(value, mask), torch.tensor([[-1.0, 0.0], [-1.0, 2.0]]) / 2**0.5)


@given(st.floats(-1000, 1000, width=32), st.integers(1, 40))
def test_whitened_equal_values_are_exactly_zero(value, n):
    assert (whiten(torch.full((1, n), value), torch.ones(1, n, dtype=torch.bool)) == 0).all()


@pytest.mark.parametrize("kind", WITH_KL)
def test_a_kl_penalty_in_the_reward_changes_the_advantages(kind, forest_of):
    forest = timed(forest_of([(0.0, 1), (1.0, 2), (1.0, 1)], **COLUMNS | {"reference_logprob": -3.0}))
    settings = NEEDED.get(kind, {})
    plain, penalised = (
        kinds("credit")[kind](**settings, kl_in_reward={"coefficient": coefficient}).build()(forest).advantage
        for coefficient in (0.0, 10.0)
    )
    assert not torch.allclose(plain, penalised)
