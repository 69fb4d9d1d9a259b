"""AdamW whose moments are in 8 bits: what it keeps, how near it is to 32 bits, and that it resumes to the bit."""

from importlib.util import find_spec

import pytest
import torch
from learner_steps import trained
from tiny_models import plain_model, policy_like

from lyceum.learner import local
from lyceum.learner.fsdp import FsdpConfig
from lyceum.learner.local import LocalConfig
from lyceum.recipe.schema import load_recipe
from lyceum.run import checkpoint
from lyceum.training.train import check
from lyceum.utils.errors import RecipeError

installed = pytest.mark.skipif(find_spec("bitsandbytes") is None, reason="bitsandbytes is not installed")
EIGHT = "adamw-8bit"


def learner(optimizer):
    # wide enough for matrices of 4096 numbers, from which on moments are in 8 bits
    settings = LocalConfig(lr=1e-3, weight_decay=0.1, optimizer=optimizer)
    return settings.build(policy_like(plain_model(hidden_size=96)), total_steps=10, needs=frozenset())


@installed
def test_a_resumed_learner_goes_on_to_the_bit(tmp_path):
    whole = learner(EIGHT)
    trained(whole, range(2))
    resumed = learner(EIGHT)
    resumed.load_state_dict(checkpoint.load(checkpoint.save(tmp_path, 2, whole.state_dict())))
    assert all(map(torch.equal, trained(whole, range(2, 4)), trained(resumed, range(2, 4))))


@installed
def test_moments_take_two_bytes_of_a_large_matrix_and_updates_are_near_those_of_32_bits():
    begun, of_32, eight = (learner(kind) for kind in ("adamw", "adamw", EIGHT))
    version = [p._version for p in eight.parameters]
    start, exact, near = trained(begun, ()), trained(of_32, range(3)), trained(eight, range(3))
    assert all(p._version > before for p, before in zip(eight.parameters, version, strict=True)), "engines ask for it"
    moved = sum(float((e - s).square().sum()) for e, s in zip(exact, start, strict=True)) ** 0.5
    apart = sum(float((e - n).square().sum()) for e, n in zip(exact, near, strict=True)) ** 0.5
    assert 0 < apart < 0.2 * moved
    large = max(eight.parameters, key=torch.numel)
    kept = [x for x in eight.optimizer.state[large].values() if isinstance(x, torch.Tensor) and len(x.flatten()) != 256]
    assert sum(x.nbytes for x in kept) == 2 * large.numel() + 2 * 4 * -(-large.numel() // 256)


def test_without_the_library_it_is_refused_before_a_model_loads(monkeypatch):
    monkeypatch.setattr(local, "find_spec", lambda name: None)
    recipe = load_recipe("grpo", [f"learner.optimizer={EIGHT}"])
    with pytest.raises(
        RecipeError, match=r"learner\.optimizer: got 'adamw-8bit', which needs bitsandbytes: pip install"
    ):
        check(recipe)
    with pytest.raises(ValueError, match="adamw"):
        FsdpConfig.model_validate({"optimizer": EIGHT})
