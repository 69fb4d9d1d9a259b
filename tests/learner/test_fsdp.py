"""Two processes with a share of every weight each learn what one process with all of them learns."""

import math
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from forked import forked_workers
from fsdp_worker import policy
from test_local import assert_close, credited, forest, same_bits

from lyceum.core.types import Credited
from lyceum.learner.fsdp import FsdpConfig, processes, rounds
from lyceum.learner.local import LocalConfig
from lyceum.models.frozen import FrozenSettings, TeacherSettings
from lyceum.objective.dpo import DPO
from lyceum.objective.kl import KLPenalty
from lyceum.objective.ppo_clip import PPOClip
from lyceum.objective.sft import SFT
from lyceum.papers.gkd.objective_gkd import GKD
from lyceum.papers.pacs.objective_pacs import PACS
from lyceum.run.codec import decode, encode
from lyceum.utils.errors import Diverged

WORKER = Path(__file__).parent / "fsdp_worker.py"
EVERYTHING = frozenset({"reference_logprob", "value", "old_value", "old_logprob", "drift"})
WITH_ALL = PPOClip(kl=KLPenalty(coefficient=0.1), value_coefficient=0.5, entropy_coefficient=0.01)
SGD = {"betas": (0.0, 0.0), "eps": 1e4, "lr": 3.0}
"""AdamW far below its epsilon: the weights change by -lr / eps times the gradient."""


@pytest.fixture(scope="module")
def two():
    with forked_workers(), processes(2, [sys.executable, str(WORKER), "plain"]):
        yield


def both(needs=frozenset(), kind="plain", teacher=None, **config):
    """The learner of one process, and that of several."""
    config = {"lr": 1e-3, "max_grad_norm": 1e9} | config
    return [
        settings(**config).build(policy(kind), total_steps=10, needs=needs, frozen=FrozenSettings(teacher))
        for settings in (LocalConfig, FsdpConfig)
    ]


def weights(learner):
    return [p.detach().clone() for p in learner.weights().parameters()]


def away_from_the_reference(*learners):
    with torch.no_grad():
        for learner in learners:
            for p in learner.weights().parameters():
                p.add_(0.1)


def assert_same_metrics(got, expected):
    """But for what the split of the rows makes of shared tokens, and the time."""
    left_out = ("tokens_trained", "rows_in_two_passes")
    kept = [{n: x for n, x in m.items() if n not in left_out and "second" not in n} for m in (got, expected)]
    assert kept[0] == pytest.approx(kept[1], rel=1e-5, abs=1e-6)


def assert_same_gradients(local, shared, objective, credit, of):
    got, expected = (learner.gradients(of, credit, objective) for learner in (shared, local))
    assert_close(got.weights, expected.weights)
    torch.testing.assert_close(got.coefficient, expected.coefficient)
    assert got.loss == pytest.approx(expected.loss, rel=1e-5)
    assert_same_metrics(got.metrics, expected.metrics)


@pytest.mark.parametrize("layout", ["tree", "rows"])
@pytest.mark.parametrize("tokens", [1, 40, 10**6])
def test_columns_gradients_and_metrics_are_those_of_one_process(two, layout, tokens):
    # 1: a row per micro-batch, so that the last round has one for the first process alone where they are odd.
    local, shared = both(EVERYTHING, layout=layout, micro_batch_tokens=tokens)
    asked = frozenset({"reference_logprob", "old_value", "old_logprob"})
    annotated, expected = (learner.annotate(forest(), asked) for learner in (shared, local))
    for name in asked:
        torch.testing.assert_close(annotated.columns[name], expected.columns[name], rtol=1e-5, atol=1e-5)
    assert_same_gradients(local, shared, WITH_ALL.build(), credited(), expected)


@pytest.mark.parametrize("checkpointing", [False, True])
def test_a_loss_of_whole_distributions_of_a_frozen_model(two, checkpointing, tmp_path):
    policy("plain").causal.save_pretrained(tmp_path)
    policy("plain").tokenizer.save_pretrained(tmp_path)
    local, shared = both(
        frozenset({"teacher"}), teacher=TeacherSettings(path=str(tmp_path)), gradient_checkpointing=checkpointing
    )
    away_from_the_reference(local, shared)  # as an earlier stage leaves it, other than its file
    of = forest()
    assert_same_gradients(local, shared, GKD(beta=0.5).build(), credited(), of)


@pytest.mark.parametrize("objective", [DPO(), PACS()], ids=["pairs", "groups"])
@pytest.mark.parametrize("tokens", [1, 60])
def test_couples_larger_than_a_micro_batch(two, objective, tokens):
    built = objective.build()
    of = replace(forest(), correct=(torch.arange(forest().n_rows) % 2).float())
    of = replace(of, reward=of.correct.clone())
    needs = built.columns | built.needs
    local, shared = both(needs, micro_batch_tokens=tokens)
    credit = Credited(torch.zeros(of.rows().index.shape))
    annotated = local.annotate(of, needs & {"reference_logprob", "old_logprob"})
    away_from_the_reference(local, shared)  # else every margin is rounding, and its sign differs between machines
    assert_same_gradients(local, shared, built, credit, annotated)


@pytest.mark.parametrize("config", [SGD, {"eps": 1e-3, "weight_decay": 0.1}], ids=["sgd", "adamw"])
@pytest.mark.parametrize("max_grad_norm", [1e9, 3.0], ids=["unclipped", "clipped"])
def test_weights_after_several_steps(two, config, max_grad_norm):
    local, shared = both(EVERYTHING, epochs=2, updates_per_step=2, max_grad_norm=max_grad_norm, **config)
    began = weights(local)
    assert same_bits(began, weights(shared))
    for step in range(2):
        of = [learner.annotate(forest(), frozenset({"reference_logprob", "old_value"})) for learner in (local, shared)]
        metrics = [
            learner.step(f, credited(step), WITH_ALL.build()) for learner, f in zip((local, shared), of, strict=True)
        ]
        assert_same_metrics(metrics[1], metrics[0])
        if max_grad_norm < 1e9:
            assert metrics[0]["grad_norm"] > max_grad_norm
    moved = [[w - b for w, b in zip(weights(learner), began, strict=True)] for learner in (shared, local)]
    assert max(float(m.abs().max()) for m in moved[1]) > 1e-5
    assert_close(*moved, rtol=1e-3)


def test_a_norm_whose_square_overflows_is_that_of_one_process(two):
    norms = []
    for learner in both(max_grad_norm=1.0):
        huge = replace(credited(), advantage=credited().advantage * 1e30)
        norms.append(learner.step(forest(), huge, PPOClip().build())["grad_norm"])
        assert learner.skipped_steps == 0
    assert norms[1] == pytest.approx(norms[0], rel=1e-5)
    assert norms[0] > 1e25


def test_all_processes_skip_an_update_that_is_not_finite_and_stop_together(two):
    _, shared = both(max_bad_steps=2)
    began = weights(shared)
    wrong = replace(credited(), advantage=credited().advantage * math.nan)
    shared.step(forest(), wrong, PPOClip().build())
    assert shared.skipped_steps == 1
    assert same_bits(weights(shared), began)
    with pytest.raises(Diverged, match="2 updates in a row"):
        shared.step(forest(), wrong, PPOClip().build())
    shared.step(forest(), credited(), PPOClip().build())  # the processes go on
    assert not same_bits(weights(shared), began)


def test_learners_take_turns_with_one_policy(two):
    # As fine-tuning between steps does; and a stage may put earlier weights back.
    results = []
    for settings in (LocalConfig, FsdpConfig):
        of_run = policy("plain")
        first, second = (settings(lr=1e-3, eps=1e-3).build(of_run, total_steps=9, needs=frozenset()) for _ in range(2))
        began = weights(first)
        first.step(forest(), credited(), PPOClip().build())
        second.step(forest(), credited(), SFT().build())
        first.step(forest(), credited(), PPOClip().build())
        results.append([w - b for w, b in zip(weights(second), began, strict=True)])
    assert_close(*results, rtol=1e-3)


def stored(learner):
    """Its state as a checkpoint brings it back."""
    text, tensors = encode(learner.state_dict())
    return decode(text, {name: tensor.clone() for name, tensor in tensors.items()})


@pytest.mark.parametrize("saved_by", ["one", "two"])
@pytest.mark.parametrize("loaded_by", ["one", "two"])
def test_a_checkpoint_loads_with_another_number_of_processes(two, saved_by, loaded_by):
    def learner(by):
        return both(EVERYTHING, eps=1e-3)[by == "two"]

    def step(learner):
        annotated = learner.annotate(forest(), frozenset({"reference_logprob", "old_value"}))
        return learner.step(annotated, credited(), WITH_ALL.build())

    goes_on = learner(saved_by)
    step(goes_on)
    resumed = learner(loaded_by)
    resumed.load_state_dict(stored(goes_on))
    assert same_bits(weights(resumed), weights(goes_on))
    again = stored(resumed)
    assert same_bits(encode(again)[1].values(), encode(stored(goes_on))[1].values())
    before = weights(goes_on)
    metrics = [step(resumed), step(goes_on)]
    assert_same_metrics(*metrics)
    if saved_by == loaded_by:
        assert same_bits(weights(resumed), weights(goes_on))
    moved = [[w - b for w, b in zip(weights(of), before, strict=True)] for of in (resumed, goes_on)]
    assert_close(*moved, rtol=1e-3)


def test_rounds_have_a_piece_for_each_process_and_keep_couples_together():
    of = forest()
    rows = torch.arange(of.n_rows)
    for tokens in (1, 30, 10**6):
        for size in (1, 2, 3):
            found = rounds(of, rows, None, tokens, size)
            assert torch.cat([piece for pieces in found for piece in pieces]).tolist() == rows.tolist()
            assert all(len(pieces) == size for pieces in found[:-1])
            alone = rounds(of, rows, None, tokens, 1)
            assert len(found) <= math.ceil(len(alone) / size)
    # All fits into one micro-batch: each process still gets some of it.
    assert len(rounds(of, rows, None, 10**6, 3)[0]) == 3
    couple = rows // 4
    for pieces in (found := rounds(of, rows, couple, 10, 2)):
        assert all(
            torch.isin(rows[couple == c], torch.cat(list(pieces))).all() for c in couple[torch.cat(list(pieces))]
        )
    assert sorted(torch.cat([piece for pieces in found for piece in pieces]).tolist()) == rows.tolist()


def test_an_engine_with_processes_of_its_own_is_refused():
    from lyceum.recipe.schema import load_recipe
    from lyceum.utils.errors import RecipeError

    with pytest.raises(RecipeError, match=r"engine.kind: got 'vllm'.*learner.kind=local"):
        load_recipe("grpo", ["learner.kind=fsdp", "engine.kind=vllm"])
    load_recipe("grpo", ["learner.kind=fsdp"])
