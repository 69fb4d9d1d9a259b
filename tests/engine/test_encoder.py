"""Pictures encoded in a process of their own, against the same engine without one."""

import asyncio
import os
import signal

import pytest
import torch
from safetensors.torch import load
from tiny_sight import FAMILIES, noise, prompt_of, tiny

from lyceum.core.pictures import pictures_among
from lyceum.core.types import Request, Sampling
from lyceum.engine import _encoder
from lyceum.engine._encoder import EncoderSettings, PictureFeatures, built, packed, put, tower, unpacked
from lyceum.engine.embedded import EmbeddedConfig
from lyceum.models.load import ModelSettings, load_policy
from lyceum.models.policy import Policy
from lyceum.models.scratch_pictures import build_scratch_pictures
from lyceum.models.sight import encoded
from lyceum.utils.errors import EncoderLost, RecipeError

APART = {"process": True, "at_once": 2, "ahead": 4, "seconds": 60}


@pytest.mark.parametrize("name", FAMILIES)
def test_a_tower_without_its_text_model_gives_the_same_features(name):
    policy = Policy(*tiny(name))
    ids = pictures_among(prompt_of(policy, "a", noise(1), noise(2)))
    with torch.inference_mode():
        want = policy.sight.encode(ids)
    config, weights = tower(policy.sight)
    assert len(weights) < sum(p.numel() * p.element_size() for p in policy.module.parameters())
    inner = built(config, weights)
    with torch.inference_mode():
        all_seen = [policy.sight.pictures.seen(id) for id in ids]
        found = encoded(inner, [seen.inputs for seen in all_seen], [seen.places for seen in all_seen])
    for a, b in zip(want, unpacked(packed(found)), strict=True):
        assert torch.equal(a.embedding, b.embedding)
        assert len(a.levels) == len(b.levels) == (2 if name == "qwen3-vl" else 0)
        assert all(map(torch.equal, a.levels, b.levels))


def test_weights_of_another_model_are_refused():
    ours, theirs = (Policy(*tiny(name)).sight for name in ("internvl", "smolvlm"))
    with pytest.raises(ValueError, match="weights of another model: connector"):
        put(built(*tower(ours)), load(tower(theirs)[1]))


def test_groups_follow_from_the_order_of_requests_and_what_is_needed_when(monkeypatch):
    policy = Policy(*tiny("internvl"))
    ids = pictures_among(prompt_of(policy, "a", *(noise(n) for n in range(6))))
    together = []
    encode = policy.sight.encode
    monkeypatch.setattr(policy.sight, "encode", lambda group: together.append(list(group)) or encode(group))
    features = PictureFeatures(policy.sight, EncoderSettings(at_once=2, hold=3))
    features.expect(ids[:3])
    features.of(ids[1:2])
    features.expect(ids[3:4])  # joins the third, which waits
    features.of(ids[4:5])  # alone: needed at once
    features.of(ids[2:4])
    assert together == [ids[:2], ids[4:5], ids[2:4]]
    assert list(features) == ids[4:5] + ids[2:4]  # three are held
    features.of(ids[:1])
    assert together[3:] == [ids[:1]]


def test_an_engine_with_a_process_for_pictures_draws_the_same_bits():
    policies = [Policy(*build_scratch_pictures()) for _ in range(2)]
    shared = {"max_sequences": 4, "prefill_tokens": 40}  # several prefills, one after another
    joined = EmbeddedConfig.model_validate({**shared, "encoder": {"at_once": 2}}).build(policies[0])
    apart = EmbeddedConfig.model_validate({**shared, "encoder": APART}).build(policies[1])
    pictures = [noise(n) for n in range(7)]
    shown = [pictures[:1], pictures[1:3], *([each] for each in pictures), pictures[2:5]]

    def answers(engine):
        prompts = [prompt_of(engine.policy, "count?", *each) for each in shown]
        requests = [Request(prompt, [n, 50 + n], Sampling(max_completion_tokens=8)) for n, prompt in enumerate(prompts)]

        async def all_of_them():
            return await asyncio.gather(*map(engine.extend, requests))

        return asyncio.run(all_of_them())

    assert answers(joined) == answers(apart)
    assert [policy.sight.encoded for policy in policies] == [7, 7]  # distinct pictures
    assert [policy.sight.encoded_apart for policy in policies] == [0, 7]
    process = apart._features._process
    second = EmbeddedConfig.model_validate({**shared, "encoder": APART}).build(policies[1])
    assert answers(second) == answers(joined)
    assert policies[1].sight.encoded == 14
    # Weights that are the same, and other ones.
    asyncio.run(apart.load(policies[1].module, 1))
    before = answers(apart)
    assert policies[1].sight.encoded == 14
    for policy in policies:
        with torch.no_grad():
            policy.causal.model.multi_modal_projector.linear_1.weight.mul_(1.5)
    for engine in (joined, apart, second):
        asyncio.run(engine.load(engine.policy.module, 2))
    assert answers(joined) == answers(apart) == answers(second)
    assert [policy.sight.encoded for policy in policies] == [14, 28]
    assert answers(apart) != before
    # Both engines of a model have one process. It dies.
    assert second._features._process is process
    asyncio.run(second.load(policies[1].module, 2))
    second._features._held.clear()
    second._keeper.clear()
    os.kill(process.pid, signal.SIGKILL)
    with pytest.raises(EncoderLost, match=r"engine\.encoder: its process ended with status -9"):
        answers(second)


@pytest.mark.parametrize(
    ("entry", "loading", "said"),
    [("lyceum.no_such_module", 300.0, "ended with status 1"), (_encoder.ENTRY, 0.05, "did not answer within 0.05 s")],
)
def test_a_process_that_does_not_begin_ends_the_run_in_a_line(monkeypatch, entry, loading, said):
    monkeypatch.setattr(_encoder, "ENTRY", entry)
    monkeypatch.setattr(_encoder, "LOADING", loading)
    policy = Policy(*tiny("internvl"))
    engine = EmbeddedConfig.model_validate({"encoder": APART}).build(policy)
    with pytest.raises(EncoderLost, match=said) as error:
        asyncio.run(engine.extend(Request(prompt_of(policy, "a", noise(1)), [0], Sampling(max_completion_tokens=1))))
    assert "no_such_module" not in entry or "ModuleNotFoundError" in error.value.lines[-1]


def test_a_process_for_pictures_is_refused_where_there_are_none_or_two_rates():
    config = EmbeddedConfig.model_validate({"encoder": {"process": True}})
    with pytest.raises(RecipeError, match=r"engine\.encoder\.process: got true, but the model takes no pictures"):
        config.build(load_policy(ModelSettings(path="base")))
    with pytest.raises(RecipeError, match="pictures of this model have two rates"):
        config.build(load_policy(ModelSettings(path="scratch-pictures", rate="routed")))
