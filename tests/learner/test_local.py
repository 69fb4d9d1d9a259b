import copy
import math
from dataclasses import replace
from functools import cache

import pytest
import torch
from pydantic import ValidationError
from random_trees import letters, random_trees
from tiny_models import plain_model, policy_like
from transformers import AutoModelForCausalLM

from lyceum.core.forest import build_forest
from lyceum.core.types import Credited, Origin
from lyceum.learner.local import Diverged, LocalConfig, LocalLearner, clip_gradients, learning_rate
from lyceum.models.frozen import AverageSettings, FrozenAdapters, FrozenSettings
from lyceum.models.load import LoraSettings, ModelSettings, _with_adapters, save_policy
from lyceum.models.policy import Policy
from lyceum.objective.base import BaseObjective, aggregate_weights, clean
from lyceum.objective.kl import KLPenalty
from lyceum.objective.ppo_clip import PPOClip
from lyceum.objective.sft import SFT
from lyceum.run import checkpoint


@cache
def forest():
    """Trees of rows with everything in them: tools, hints, teachers, rows that no policy wrote."""
    return build_forest([tree for seed in (13, 19, 25, 26) for tree in random_trees(seed)], decode=letters)


def credited(seed=0, forest=None, *, zero_rows=()):
    """An advantage for each row, as group-relative credit gives it; value targets of all sizes."""
    forest = forest or globals()["forest"]()
    mask, generator = forest.trainable(forest.rows()), torch.Generator().manual_seed(seed)
    row = torch.randn(forest.n_rows, generator=generator)
    row[list(zero_rows)] = 0
    return Credited(row[:, None] * mask, value_target=torch.randn(mask.shape, generator=generator) * mask)


def learner(model=None, *, needs=frozenset(), total_steps=10, policy=None, **config):
    policy = policy or policy_like(model or plain_model())
    return LocalLearner(policy, LocalConfig(**config), total_steps=total_steps, needs=needs)


def gradients_of_step(trained, objective, credit=None, of=None):
    """What the optimiser is handed in each update of one step: clipped gradients, None where there are none."""
    seen, step = [], trained.optimizer.step
    trained.optimizer.step = lambda: (
        seen.append([None if p.grad is None else p.grad.clone() for p in trained.parameters]),
        step(),
    )
    trained.step(of or forest(), credit or credited(), objective)
    trained.optimizer.step = step
    return seen


def weights(trained):
    return [p.detach().clone() for p in trained.parameters]


def same_bits(a, b):
    return len(a) == len(b) and all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def assert_close(got, expected, rtol=1e-5):
    """Tensor by tensor to a share of the greatest entry of all."""
    greatest = max(float(e.abs().max()) for e in expected)
    for g, e in zip(got, expected, strict=True):
        assert float((g - e).abs().max()) <= rtol * greatest


EVERY_ROW = PPOClip().build()
EVERY_ROW.skips = False  # rows without advantage are computed all the same
UNCLIPPED = {"max_grad_norm": 1e9, "lr": 1e-4}


@pytest.mark.parametrize("aggregate", ["token", "sequence"])
@pytest.mark.parametrize("layout", ["tree", "rows", "auto"])
def test_the_gradient_is_the_whole_steps_whatever_the_micro_batches(aggregate, layout):
    # The oracle: on policy, the surrogate's gradient is that of -sum weight * advantage * log-probability over padded
    # rows, in plain transformers.
    model = plain_model()
    rows, mask = forest().rows(), forest().trainable(forest().rows())
    ids = rows.gather(forest().token)
    logp = model(ids, attention_mask=rows.present.long(), use_cache=False).logits[:, :-1].log_softmax(-1)
    logprob = torch.nn.functional.pad(logp.gather(2, ids[:, 1:, None]).squeeze(2), (1, 0))
    loss = -(aggregate_weights(mask, aggregate) * credited().advantage * logprob).sum()
    expected = torch.autograd.grad(loss, list(model.parameters()))
    for budget in (1, 17, 40, 10**6):
        trained = learner(micro_batch_tokens=budget, layout=layout, **UNCLIPPED)
        (got,) = gradients_of_step(trained, PPOClip(aggregate=aggregate).build())
        assert_close(got, expected)


@pytest.mark.parametrize("tokens", [1, 10_000])
def test_gradients_of_a_forest_are_those_of_its_step_and_change_nothing(tokens):
    needs = frozenset({"reference_logprob"})
    objective = PPOClip(kl=KLPenalty(coefficient=0.1)).build()
    trained = learner(needs=needs, micro_batch_tokens=tokens, max_grad_norm=1e9)
    annotated = trained.annotate(forest(), needs)
    before = weights(trained)
    found = trained.gradients(annotated, credited(), objective)
    assert same_bits(weights(trained), before)
    assert trained.updates == 0
    assert all(p.grad is None for p in trained.parameters)
    (of_step,) = gradients_of_step(trained, objective, of=annotated)
    assert same_bits(found.weights, of_step)
    # The ratio is 1 and the policy its own reference, where k3 is flat: -advantage times the token's weight alone.
    mask = annotated.trainable(annotated.rows())
    by_hand = -credited().advantage * aggregate_weights(mask, "token")
    torch.testing.assert_close(found.coefficient, by_hand)
    assert found.metrics["kl/reference"] == pytest.approx(0, abs=1e-9)


def test_tokens_trained_counts_what_went_through_the_model():
    for layout, expected in (("tree", forest().n_tokens), ("rows", forest().rows().index.numel())):
        metrics = learner(layout=layout).step(forest(), credited(), EVERY_ROW)
        assert metrics["tokens_trained"] == expected
        assert metrics["row_tokens_trained"] == int(forest().row_length.sum())


def test_rows_without_advantage_are_skipped_and_change_nothing():
    # Their tokens still count in what every token's share is.
    credit, objective = credited(zero_rows=(0, 3, 4, 9)), PPOClip().build()
    skipping = learner(**UNCLIPPED)
    (got,) = gradients_of_step(skipping, objective, credit)
    (expected,) = gradients_of_step(learner(**UNCLIPPED), EVERY_ROW, credit)
    assert_close(got, expected)
    metrics = learner().step(forest(), credit, objective)
    assert metrics["rows_without_gradient"] > 4 / forest().n_rows - 1e-9
    assert metrics["row_tokens_trained"] < int(forest().row_length.sum())


def test_a_step_without_any_advantage_leaves_the_weights_alone():
    trained = learner(weight_decay=0.1)
    trained.step(forest(), credited(), PPOClip().build())
    before = weights(trained)
    metrics = trained.step(forest(), Credited(torch.zeros_like(credited().advantage)), PPOClip().build())
    assert same_bits(weights(trained), before)
    assert (metrics["loss"], metrics["grad_norm"], metrics["rows_without_gradient"]) == (0, 0, 1)


def test_adamw_by_hand():
    # Step 1: m / (1 - beta1) = g and v / (1 - beta2) = g^2, so that each weight moves by lr g / (|g| + eps), and a
    # matrix decays by lr * decay * w besides; norms' vectors do not decay.
    trained = learner(lr=0.01, weight_decay=0.5, eps=1e-3, betas=(0.5, 0.75), max_grad_norm=1e9)
    w0 = weights(trained)
    (g1,) = gradients_of_step(trained, PPOClip().build())
    w1 = weights(trained)
    for p0, p1, g in zip(w0, w1, g1, strict=True):
        decayed = p0 * (1 - 0.01 * 0.5) if p0.dim() == 2 else p0
        torch.testing.assert_close(p1, decayed - 0.01 * g / (g.abs() + 1e-3), rtol=1e-5, atol=1e-7)
    # Step 2: m = 0.5 (0.5 g1) + 0.5 g2 over 1 - 0.5^2, v = 0.75 (0.25 g1^2) + 0.25 g2^2 over 1 - 0.75^2.
    (g2,) = gradients_of_step(trained, PPOClip().build(), credited(1))
    for p1, p2, a, b in zip(w1, weights(trained), g1, g2, strict=True):
        m = (0.25 * a + 0.5 * b) / 0.75
        v = (0.1875 * a.square() + 0.25 * b.square()) / 0.4375
        decayed = p1 * (1 - 0.01 * 0.5) if p1.dim() == 2 else p1
        torch.testing.assert_close(p2, decayed - 0.01 * m / (v.sqrt() + 1e-3), rtol=1e-5, atol=1e-7)
    assert {p.dim() for p in w0} == {1, 2}


def lrs(total_steps, updates, **config):
    settings = LocalConfig(lr=8.0, **config)
    return [learning_rate(update, settings, total_steps) for update in range(updates)]


def test_schedules_by_hand():
    assert lrs(4, 4) == [8, 8, 8, 8]
    assert lrs(6, 7, warmup_steps=2, schedule="linear") == [4, 8, 8, 6, 4, 2, 0]
    assert lrs(4, 5, schedule="linear", final_lr_share=0.5) == [8, 7, 6, 5, 4]
    assert lrs(4, 6, schedule="cosine") == pytest.approx([8, 4 + 8**0.5, 4, 4 - 8**0.5, 0, 0])
    assert lrs(4, 5, warmup_steps=4) == [2, 4, 6, 8, 8]


def test_a_schedule_is_in_steps_however_many_updates_each_has():
    # Two updates by two epochs: four updates a step. Warm-up over one step, the end after the last of three.
    trained = learner(lr=8.0, warmup_steps=1, schedule="linear", updates_per_step=2, epochs=2, total_steps=3)
    seen, step = [], trained.optimizer.step
    trained.optimizer.step = lambda: seen.append(trained.optimizer.param_groups[0]["lr"]) or step
    for _ in range(3):
        trained.step(forest(), credited(), PPOClip().build())
    assert seen == [2, 4, 6, 8, *(8 - i for i in range(8))]


def test_long_gradients_are_scaled_down_to_the_limit_and_short_ones_left():
    objective = PPOClip().build()
    (free,) = gradients_of_step(learner(**UNCLIPPED), objective)
    norm = math.sqrt(sum(float(g.square().sum()) for g in free))
    trained = learner(max_grad_norm=norm / 4)
    (cut,) = gradients_of_step(trained, objective)
    assert_close(cut, [g / 4 for g in free])
    (left,) = gradients_of_step(learner(max_grad_norm=norm * 1.01), objective)
    assert_close(left, free, rtol=1e-6)
    # What is reported is the norm before.
    assert learner(max_grad_norm=norm / 4).step(forest(), credited(), objective)["grad_norm"] == pytest.approx(norm)


def bad_credit():
    advantage = credited().advantage.clone()
    advantage[0] = float("nan")
    return Credited(advantage)


def test_a_loss_that_is_not_finite_changes_nothing_and_is_counted():
    trained, objective = learner(max_bad_steps=3), PPOClip().build()
    trained.step(forest(), credited(), objective)
    before, moments = weights(trained), copy.deepcopy(trained.optimizer.state_dict()["state"])
    for _ in range(2):
        metrics = trained.step(forest(), bad_credit(), objective)
    assert math.isnan(metrics["loss"])
    assert same_bits(weights(trained), before)
    after = trained.optimizer.state_dict()["state"]
    assert all(torch.equal(after[i][name], moments[i][name]) for i in moments for name in moments[i])
    assert (trained.skipped_steps, trained.bad_steps) == (2, 2)
    # A good step in between starts the count anew, and its gradient has nothing of the bad ones.
    trained.step(forest(), credited(1), objective)
    assert (trained.skipped_steps, trained.bad_steps) == (2, 0)
    fresh = learner()
    fresh.step(forest(), credited(), objective)
    fresh.updates += 2
    fresh.step(forest(), credited(1), objective)
    assert same_bits(weights(trained), weights(fresh))
    for _ in range(2):
        trained.step(forest(), bad_credit(), objective)
    with pytest.raises(Diverged, match=r"at step 7: .* not finite in 3 updates in a row; lower learner\.lr"):
        trained.step(forest(), bad_credit(), objective)


@pytest.mark.parametrize("setting", [{"lr": 1e300}, {"weight_decay": 1e300}, {"eps": 1e-300}], ids=repr)
def test_an_update_that_spoils_a_weight_ends_the_run_at_once(setting, monkeypatch):
    monkeypatch.setattr("lyceum.core.component.LARGEST_REAL", math.inf)  # a recipe's take more steps to get there
    monkeypatch.setattr("lyceum.core.component.SMALLEST_REAL", 0.0)
    # Past it every loss is nan: such weights were sampled from, and saved as a checkpoint, for five steps.
    with pytest.raises(Diverged, match=r"diverged at step 1: a weight became (nan|inf) \(learner\.lr is .*; lower"):
        learner(**{"lr": 1e-3, **setting}).step(forest(), credited(), PPOClip().build())


def test_a_loss_that_is_never_finite_is_no_training():
    trained = learner(max_bad_steps=5)
    trained.require_learnt()  # nothing was tried
    for _ in range(2):
        trained.step(forest(), bad_credit(), PPOClip().build())
    with pytest.raises(Diverged, match="nothing was learnt: loss or gradient was not finite in all of the 2 updates"):
        trained.require_learnt()
    trained.step(forest(), credited(), PPOClip().build())
    trained.require_learnt()


def test_a_reference_penalty_of_weights_that_are_nan_says_so():
    trained = learner(needs=frozenset({"reference_logprob"}))
    with torch.no_grad():
        trained.parameters[0].fill_(float("nan"))
    with pytest.raises(Diverged, match="diverged at step 1: old_logprob of the weights is nan"):
        trained.annotate(forest(), frozenset({"old_logprob", "reference_logprob"}))


@pytest.mark.parametrize("size", [1e20, 1e30, 3e37])
def test_gradients_whose_squares_leave_float32_are_clipped_to_the_same_direction(size):
    # of advantages of 1e30: the norm of 3 and 4 is 5
    parameters = [torch.nn.Parameter(torch.zeros(1)), torch.nn.Parameter(torch.zeros(1))]
    for most, expected in ((1.0, [0.6, 0.8]), (100 * size, [3 * size, 4 * size])):
        for parameter, gradient in zip(parameters, (3 * size, 4 * size), strict=True):
            parameter.grad = torch.tensor([gradient])
        assert clip_gradients(parameters, most) == pytest.approx(5 * size, rel=1e-6)
        assert [float(p.grad) for p in parameters] == pytest.approx(expected, rel=1e-6)


def test_huge_advantages_move_the_weights_as_far_as_others_do():
    small, huge = learner(lr=1e-3), learner(lr=1e-3)
    before, large = weights(small), replace(credited(), advantage=credited().advantage * 1e30)
    small.step(forest(), credited(), PPOClip().build())
    assert huge.step(forest(), large, PPOClip().build())["grad_norm"] > 1e28
    moved = [[float((a - b).abs().max()) for a, b in zip(weights(one), before, strict=True)] for one in (small, huge)]
    assert moved[1] == pytest.approx(moved[0], rel=0.1)


def test_an_infinite_gradient_is_skipped_too():
    trained = learner()
    before = weights(trained)
    trained.parameters[0].register_hook(lambda g: g * float("inf"))
    trained.step(forest(), credited(), PPOClip().build())
    assert trained.skipped_steps == 1
    assert same_bits(weights(trained), before)


def test_computing_activations_again_gives_the_same_gradient():
    objective = PPOClip().build()
    (kept,) = gradients_of_step(learner(**UNCLIPPED), objective)
    trained = learner(gradient_checkpointing=True, **UNCLIPPED)
    inside = trained.policy.backbone.layers[0].mlp
    calls, forward = [], inside.forward
    inside.forward = lambda x: (calls.append(1), forward(x))[1]
    (again,) = gradients_of_step(trained, objective)
    assert_close(again, kept, rtol=1e-6)
    assert len(calls) == 2, "forward, and once more in the backward pass"
    assert not trained.policy.module.training, "left as it was, for the engine"


def test_dropout_stays_off_where_activations_are_computed_again():
    # Recomputation is tied to training mode, where dropout would train another policy than the one that sampled.
    objective = PPOClip().build()
    (plain,) = gradients_of_step(learner(plain_model(), **UNCLIPPED), objective)
    dropping = plain_model(attention_dropout=0.5)
    (got,) = gradients_of_step(learner(dropping, gradient_checkpointing=True, **UNCLIPPED), objective)
    assert_close(got, plain, rtol=1e-6)


def test_bfloat16_autocast_is_close_and_leaves_the_weights_in_float32():
    objective = PPOClip().build()
    (full,) = gradients_of_step(learner(**UNCLIPPED), objective)
    trained = learner(autocast="bfloat16", **UNCLIPPED)
    (half,) = gradients_of_step(trained, objective)
    cosine = sum(float((a * b).sum()) for a, b in zip(half, full, strict=True)) / math.sqrt(
        sum(float(a.square().sum()) for a in half) * sum(float(b.square().sum()) for b in full)
    )
    assert 0.98 < cosine < 1 - 1e-9
    assert {p.dtype for p in trained.parameters} == {torch.float32}


# Adapters ----------------------------------------------------------------------------------------------------------


def with_adapters(seed=0):
    module = policy_like(plain_model()).module
    settings = ModelSettings(path="scratch", lora=LoraSettings(rank=2, alpha=4), seed=seed)
    return Policy(_with_adapters(module, settings), policy_like(plain_model()).tokenizer)


def test_the_reference_is_the_stages_start_where_an_earlier_stage_trained_the_adapters(tmp_path):
    # The model without its adapters is another policy by then: its KL at the start would not be 0, and a penalty would
    # undo what the earlier stage taught.
    policy, needs = with_adapters(), frozenset({"reference_logprob", "old_logprob"})
    learner(policy=policy, lr=0.05).step(forest(), credited(7), PPOClip().build())
    trained = learner(policy=policy, needs=needs, lr=0.05)
    start = trained.annotate(forest(), needs).columns
    torch.testing.assert_close(start["reference_logprob"], start["old_logprob"], rtol=0, atol=0)
    trained.step(forest(), credited(), PPOClip().build())
    now = trained.annotate(forest(), needs).columns
    torch.testing.assert_close(now["reference_logprob"], start["reference_logprob"], rtol=0, atol=0)
    assert not torch.allclose(now["old_logprob"], start["old_logprob"], atol=1e-3)
    # A resumed run makes its learner from other adapters.
    saved = checkpoint.save(tmp_path, 1, trained.state_dict())
    other = learner(policy=with_adapters(seed=3), needs=needs, lr=0.05)
    other.load_state_dict(checkpoint.load(saved))
    again = other.annotate(forest(), needs).columns
    assert same_bits([again[name] for name in sorted(needs)], [now[name] for name in sorted(needs)])


def test_only_adapters_are_trained_and_the_model_without_them_is_the_reference(tmp_path):
    policy = with_adapters()
    trained = learner(policy=policy, needs=frozenset({"reference_logprob"}), lr=0.05)
    assert isinstance(trained.frozen["reference"], FrozenAdapters), "no copy is needed"
    frozen = {name: p.clone() for name, p in policy.module.named_parameters() if not p.requires_grad}
    assert all("lora" not in name for name in frozen)
    needs = frozenset({"reference_logprob", "old_logprob"})
    start = trained.annotate(forest(), needs).columns
    # New adapters change nothing yet.
    torch.testing.assert_close(start["old_logprob"], start["reference_logprob"])
    for step in range(3):
        trained.step(forest(), credited(step), PPOClip().build())
    now = trained.annotate(forest(), needs).columns
    torch.testing.assert_close(now["reference_logprob"], start["reference_logprob"], rtol=0, atol=0)
    assert not torch.allclose(now["old_logprob"], start["old_logprob"], atol=1e-3)
    assert all(torch.equal(p, frozen[name]) for name, p in policy.module.named_parameters() if name in frozen)

    # What is written out is one plain model that says the same, and training can go on.
    save_policy(policy, tmp_path)
    merged = Policy(AutoModelForCausalLM.from_pretrained(tmp_path).eval(), policy.tokenizer)
    of_merged = learner(policy=merged).annotate(forest(), frozenset({"old_logprob"})).columns["old_logprob"]
    torch.testing.assert_close(of_merged, now["old_logprob"], rtol=1e-4, atol=1e-5)
    again = trained.annotate(forest(), needs).columns["old_logprob"]
    torch.testing.assert_close(again, now["old_logprob"], rtol=0, atol=0)
    trained.step(forest(), credited(), PPOClip().build())


@pytest.mark.parametrize("made", [lambda: policy_like(plain_model()), with_adapters])
def test_the_slow_average_follows_each_step_and_is_saved(made, tmp_path):
    needs, objective = frozenset({"average_logprob", "old_logprob"}), PPOClip().build()

    def averaging():
        config, averaged = LocalConfig(lr=0.05), FrozenSettings(average=AverageSettings(decay=0.5))
        return LocalLearner(made(), config, total_steps=10, needs=needs, frozen=averaged)

    trained = averaging()
    start = trained.annotate(forest(), needs).columns
    torch.testing.assert_close(start["average_logprob"], start["old_logprob"], rtol=0, atol=0)
    metrics = trained.step(forest(), credited(), objective)
    assert metrics["average/distance"] > 0
    now = trained.annotate(forest(), needs).columns
    for other in (start["average_logprob"], now["old_logprob"]):
        assert not torch.allclose(now["average_logprob"], other, atol=1e-3)
    saved = checkpoint.save(tmp_path, 1, trained.state_dict())
    other = averaging()
    other.load_state_dict(checkpoint.load(saved))
    for each in (trained, other):
        each.step(forest(), credited(1), objective)
    again, now = (each.annotate(forest(), needs).columns for each in (other, trained))
    assert same_bits([again[name] for name in sorted(needs)], [now[name] for name in sorted(needs)])


# Columns, updates, state -------------------------------------------------------------------------------------------


def test_columns_are_the_starting_weights_and_the_references(tmp_path):
    head_needs = frozenset({"reference_logprob", "old_value", "value"})
    trained = learner(needs=head_needs, lr=0.05, micro_batch_tokens=20)
    model = plain_model()
    some = replace(forest(), temperature=0.5)

    def logprob(model):
        rows = some.rows()
        ids = rows.gather(some.token)
        with torch.no_grad():
            logits = model(ids, attention_mask=rows.present.long(), use_cache=False).logits / some.temperature
        return torch.nn.functional.pad(logits[:, :-1].log_softmax(-1).gather(2, ids[:, 1:, None]).squeeze(2), (1, 0))

    needs = frozenset({"old_logprob", "reference_logprob", "old_value"})
    first = logprob(model)
    for step in range(2):
        columns = trained.annotate(some, needs).columns
        assert columns.keys() == needs
        rows = some.rows()
        mask = some.trainable(rows, (Origin.POLICY, Origin.TEACHER))
        now = copy.deepcopy(trained.policy.module)
        now.set_attn_implementation("sdpa")
        torch.testing.assert_close(rows.gather(columns["old_logprob"])[mask], logprob(now)[mask], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(rows.gather(columns["reference_logprob"])[mask], first[mask], rtol=1e-4, atol=1e-5)
        written = torch.isin(some.origin, torch.tensor([Origin.POLICY, Origin.TEACHER]))
        assert (columns["old_logprob"][~written] == 0).all()
        assert (columns["old_value"] == 0).all() == (step == 0), "a value head begins at 0"
        trained.step(some, credited(), PPOClip(value_coefficient=1.0).build())
    assert not trained.annotate(some, frozenset()).columns


def test_a_value_head_learns_its_targets():
    some = forest()
    trained = learner(needs=frozenset({"value"}), lr=0.01)
    target = Credited(torch.zeros_like(credited().advantage), value_target=torch.full_like(credited().advantage, 2.0))
    objective = PPOClip(value_coefficient=1.0).build()
    losses = [trained.step(some, target, objective)["value_loss"] for _ in range(30)]
    assert losses[0] == pytest.approx(2.0)  # (0 - 2)^2 / 2
    assert losses[-1] < 0.05
    assert len(trained.parameters) == 2 + len(list(trained.policy.module.parameters()))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_value_head_learns_beside_a_model_in_half_precision(dtype):
    trained = learner(plain_model().to(dtype), needs=frozenset({"value", "old_value"}), lr=1e-3)
    annotated = trained.annotate(forest(), frozenset({"old_value"}))
    metrics = trained.step(annotated, credited(), PPOClip(value_coefficient=1.0).build())
    assert math.isfinite(metrics["value_loss"])
    head = trained.value_head.weight
    assert head.dtype == torch.float32
    assert (head != 0).any()


def test_weights_in_half_precision_are_warned_of_and_adapters_on_them_are_not(caplog):
    learner(plain_model(), autocast="bfloat16")
    module = _with_adapters(plain_model().to(torch.bfloat16), ModelSettings(path="scratch", lora=LoraSettings(rank=2)))
    learner(policy=Policy(module, policy_like(plain_model()).tokenizer))  # peft keeps adapters in float32
    assert not caplog.records
    learner(plain_model().to(torch.bfloat16), lr=1e-6)
    assert "trained in bfloat16, which rounds small updates away (lr is 1e-06)" in caplog.text


@pytest.mark.parametrize("betas", [(1.0, 0.9), (0.9, -0.1)])
def test_decay_rates_that_adamw_cannot_take_are_refused_with_the_recipe(betas):
    with pytest.raises(ValidationError):
        LocalConfig(betas=betas)


@pytest.mark.parametrize("updates", [1, 2, 3, 4, 9, 12])
def test_a_step_has_as_many_updates_as_asked_for_or_as_there_are_trees(updates):
    some = replace(forest(), group=torch.arange(forest().n_rows))  # whatever is compared with whatever
    dealt = learner(updates_per_step=updates)._update_rows(some, 0)
    assert len(dealt) == min(updates, 9), "torch.chunk makes 3 parts of 9 trees where 4 are asked for"
    assert torch.cat(dealt).sort().values.tolist() == list(range(some.n_rows))
    tree = some.tree[some.leaf]
    assert sum(len(tree[rows].unique()) for rows in dealt) == 9, "no tree is in two updates"


class Coupled(BaseObjective):
    """-weight * tanh(mean log-probability and entropy of the couple): nothing that is a sum over rows."""

    def plan(self, forest, credited, updates):
        plan = super().plan(forest, credited, updates)
        return replace(plan, couple=forest.tree[forest.leaf], label=forest.leaf.float(), thresholds={"slope": 0.5})

    def __call__(self, batch):
        batch = clean(batch)
        loss = 0
        for couple in batch.couple.unique():
            of = batch.couple == couple
            level = ((batch.logprob + batch.entropy) * batch.label[:, None].cos())[of].sum() / batch.mask[of].sum()
            loss = loss - batch.weight[of].sum() * torch.tanh(batch.thresholds["slope"] * level)
        return loss, {"couples": (batch.couple.unique().numel() * torch.ones(()), torch.ones(()))}


def test_a_couple_larger_than_a_micro_batch_has_the_gradient_of_one_pass():
    def gradient(budget, layout):
        objective = Coupled("token", needs=frozenset({"entropy"}), skips=True)
        trained = learner(micro_batch_tokens=budget, layout=layout, **UNCLIPPED)
        credit = credited(zero_rows=(0, 3))
        (got,) = gradients_of_step(trained, objective, credit)
        metrics = learner(micro_batch_tokens=budget, layout=layout).step(forest(), credit, objective)
        return got, metrics

    expected, metrics = gradient(10**6, "tree")
    assert "rows_in_two_passes" not in metrics
    for budget in (60, 17, 1):  # whole couples fit into 60
        for layout in ("tree", "rows"):
            got, metrics = gradient(budget, layout)
            assert_close(got, expected, 1e-6)
            assert ("rows_in_two_passes" in metrics) == (budget < 60)


def test_each_epoch_deals_whole_groups_out_to_its_updates():
    trained, dealt = learner(updates_per_step=2, epochs=3), []
    update = trained._update
    trained._update = lambda forest, rows, *more: (dealt.append(rows.tolist()), update(forest, rows, *more))
    trained.step(forest(), credited(), PPOClip().build())
    assert len(dealt) == 6
    group = forest().group.tolist()
    for epoch in (dealt[0:2], dealt[2:4], dealt[4:6]):
        assert sorted(epoch[0] + epoch[1]) == list(range(forest().n_rows))
        assert not {group[r] for r in epoch[0]} & {group[r] for r in epoch[1]}
    assert trained.updates == 6


def test_later_updates_compare_with_the_weights_at_the_steps_start():
    # With a huge learning rate the second pass meets ratios far from 1; against the current weights they would be 1.
    trained = learner(lr=0.05, epochs=2)
    metrics = trained.step(forest(), credited(), PPOClip().build())
    assert abs(metrics["kl/old"]) > 1e-3
    once = learner(lr=0.05).step(forest(), credited(), PPOClip().build())
    assert once["kl/old"] == 0


def test_demonstrations_are_trained_by_their_origin():
    # Teachers' tokens and no others, without any advantage.
    trained = learner(**UNCLIPPED)
    metrics = trained.step(forest(), Credited(torch.zeros_like(credited().advantage)), SFT().build())
    rows = forest().rows()
    mask = forest().trainable(rows, (Origin.TEACHER,))
    assert mask.any()
    ids = rows.gather(forest().token)
    with torch.no_grad():
        logits = plain_model()(ids, attention_mask=rows.present.long(), use_cache=False).logits
    logprob = torch.nn.functional.pad(logits[:, :-1].log_softmax(-1).gather(2, ids[:, 1:, None]).squeeze(2), (1, 0))
    assert metrics["loss"] == pytest.approx(-float(logprob[mask].mean()), rel=1e-4)


def test_every_objective_has_the_mismatch_of_engine_and_learner_where_the_engine_drew():
    trained = learner(**UNCLIPPED)
    on_own = SFT().build()
    on_own.origins = (Origin.POLICY,)
    metrics = trained.step(forest(), credited(), on_own)
    plain = learner(**UNCLIPPED).step(forest(), credited(), PPOClip().build())
    assert metrics["importance/mismatch"] > 0.1  # what was drawn is made up
    assert metrics["importance/mismatch"] == pytest.approx(plain["importance/mismatch"], rel=1e-4)
    assert "importance/mismatch" not in learner(**UNCLIPPED).step(forest(), credited(), SFT().build())


def test_a_saved_learner_goes_on_to_the_same_bits(tmp_path):
    # Through a file, as a run does it: moments, counters, reference, value head.
    needs, objective = (
        frozenset({"reference_logprob", "value"}),
        PPOClip(value_coefficient=0.5, kl={"coefficient": 0.1}).build(),
    )
    config = {"lr": 0.02, "schedule": "cosine", "warmup_steps": 2, "updates_per_step": 2, "weight_decay": 0.1}
    first = learner(needs=needs, **config)

    def step(trained, k):
        annotated = trained.annotate(forest(), frozenset({"reference_logprob", "old_value"}))
        return trained.step(annotated, credited(k) if k != 1 else bad_credit_with_target(), objective)

    def bad_credit_with_target():
        return replace(bad_credit(), value_target=credited().value_target)

    for k in range(3):
        step(first, k)
    saved = checkpoint.save(tmp_path, 3, first.state_dict())
    for k in range(3, 6):
        step(first, k)

    other = learner(plain_model(seed=1), needs=needs, **config)
    other.load_state_dict(checkpoint.load(saved))
    assert (other.updates, other.skipped_steps) == (6, 1)
    for k in range(3, 6):
        step(other, k)
    assert same_bits(weights(other), weights(first))
    reference = [r.frozen["reference"].state() for r in (first, other)]
    assert same_bits(list(reference[0].values()), list(reference[1].values()))


def test_a_state_of_another_learner_is_refused():
    state = learner().state_dict()
    with pytest.raises(ValueError, match=r"learner.*optimizer"):
        learner().load_state_dict({name: value for name, value in state.items() if name != "optimizer"})
    with pytest.raises(ValueError, match="tensors saved"):
        learner(needs=frozenset({"value"})).load_state_dict(state)
