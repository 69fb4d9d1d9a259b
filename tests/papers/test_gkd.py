"""On-policy distillation: divergences by hand, their pieces, and what the recipe does as shipped."""

import json
import math

import pytest
import torch
from pydantic import ValidationError

from lyceum.models.load import ModelSettings, load_policy
from lyceum.papers.gkd.objective_gkd import DIVERGENCE, GKD, MASS, Divergence, divergence, on_support
from lyceum.recipe.schema import load_recipe
from lyceum.training.train import train
from lyceum.utils.errors import RecipeError

P, Q = torch.tensor([[0.5, 0.25, 0.25]]).log(), torch.tensor([[0.25, 0.25, 0.5]]).log()
LOG2 = math.log(2)


def test_divergences_by_hand():
    # forward: 1/4 log(1/2) + 0 + 1/2 log 2 = log(2) / 4; reverse, since P and Q are each other's mirror image, too.
    assert divergence(P, Q, "forward").item() == pytest.approx(LOG2 / 4)
    assert divergence(P, Q, "reverse").item() == pytest.approx(LOG2 / 4)
    assert divergence(P, P, "jsd").item() == pytest.approx(0, abs=1e-7)
    # beta 1/4: m = (7/16, 1/4, 5/16); KL(q || m) = log(4/7)/4 + log(8/5)/2, KL(p || m) = log(8/7)/2 + log(4/5)/4.
    of_teacher = math.log(4 / 7) / 4 + math.log(8 / 5) / 2
    of_policy = math.log(8 / 7) / 2 + math.log(4 / 5) / 4
    assert divergence(P, Q, "jsd", 0.25).item() == pytest.approx(of_teacher / 4 + 3 * of_policy / 4)


def test_forward_and_reverse_are_not_exchanged():
    # The teacher says one of two things, the policy the first alone: covering both costs log 2 and the rest's
    # log-probability, keeping to one costs log 2.
    one = torch.tensor([[0.98, 0.01, 0.01]]).log()
    both = torch.tensor([[0.495, 0.495, 0.01]]).log()
    assert divergence(one, both, "forward").item() > 1.5
    assert divergence(one, both, "reverse").item() == pytest.approx(
        0.98 * math.log(0.98 / 0.495) + 0.01 * math.log(0.01 / 0.495)
    )


def test_top_k_compares_the_leading_models_tokens_and_the_rest_as_one():
    # Forward, k = 1: the teacher's most likely is token 2: (1/2, 1/2) against the policy's (1/4, 3/4).
    forward = Divergence("forward", 0.5, 1)(P, torch.zeros(1, dtype=torch.long), {"teacher": Q})
    expected = 0.5 * math.log(2) + 0.5 * math.log(0.5 / 0.75)
    assert forward[DIVERGENCE].item() == pytest.approx(expected, abs=1e-6)
    assert forward[MASS].item() == pytest.approx(0.5)
    # Reverse: the policy's most likely is token 0, of which the teacher has 1/4.
    reverse = Divergence("reverse", 0.5, 1)(P, torch.zeros(1, dtype=torch.long), {"teacher": Q})
    assert reverse[DIVERGENCE].item() == pytest.approx(expected, abs=1e-6)
    assert reverse[MASS].item() == pytest.approx(0.25)
    whole = Divergence("forward", 0.5, 0)(P, torch.zeros(1, dtype=torch.long), {"teacher": Q})
    assert whole[DIVERGENCE].item() == pytest.approx(LOG2 / 4)
    assert whole[MASS].item() == 1


def test_top_k_is_finite_where_the_chosen_tokens_have_all_the_mass():
    sure = torch.tensor([[50.0, 0, 0, 0]], requires_grad=True)
    out = on_support(sure.log_softmax(-1), torch.tensor([[0, 1]]))
    (gradient,) = torch.autograd.grad(out.sum(), sure)
    assert out.isfinite().all()
    assert gradient.isfinite().all()


@pytest.mark.parametrize("how", ["forward", "reverse", "jsd"])
def test_the_gradient_is_zero_where_the_policy_is_the_teacher(how):
    logits = torch.tensor([[1.0, -0.5, 0.2]], requires_grad=True)
    found = divergence(logits.log_softmax(-1), logits.detach().log_softmax(-1), how)
    (gradient,) = torch.autograd.grad(found.sum(), logits)
    torch.testing.assert_close(gradient, torch.zeros(1, 3), rtol=0, atol=1e-6)


def test_the_reward_is_a_policy_gradient_beside_the_divergence(batch_of):
    # Two tokens of weight 1/2: divergences 1 and 3, minus 0.5 * A * log-probability with A 2 and -1 at -1: 1 and -0.5.
    batch = batch_of(
        [[1, 1]],
        advantage=[[2.0, -1.0]],
        **{DIVERGENCE: torch.tensor([[1.0, 3.0]]), MASS: torch.ones(1, 2)},
    )
    loss, metrics = GKD(reward=0.5).build()(batch)
    assert loss.item() == pytest.approx((1 + 1 + 3 - 0.5) / 2)
    assert metrics["teacher/divergence"] == (4.0, 2.0)


def test_top_k_of_a_mixture_is_refused():
    with pytest.raises(ValidationError, match="top_k: got 5 with divergence 'jsd'"):
        GKD(divergence="jsd", top_k=5)


TINY = ["evaluate.n=0", "stages.0.steps=1", "stages.0.tasks_per_step=2", "stages.1.tasks_per_step=4"]
TINY += ["stages.1.rollout.samples=2", "stages.1.rollout.sampling.max_completion_tokens=16"]


def metrics_of(path):
    return [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]


def test_the_recipe_as_shipped_draws_the_policy_to_its_teacher(tmp_path):
    keys = [*TINY, "stages.1.steps=5", "stages.1.learner.lr=3e-3", "stages.1.learner.warmup_steps=0"]
    path = train(load_recipe("gkd", [*keys, f"output={tmp_path}"]))
    lines = [line for line in metrics_of(path) if line["stage"] == "online"]
    divergences = [line["teacher/divergence"] for line in lines]
    assert divergences[-1] < 0.8 * divergences[0]
    assert all(line["skipped_steps"] == 0 and line["grad_norm"] > 0 for line in lines)
    summary = json.loads((path / "summary.json").read_text())
    assert summary["learnt"], "a teacher is a signal even where no reward differs"


@pytest.mark.slow
def test_a_student_learns_what_its_teacher_was_trained_on(tmp_path):
    # The teacher: the base model after fine-tuning on worked solutions. The student: the base model, which is given
    # no reward and no solution. On what it samples itself the divergence falls, and its answers become correct.
    common = ["evaluate.n=0", f"output={tmp_path}", "model=base"]
    sft = ["steps=20", "tasks_per_step=32", "learner.lr=5e-4", "learner.warmup_steps=0", "name=teacher"]
    teacher = train(load_recipe("sft", [*common, *sft])) / "model"
    keys = ["stages.0.steps=1", "stages.0.learner.lr=1e-9", "stages.0.tasks_per_step=1"]
    keys += ["stages.1.steps=9", "stages.1.tasks_per_step=16", "stages.1.learner.lr=3e-4"]
    keys += ["stages.1.learner.warmup_steps=0", f"stages.1.teacher={teacher}", "name=student"]
    keys += ["stages.1.objective.divergence=reverse"]
    lines = metrics_of(train(load_recipe("gkd", [*common, *keys])))[1:]
    divergence, correct = ([line[name] for line in lines] for name in ("teacher/divergence", "correct/mean"))
    assert sum(divergence[-3:]) / 3 < 0.5 * divergence[0]
    assert sum(correct[-3:]) / 3 > correct[0] + 0.15


def test_a_recipe_without_a_teacher_or_with_an_idle_one_is_refused():
    with pytest.raises(RecipeError, match=r"teacher: got none, but objective\.kind 'gkd'"):
        load_recipe("gkd", ["stages.1.teacher=null"])
    with pytest.raises(RecipeError, match=r"teacher: got 'base', but nothing here reads it; allowed: none"):
        load_recipe("grpo", ["teacher=base"])


def test_a_teacher_of_another_vocabulary_is_refused_before_a_model_is_loaded(tmp_path, monkeypatch):
    policy = load_policy(ModelSettings(path="scratch"))
    policy.tokenizer.add_tokens(["<other>"])
    policy.causal.resize_token_embeddings(len(policy.tokenizer))
    policy.causal.save_pretrained(tmp_path / "other")
    policy.tokenizer.save_pretrained(tmp_path / "other")
    monkeypatch.setattr("lyceum.training.train.load_policy", lambda _: pytest.fail("a model was loaded"))
    with pytest.raises(
        RecipeError, match=r"teacher.path: got .*other.*vocabulary is not the model's: 100 tokens and 99"
    ):
        train(load_recipe("gkd", [*TINY, f"stages.1.teacher={tmp_path / 'other'}", f"output={tmp_path}"]))
    with pytest.raises(RecipeError, match=r"^teacher.path: got .*nowhere"):
        train(load_recipe("gkd", [*TINY, f"stages.1.teacher={tmp_path / 'nowhere'}", f"output={tmp_path}"]))
    assert not (tmp_path / "gkd").exists()
