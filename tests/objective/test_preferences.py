"""Preference losses: TRL's numbers, what each reduces to, and what each adds to that."""

import math
from dataclasses import replace

import pytest
import torch
from graded_trees import graded
from tiny_models import plain_model, policy_like

from lyceum.core.component import kinds
from lyceum.core.forest import build_forest
from lyceum.core.settings import Composition
from lyceum.core.types import Credited
from lyceum.credit.gae import GAE
from lyceum.credit.leave_one_out import LeaveOneOut
from lyceum.learner.local import LocalConfig, LocalLearner
from lyceum.objective._pairs import TopMass
from lyceum.objective.dpo import DPO
from lyceum.objective.reinforce import ReinforceLoss
from lyceum.objective.sft import SFT
from lyceum.papers.a_lol.objective_a_lol import ALoL
from lyceum.papers.inpo.objective_inpo import INPO
from lyceum.papers.kto.objective_kto import KTO, mean_log_ratio
from lyceum.papers.oreo.objective_oreo import OREO
from lyceum.papers.orpo.objective_orpo import ORPO
from lyceum.papers.p3o.objective_p3o import P3O, drawn_pairs
from lyceum.papers.trpa.objective_trpa import TRPA, pairs_across
from lyceum.rollout.flat import Flat
from lyceum.utils.lazy_imports import Tensor

LOGPROB = [[-0.5, -1.0, -0.25], [-2.0, -0.5, 0.0], [-1.5, -0.75, -1.0], [-0.25, 0.0, 0.0]]
REFERENCE = [[-1.0, -1.25, -0.5], [-1.5, -0.75, 0.0], [-1.0, -1.0, -0.5], [-1.0, 0.0, 0.0]]
MASK = [[1, 1, 1], [1, 1, 0], [1, 1, 1], [1, 0, 0]]
"""Two chosen rows, then the two rejected ones."""

TRL = {
    "sigmoid": (0.659533500, [-0.0557525718, -0.0861663775, 0.0557525718, 0.0861663775]),
    "sigmoid_norm": (0.721228138, [-0.0228180656, -0.0423938061, 0.0228180656, 0.0847876121]),
    "hinge": (0.887500000, [-0.15, -0.15, 0.15, 0.15]),
    "ipo": (3.816840278, [-0.3611111111, -1.2708333333, 0.3611111111, 2.5416666667]),
    "robust": (0.645471000, [-0.0745025718, -0.1049163775, 0.0745025718, 0.1049163775]),
    "exo_pair": (0.473852419, [-0.0585784350, -0.0915700968, 0.0585784350, 0.0915700968]),
    "nca_pair": (1.370260040, [-0.0207504337, -0.0417167736, 0.0332989582, 0.0417010418]),
    "bco_pair": (1.342314695, [-0.0638336225, -0.0778111824, 0.0665979164, 0.0834020836]),
    "sppo_hard": (5.399305556, [-0.6666666667, -1.9166666667, 0.9166666667, 2.4166666667]),
    "apo_zero": (0.972149350, [-0.0366687468, -0.0374473150, 0.0370293666, 0.0370293666]),
    "apo_down": (1.000913815, [0.0016385034, 0.0007785683, 0.0350302434, 0.0366687468]),
}
"""Loss, and its gradient by each row's first token, of TRL 1.16.0 at beta 0.3 and label smoothing 0.1
(``benchmarks/preferences.py`` compares random pairs)."""


def pairs(batch_of, **columns):
    batch = batch_of(MASK, "sequence", logprob=LOGPROB, reference_logprob=REFERENCE, **columns)
    return replace(batch, couple=torch.tensor([0, 1, 0, 1]), label=torch.tensor([1.0, 1, -1, -1]))


def evaluated(objective, batch) -> tuple[float, Tensor]:
    loss, _ = objective(batch)
    return loss.item(), torch.autograd.grad(loss, batch.logprob)[0]


def dpo(loss, beta=0.3, smoothing=0.1):
    return DPO(loss=loss, beta=beta, label_smoothing=smoothing if loss in ("robust", "exo_pair") else 0).build()


@pytest.mark.parametrize("loss", TRL)
def test_losses_on_pairs_are_trls(loss, batch_of):
    value, gradient = evaluated(dpo(loss), pairs(batch_of))
    assert (value, gradient[:, 0].tolist()) == (pytest.approx(TRL[loss][0], 1e-6), pytest.approx(TRL[loss][1], 1e-6))
    assert (gradient[1, 2], gradient[3, 1]) == (0, 0), "nothing outside the mask"


def test_orpo_and_kto_are_trls(batch_of):
    value, gradient = evaluated(ORPO(beta=0.3).build(), pairs(batch_of))
    assert value == pytest.approx(1.309562663, 1e-6)
    assert gradient[:, 0].tolist() == pytest.approx([-0.1992898807, -0.344355084, 0.0217952529, 0.6086992621], 1e-6)
    weighted = torch.tensor([1.5, 1.5, 0.5, 0.5])[:, None]
    batch = replace(pairs(batch_of), thresholds={"kl": 0.7})
    value, gradient = evaluated(KTO(beta=0.3).build(), replace(batch, weight=batch.weight * weighted))
    assert value == pytest.approx(0.505192912, 1e-6)
    expected = [-0.0280681237, -0.0275615301, 0.0089451248, 0.0093744727]
    assert gradient[:, 0].tolist() == pytest.approx(expected, 1e-6)


def same(one, other):
    assert one[0] == pytest.approx(other[0], 1e-6)
    torch.testing.assert_close(one[1], other[1], rtol=1e-6, atol=1e-9)


def test_each_loss_reduces_to_a_simpler_one(batch_of):
    batch = pairs(batch_of)
    same(evaluated(DPO(loss="robust", beta=0.3).build(), batch), evaluated(dpo("sigmoid"), batch))
    of_chosen = replace(batch, mask=batch.mask & (batch.label > 0)[:, None])
    of_chosen = replace(of_chosen, weight=torch.where(of_chosen.mask, 2 * batch.weight, 0))
    same(evaluated(ORPO(beta=0).build(), batch), evaluated(SFT(aggregate="sequence").build(), of_chosen))
    unpaired = evaluated(KTO(loss="apo_zero_unpaired", beta=0.3).build(), batch)
    same(unpaired, [x / 2 for x in evaluated(dpo("apo_zero"), batch)])
    # With tau = eta the last policy is not in it: IPO on sums over tokens, which one token per row makes means.
    single = batch_of([[1]] * 4, "sequence", logprob=[x[:1] for x in LOGPROB], reference_logprob=[[-1.0]] * 4)
    single = replace(single, couple=batch.couple, label=batch.label)
    same(evaluated(INPO(eta=0.3, tau=0.3).build(), single), evaluated(dpo("ipo"), single))
    # Two levels of one sample each, no further factor, no trust region: DPO on log-ratios per token.
    levels = replace(batch, label=torch.tensor([1.0, 1, 2, 2]))
    trpa = TRPA(beta=0.3, anisotropy=1, trust_region=0).build()
    same(evaluated(trpa, levels), evaluated(dpo("sigmoid_norm"), batch))


def test_inpos_gap_is_to_the_mixture_of_reference_and_last_policy(batch_of):
    # One token per row. log-ratios to the reference: 0.5, -0.5; to the last policy: 0.25, 0. A third of the first and
    # two thirds of the second: (0.5 + 0.5) / 3 + 2 (0.25 - 0) / 3 = 0.5; 1 / (2 * 0.3) - 0.5 = 7/6.
    batch = batch_of([[1], [1]], "sequence", logprob=[[-0.5], [-1.5]], reference_logprob=[[-1.0], [-1.0]])
    batch = replace(batch, old_logprob=torch.tensor([[-0.75], [-1.5]]).double())
    batch = replace(batch, couple=torch.tensor([0, 0]), label=torch.tensor([1.0, -1.0]))
    assert INPO(eta=0.3, tau=0.1).build()(batch)[0].item() == pytest.approx((7 / 6) ** 2, 1e-6)


def test_what_a_pair_shows_is_measured(batch_of):
    batch = pairs(batch_of)
    columns = {"top_mass": torch.full_like(batch.logprob, 0.5), "top_entropy": torch.full_like(batch.logprob, 0.2)}
    _, metrics = DPO(top_k=5).build()(replace(batch, columns=columns))
    mean = {name: float(total / weight) for name, (total, weight) in metrics.items()}
    # chosen: -0.5 - 1 - 0.25 - 2 - 0.5 over 5 tokens; rejected: -1.5 - 0.75 - 1 - 0.25 over 4
    assert (mean["dpo/chosen_logprob"], mean["dpo/rejected_logprob"]) == pytest.approx((-0.85, -0.875))
    assert (mean["dpo/top_mass"], mean["dpo/top_entropy"]) == pytest.approx((0.5, 0.2))


def test_the_mass_and_entropy_of_the_top_tokens():
    logits = torch.tensor([[0.5, 0.25, 0.125, 0.125]]).log()
    found = TopMass(2)(logits, torch.tensor([3]), {})
    assert found["top_mass"].item() == pytest.approx(0.75)
    assert found["top_entropy"].item() == pytest.approx(0.5 * math.log(2) + 0.25 * math.log(4))
    certain = TopMass(9)(torch.tensor([[0.0, -math.inf]]), torch.tensor([0]), {})
    assert [certain[name].item() for name in ("top_mass", "top_entropy")] == [1, 0]


def everything(forest):
    return Credited(torch.zeros(forest.rows().index.shape)), [torch.arange(forest.n_rows)]


def test_ktos_reference_point_is_the_steps_mean_log_ratio_and_never_below_0():
    forest = build_forest([graded(1.0, 0.0, lengths=(2, 3))])
    at = dict.fromkeys(("old_logprob", "reference_logprob"), torch.full((forest.n_tokens,), -1.0))
    closer = forest.with_columns(**at | {"old_logprob": torch.full((forest.n_tokens,), -0.6)})
    plan = KTO().build().plan(closer, *everything(closer))
    assert plan.thresholds["kl"] == pytest.approx(0.4 * 2.5)  # 2 and 3 tokens
    assert plan.label.tolist() == [1, 0]
    further = forest.with_columns(**at | {"old_logprob": torch.full((forest.n_tokens,), -1.6)})
    assert mean_log_ratio(further, further.trainable(further.rows())) == 0
    assert KTO(undesirable_weight=0).build().plan(closer, *everything(closer)).trained.tolist() == [True, False]


def test_trpa_compares_all_levels_and_favours_the_correct_one():
    # Outcomes 1, 0.5, 0.5, 0: levels 1, 2, 2, 3, and 2 + 1 + 2 pairs. Without a correct one the best are level 2.
    forest = build_forest([graded(1.0, 0.5, 0.5, 0.0), graded(0.5, 0.0), graded(1.0, 1.0)])
    plan = TRPA().build().plan(forest, *everything(forest))
    assert plan.label.tolist() == [1, 2, 2, 3, 2, 3, 0, 0]
    assert plan.counts["pairs"] == 6
    assert plan.trained.tolist() == [True] * 6 + [False] * 2
    better, worse = pairs_across(plan.label[:6], plan.couple[:6])
    assert {*zip(better.tolist(), worse.tolist(), strict=True)} == {(0, 1), (0, 2), (0, 3), (1, 3), (2, 3), (4, 5)}


def test_trpa_multiplies_by_the_anisotropy_and_holds_to_the_last_policy(batch_of):
    batch = replace(pairs(batch_of), label=torch.tensor([1.0, 2, 3, 3]))
    plain = replace(batch, label=torch.tensor([2.0, 2, 3, 3]))
    margin = {}
    for name, of in (("correct", batch), ("plain", plain)):
        _, metrics = TRPA(beta=0.3, anisotropy=2.5).build()(of)
        margin[name] = float(metrics["trpa/margin"][0])
    # means per token: 1/3, -1/8 chosen; -1/4, 3/4 rejected: differences 7/12 and -7/8
    assert margin["correct"] == pytest.approx(0.3 * (2.5 * 7 / 12 - 7 / 8))
    assert margin["plain"] == pytest.approx(0.3 * (7 / 12 - 7 / 8))
    # The batch's last policy has -1 everywhere; k3 of -0.5 against it: exp(-0.5) - 1 + 0.5 on the first token.
    with_trust, without = (TRPA(beta=0.3, trust_region=c).build()(batch)[0].item() for c in (1.0, 0.0))
    x = -1 - torch.tensor(LOGPROB)
    kl = torch.where(torch.tensor(MASK) > 0, x.exp() - 1 - x, 0)
    assert with_trust - without == pytest.approx(float((batch.weight * kl).sum()), 1e-5)


def advantages(forest, *of_row):
    mask = forest.trainable(forest.rows())
    return Credited(torch.where(mask, torch.tensor(of_row)[:, None], 0.0))


def step(objective, forest, credited, updates=1):
    learner = LocalLearner(
        policy_like(plain_model()),
        LocalConfig(max_grad_norm=1e9, lr=1e-30, updates_per_step=updates),
        total_steps=1,
        needs=objective.columns | objective.needs,
    )
    metrics = learner.step(learner.annotate(forest, objective.columns), credited, objective)
    return metrics, [p.grad for p in learner.parameters]


def test_p3o_of_two_samples_has_leave_one_outs_gradient_and_no_constant_changes_it():
    forest = build_forest([graded(1.0, 0.0), graded(0.25, 0.75), graded(1.0, 1.0)])
    _, expected = step(ReinforceLoss(aggregate="constant", constant=1).build(), forest, LeaveOneOut().build()(forest))
    for shift in (0.0, 5.0):
        outcomes = [reward + shift for reward in (1.0, 0.0, 0.25, 0.75, 1.0, 1.0)]
        for clip in ("joint", "separate"):
            metrics, got = step(P3O(clip=clip).build(), forest, advantages(forest, *outcomes))
            assert (metrics["pairs"], metrics["pairs/equal"]) == (2, 1)
            assert all(torch.allclose(g, e, atol=1e-6) for g, e in zip(got, expected, strict=True))


def test_p3os_joint_clip_stops_what_two_separate_clips_let_through(batch_of):
    # Ratios 1.15 and 1 / 1.15 are each within 0.2 of 1; theirs is 1.32. The first was better: no further gain.
    far = math.log(1.15)
    columns = {"logprob": [[-1 + far], [-1 - far]], "advantage": [[1.0], [0.0]]}
    batch = replace(
        batch_of([[1], [1]], "sequence", **columns), couple=torch.tensor([0, 0]), label=torch.tensor([1.0, -1.0])
    )
    assert evaluated(P3O(clip="joint").build(), batch)[1].tolist() == [[0], [0]]
    separate = evaluated(P3O(clip="separate").build(), batch)[1]
    assert separate.flatten().tolist() == pytest.approx([-0.5 * 1.15, 0.5 / 1.15], 1e-6)
    assert drawn_pairs([0, 1, 0, 0, 1, 0, 0], [True] * 5 + [False, True]) == [(0, 2), (1, 4), (3, 6)]


def test_a_lol_learns_from_positive_advantages_alone_by_a_clipped_ratio():
    forest = build_forest([graded(1.0, 0.0, 0.5)])
    credited = advantages(forest, 0.5, -0.5, 0.0)
    plan = ALoL().build().plan(forest, credited, [torch.arange(3)])
    assert (plan.trained.tolist(), plan.counts) == ([True, False, False], {"a-lol/kept": 1, "a-lol/left_out": 2})
    torch.testing.assert_close(plan.weight.sum(), torch.tensor(1.0))


def test_a_lols_ratio_is_of_the_whole_sample_and_has_no_gradient(batch_of):
    # Log-ratios 0.25 and 0.5: ratio e^0.75 = 2.117, clipped at 1.9; by token e^0.25 = 1.284 and e^0.5 = 1.649.
    columns = {"logprob": [[-0.75, -0.5]], "reference_logprob": [[-1.0, -1.0]], "advantage": [[2.0, 2.0]]}
    batch = batch_of([[1, 1]], "constant", 1, **columns)
    of = {
        r: evaluated(ALoL(ratio=r, aggregate="constant", constant=1).build(), batch)[1]
        for r in ("sequence", "token", "none")
    }
    assert of["sequence"].flatten().tolist() == pytest.approx([-3.8, -3.8])
    assert of["token"].flatten().tolist() == pytest.approx([-2 * math.exp(0.25), -2 * math.exp(0.5)])
    assert of["none"].flatten().tolist() == pytest.approx([-2, -2])


def test_oreos_errors_are_those_of_the_soft_bellman_equation(batch_of):
    # beta 0.5, log-ratios 0.5 and -1: soft rewards 0.25, -0.5. Reward 1, values 0.5, 0.25: errors
    # 0.5 + 0.25 - 0.5 - 1 = -0.75 and 0.25 - 0.5 - 1 = -1.25.
    columns = {"logprob": [[-0.5, -2.0]], "reference_logprob": [[-1.0, -1.0]], "value": [[0.5, 0.25]]}
    batch = replace(batch_of([[1, 1]], "constant", 1, **columns), label=torch.tensor([1.0]))
    batch = replace(batch, value=batch.value.clone().requires_grad_())
    loss, metrics = OREO(beta=0.5, kl=0).build()(batch)
    assert loss.item() == pytest.approx(2 * (0.75**2 + 1.25**2))
    of_policy, of_value = torch.autograd.grad(loss, (batch.logprob, batch.value))
    # Each token's soft reward in its own error alone: 2 e beta; V in its own: 2 e.
    assert of_policy.flatten().tolist() == pytest.approx([-0.75, -1.25])
    assert of_value.flatten().tolist() == pytest.approx([-1.5, -2.5])
    assert float(metrics["oreo/error"][0]) == pytest.approx(0.75**2 + 1.25**2)
    (nothing,) = torch.autograd.grad(OREO(beta=0, kl=0).build()(batch)[0], batch.logprob)
    assert nothing.abs().sum() == 0, "without beta the values alone are fitted"


OBJECTIVES = (DPO(top_k=4), DPO(loss="ipo"), ORPO(), INPO(), KTO(), P3O(), TRPA(), ALoL(), OREO())


@pytest.mark.parametrize("component", OBJECTIVES, ids=lambda c: c.kind)
def test_any_split_into_micro_batches_and_updates_gives_the_same_gradient(component):
    forest = build_forest([graded(1.0, 0.0, 1.0, 0.5), graded(0.0, 1.0)])
    credited = advantages(forest, 0.5, -0.5, 0.5, -0.25, -0.5, 0.5)
    objective = component.build()

    def gradients(budget):
        learner = LocalLearner(
            policy_like(plain_model()),
            LocalConfig(micro_batch_tokens=budget, max_grad_norm=1e9, lr=1e-30),
            total_steps=1,
            needs=objective.columns | objective.needs,
        )
        metrics = learner.step(learner.annotate(forest, objective.columns), credited, objective)
        return metrics, [p.grad for p in learner.parameters]

    (whole, expected), (split, got) = gradients(10**6), gradients(11)
    assert split["loss"] == pytest.approx(whole["loss"], 1e-5)
    largest = max(float(e.abs().max()) for e in expected)
    assert largest > 0
    assert all(float((g - e).abs().max()) <= 2e-6 * largest for g, e in zip(got, expected, strict=True))
    timed = ("seconds/train", "rows_in_two_passes", "tokens_trained", "loss", "grad_norm")
    assert {k: v for k, v in split.items() if k not in timed} == pytest.approx(
        {k: v for k, v in whole.items() if k not in timed}, rel=1e-4, abs=1e-6
    )


def test_what_they_cannot_use_is_refused_with_the_recipe():
    for component in (DPO(), ORPO(), INPO(), P3O(), TRPA()):
        lines = component.conflicts(Composition(rollout=Flat(samples=1), credit=GAE()))
        assert [line.split(":")[0] for line in lines] == ["credit.kind", "rollout.samples"], component.kind
    for component in (KTO(), OREO()):
        lines = component.conflicts(Composition(rollout=Flat(samples=1), credit=GAE()))
        assert [line.split(":")[0] for line in lines] == ["credit.kind"], component.kind
    for settings in ({"label_smoothing": 0.1}, {"loss": "exo_pair"}):
        with pytest.raises(ValueError, match="label_smoothing"):
            DPO(**settings)
    with pytest.raises(ValueError, match="tau: got 2, but eta is 1"):
        INPO(eta=1, tau=2)


def test_without_their_labels_they_are_refused(batch_of):
    for kind in ("dpo", "orpo", "inpo", "p3o", "kto", "trpa", "oreo"):
        with pytest.raises(ValueError, match=f"'{kind}' needs"):
            kinds("objective")[kind]().build()(batch_of([[1]], reference_logprob=[[-1.0]]))
