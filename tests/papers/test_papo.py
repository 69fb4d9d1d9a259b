"""PAPO: what the masked policy is shown, and the loss made of it."""

import copy
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from tiny_sight import drawn, noise, prompt_of, tiny

from lyceum.core.forest import build_forest
from lyceum.core.pictures import id_and_place, is_picture, rate_of
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Grade, Task
from lyceum.learner._forward import row_outputs
from lyceum.models.picture_trial import model_inputs
from lyceum.models.policy import Policy
from lyceum.papers.papo.objective_papo import LOGPROB, Mask, MaskedPolicy, PerceptionAware, masked_pixels
from lyceum.tasks.chain import Chain
from lyceum.tasks.pictures import Pictures
from lyceum.utils.errors import RecipeError


def test_patches_are_black_in_the_share_asked_for_and_the_same_each_time():
    pixels = np.full((120, 130, 3), 200, np.uint8)
    mask = Mask(share=0.6, patch=10)
    masked = masked_pixels(pixels, mask, id=5)
    patches = masked[:, :130].reshape(12, 10, 13, 10, 3)
    black = (patches == 0).all((1, 3, 4))
    assert ((patches == 200).all((1, 3, 4)) ^ black).all()  # each whole or black
    assert 0.5 < black.mean() < 0.7
    assert (masked == masked_pixels(pixels, mask, id=5)).all()
    assert (masked != masked_pixels(pixels, mask, id=6)).any()
    assert masked_pixels(pixels[:33, :7], mask, id=5).shape == (33, 7, 3)
    assert not masked_pixels(pixels, Mask(share=1), id=5).any()


@pytest.mark.parametrize("layout", ["tree", "rows"])
def test_the_masked_policy_is_that_of_a_prompt_with_masked_pictures(layout):
    model, tokenizer = tiny("internvl")
    policy = Policy(copy.deepcopy(model), tokenizer)
    pixels = [noise(seed) for seed in (1, 2)]
    prompt = prompt_of(policy, "ab?", *pixels)
    answers = ([20, 21, 22], [20, 30])
    tree = Tree(Task("t", ()), [Node.prompt(prompt)])
    for answer in answers:
        tree.roots[0].add_drawn(drawn(answer)).grade = Grade(1.0)
    forest = build_forest([tree])
    wanted = forest.trainable(forest.rows())
    reduction = MaskedPolicy(Mask(share=0.5, patch=4), old=False)
    out = row_outputs(policy, forest, wanted, layout=layout, reductions=[reduction])
    plain = row_outputs(policy, forest, wanted, layout=layout)
    assert torch.equal(out.logprob, plain.logprob)
    assert policy.shown is None
    out.columns[LOGPROB].sum().backward()
    assert any(weight.grad is not None for weight in policy.module.parameters())

    once = row_outputs(policy, forest, wanted, layout=layout, reductions=[MaskedPolicy(reduction.mask, old=True)])
    assert torch.equal(once.columns[LOGPROB], out.columns[LOGPROB])
    assert not once.columns[LOGPROB].requires_grad

    shown = reduction.view(policy)(prompt)
    ids = [id_and_place(token)[0] for token in shown if is_picture(token)]
    before = [id_and_place(token)[0] for token in prompt if is_picture(token)]
    assert len(ids) == len(before)
    assert not set(ids) & set(before)
    assert [rate_of(id) for id in ids] == [rate_of(id) for id in before]
    assert [token for token in shown if not is_picture(token)] == [token for token in prompt if not is_picture(token)]
    for row, answer in enumerate(answers):
        path = [*shown, *answer]
        plain_ids = torch.tensor([policy.sight.pictures.plain(path)])
        inputs = model_inputs(model, policy.sight.pictures, path)
        logits = model(input_ids=plain_ids, **inputs, use_cache=False).logits[0]
        own = logits.log_softmax(-1)[len(prompt) - 1 : -1].gather(1, torch.tensor(answer)[:, None]).squeeze(1)
        found = out.columns[LOGPROB][row][wanted[row]]
        torch.testing.assert_close(found, own, rtol=0, atol=1e-5)
        assert (found - out.logprob[row][wanted[row]]).abs().max() > 1e-4


def test_the_loss_falls_as_the_answer_needs_the_picture_more(batch_of):
    mask = [[True, True, False]]
    columns = {name: torch.full((1, 3), -2.0, dtype=torch.float64) for name in (LOGPROB, f"old_{LOGPROB}")}
    columns |= dict.fromkeys(("masked_entropy", "old_masked_entropy"), torch.full((1, 3), 0.5, dtype=torch.float64))
    batch = batch_of(mask, advantage=[[0.0, 0.0, 0.0]], **columns)
    objective = PerceptionAware(perception=0.1).build()
    loss, metrics = objective(batch)
    k3 = np.exp(-1) + 1 - 1  # exp(-2 - -1) - (-2 - -1) - 1
    assert float(loss.detach()) == pytest.approx(-0.1 * k3)
    (gradient,) = torch.autograd.grad(loss, batch.logprob)
    assert gradient[0, :2].tolist() == pytest.approx([-0.1 * (1 - np.exp(-1)) / 2] * 2)
    total, count = metrics["perception/kl"]
    assert float(total / count) == pytest.approx(k3)
    assert float(metrics["perception/likelier_seen"][0]) == 2
    both, _ = PerceptionAware(perception=0.1, through_masked=True, masked_entropy=0.2).build()(batch)
    assert float(both.detach()) == pytest.approx(-0.1 * k3 + 0.2 * 0.5)


def test_an_entropy_without_a_gradient_is_refused():
    with pytest.raises(ValidationError, match=r"masked_entropy: got 0\.1 with through_masked=false"):
        PerceptionAware(masked_entropy=0.1)


def test_a_model_of_text_is_refused():
    with pytest.raises(RecipeError, match="the model takes no pictures; allowed: one that does"):
        MaskedPolicy(Mask(), old=True).view(SimpleNamespace(sight=None))


def test_tasks_without_pictures_are_refused():
    PerceptionAware().check_tasks(Pictures().build("train", 0))
    with pytest.raises(RecipeError, match="shows no picture; allowed: tasks with pictures, such as kind 'pictures'"):
        PerceptionAware().check_tasks(Chain().build("train", 0))
