"""The slow average of a policy, an averaged reference, and log-probabilities under a frozen model."""

import pytest
import torch
from tiny_models import CONFIGS, plain_model, policy_like
from transformers import AutoModelForCausalLM

from lyceum.core.types import Scored
from lyceum.models.frozen import (
    AverageSettings,
    FrozenAdapters,
    FrozenSettings,
    ReferenceSettings,
    SlowAverage,
    Soup,
    check_reference,
    freeze,
)
from lyceum.models.load import LoraSettings, ModelSettings, _with_adapters, load_policy, save_policy
from lyceum.models.packed_paths import path_logprobs
from lyceum.models.policy import Policy
from lyceum.utils.errors import RecipeError


def set_all(policy, value):
    with torch.no_grad():
        for parameter in policy.module.parameters():
            if parameter.requires_grad:
                parameter.fill_(value)


def values(average):
    return set(torch.cat([own.flatten() for own in average.own]).tolist())


def with_adapters():
    settings = ModelSettings(path="scratch", lora=LoraSettings(rank=2, alpha=4))
    return Policy(_with_adapters(policy_like(plain_model()).module, settings), policy_like(plain_model()).tokenizer)


@pytest.mark.parametrize("made", [lambda: policy_like(plain_model()), with_adapters])
def test_the_average_goes_a_share_of_the_way_every_so_many_steps(made):
    # From 1 the policy goes to 2: after the 2nd step 0.75 * 1 + 0.25 * 2 = 1.25, after the 4th 0.75 * 1.25 + 0.5 =
    # 1.4375, 0.5625 from the policy, whose weights are all 2: 0.28125 of its norm.
    policy = made()
    set_all(policy, 1.0)
    average = SlowAverage(policy, AverageSettings(decay=0.75, every=2))
    set_all(policy, 2.0)
    assert average.observe() == {"average/distance": pytest.approx(0.5), "average/updates": 0}
    assert values(average) == {1.0}
    average.observe()
    assert values(average) == {1.25}
    average.observe()
    assert values(average) == {1.25}
    assert average.observe() == {"average/distance": pytest.approx(0.28125), "average/updates": 2}
    assert all((p == 2).all() for p in average.followed), "the policy stays as it is"


def test_an_average_of_adapters_is_the_policy_with_averaged_adapters():
    policy = with_adapters()
    average = SlowAverage(policy, AverageSettings(decay=0.5))
    assert isinstance(average.frozen, FrozenAdapters), "no copy of the model is needed"
    before = [p.detach().clone() for p in average.followed]
    set_all(policy, 0.1)
    average.observe()
    path = Scored(list(range(3, 20)), 1, 17)
    with average.loaded() as own:
        slow = path_logprobs(own, [path], 100)
    assert slow != path_logprobs(policy, [path], 100)
    # It is halfway between the first adapters and 0.1 everywhere.
    with torch.no_grad():
        for parameter, first in zip(average.followed, before, strict=True):
            parameter.copy_((first + 0.1) / 2)
    torch.testing.assert_close(torch.tensor(path_logprobs(policy, [path], 100)), torch.tensor(slow))


def test_in_half_precision_small_steps_are_not_rounded_away():
    # bfloat16 holds 8 bits: from 1 a step of 0.005 * 0.1 rounds back to 1, a hundred times over.
    policy = Policy(plain_model().to(torch.bfloat16), policy_like(plain_model()).tokenizer)
    set_all(policy, 1.0)
    average = SlowAverage(policy, AverageSettings(decay=0.995))
    set_all(policy, 1.1015625)  # which bfloat16 holds
    for _ in range(100):
        average.observe()
    (reached,) = values(average)
    assert reached == pytest.approx(1 + 0.1015625 * (1 - 0.995**100), rel=1e-5)


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("tokens", [1, 1000])
def test_paths_that_share_a_prefix_are_as_likely_as_transformers_says(name, tokens):
    model = plain_model(name)
    paths = [
        Scored([3, 4, 5, 6, 7], 1, 5),
        Scored([3, 4, 5, 8, 9, 10], 3, 6),
        Scored([3, 4, 5, 8, 9, 10], 4, 5),
        Scored([11, 4], 1, 2),
    ]
    found = path_logprobs(policy_like(model), paths, tokens)
    for path, of_path in zip(paths, found, strict=True):
        logits = model(torch.tensor([path.tokens])).logits[0].float().log_softmax(-1)
        expected = [logits[at - 1, path.tokens[at]].item() for at in range(path.start, path.stop)]
        assert of_path == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("adapters", [False, True])
def test_an_averaged_reference_is_the_weighted_mean_of_all_models(tmp_path, adapters):
    # The policy is 2 everywhere, the other model 6: (3 * 2 + 1 * 6) / 4 = 3, half of the policy's norm away from it.
    other = scratch(6.0)
    save_policy(other, tmp_path / "other")
    policy = scratch(2.0, LoraSettings(rank=2) if adapters else None)
    settings = ReferenceSettings(average=({"path": "policy", "share": 3}, {"path": str(tmp_path / "other")}))
    (reference,) = freeze(policy, frozenset({"reference"}), FrozenSettings(reference=settings)).values()
    assert isinstance(reference, Soup)
    assert {float(p.unique()) for p in reference.policy.module.parameters()} == {3.0}
    assert reference.distance == pytest.approx(0.5)
    state = reference.state()
    again = freeze(other, frozenset({"reference"}), FrozenSettings(reference=ReferenceSettings(average=("policy",))))[
        "reference"
    ]
    again.load_state(state)
    assert {float(p.unique()) for p in again.policy.module.parameters()} == {3.0}
    assert again.distance == pytest.approx(0.5), "a resumed run says the same"


def scratch(value, lora=None):
    policy = load_policy(ModelSettings(path="scratch"))
    set_all(policy, value)
    return policy if lora is None else Policy(_with_adapters(policy.module, ModelSettings(lora=lora)), policy.tokenizer)


def test_a_model_of_another_shape_is_refused_before_anything_loads(tmp_path):
    model = ModelSettings(path="scratch")
    policy = load_policy(model)
    config = type(policy.causal.config)(**{**policy.causal.config.to_dict(), "intermediate_size": 32})
    save_policy(Policy(AutoModelForCausalLM.from_config(config), policy.tokenizer), tmp_path / "narrow")
    with pytest.raises(RecipeError, match=r"reference.average.1: .*mlp.* has shape .*, the model's .*; allowed"):
        check_reference(ReferenceSettings(average=("base", str(tmp_path / "narrow"))), model, policy.tokenizer)
    with pytest.raises(RecipeError, match=r"reference.average.0.path: got './nothing'"):
        check_reference(ReferenceSettings(average=("./nothing",)), model, policy.tokenizer)
