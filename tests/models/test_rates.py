"""Two rates of a picture: the second connector, what chooses between them, and that neither is taken for the other."""

import asyncio
import copy

import pytest
import torch
from pydantic import ValidationError
from tiny_sight import asked, noise, prompt_of, tiny
from transformers import AutoModelForImageTextToText

from lyceum.core.forest import build_forest
from lyceum.core.pictures import COMPRESSED, FULL, at_rate, id_and_place, is_picture, rate_of
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Grade, Request, Sampling, Task
from lyceum.engine.embedded import EmbeddedConfig, EmbeddedEngine
from lyceum.learner._forward import row_outputs
from lyceum.models.load import ModelSettings, load_policy, save_module, save_policy
from lyceum.models.packed_paths import PackedPaths
from lyceum.models.picture_trial import model_inputs
from lyceum.models.policy import Policy
from lyceum.models.rates import FILE, PictureRates, add_rates
from lyceum.models.sight import give_rate
from lyceum.utils.errors import RecipeError


@pytest.fixture
def policy():
    model, tokenizer = tiny("internvl")
    add_rates(model, seed=3, folder=None)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(4)
        for weight in model.model.picture_rates.parameters():
            weight.normal_(0, 0.3)
    return Policy(model, tokenizer)


def at(policy, rate, text, *pictures):
    with policy.sight.pictures.rated(lambda id: rate):
        return prompt_of(policy, text, *pictures)


def seen(tokens):
    return [token for token in tokens if is_picture(token)]


def logits(policy, path):
    trie = PackedPaths()
    trie.add(path)
    with torch.no_grad():
        return policy.head(trie.hidden(policy.backbone, policy.device))


def sampled(policy, served, *prompts):
    async def all_of_them():
        sampling = Sampling(max_completion_tokens=5)
        return await asyncio.gather(*(served.extend(Request(prompt, [0, 1, 2], sampling)) for prompt in prompts))

    trees = []
    for prompt, samples in zip(prompts, asyncio.run(all_of_them()), strict=True):
        trees.append(Tree(Task("t", ()), [Node.prompt(prompt)]))
        for sample in samples:
            trees[-1].root.add_drawn(sample).grade = Grade(1.0)
    return build_forest(trees)


def test_a_compressed_picture_has_a_quarter_of_the_tokens_under_other_ids(policy):
    full, compressed = (at(policy, rate, "a b", noise(1, width=16, height=16)) for rate in (FULL, COMPRESSED))
    assert (len(seen(full)), len(seen(compressed))) == (4, 1)
    assert len(full) - len(compressed) == 3
    [one], [other] = ({id_and_place(token)[0] for token in seen(path)} for path in (full, compressed))
    assert (rate_of(one), rate_of(other)) == (FULL, COMPRESSED)
    assert at_rate(other, FULL) == one
    assert policy.sight.pictures.all_at(compressed, FULL) == full
    assert policy.sight.pictures.all_at(full, COMPRESSED) == compressed


def test_features_are_those_of_the_models_own_function_with_its_ratio_and_connector(policy):
    inner, pictures = policy.causal.model, policy.sight.pictures
    full = seen(at(policy, FULL, "a", noise(1)))  # several tiles
    id = id_and_place(full[0])[0]
    pixels = pictures.seen(id).inputs["pixel_values"]
    assert len(pixels) > 1
    with torch.no_grad():
        [mine] = policy.sight.encode([id])
        own = inner.get_image_features(pixel_values=pixels).pooler_output
        torch.testing.assert_close(mine.embedding, own.flatten(0, 1))
        [mine] = policy.sight.encode([at_rate(id, COMPRESSED)])
        inner.config.downsample_ratio, kept = 0.25, inner.multi_modal_projector
        inner.multi_modal_projector = inner.picture_rates.connector
        own = inner.get_image_features(pixel_values=pixels).pooler_output
        inner.config.downsample_ratio, inner.multi_modal_projector = 0.5, kept
        torch.testing.assert_close(mine.embedding, own.flatten(0, 1))
        assert len(mine.embedding) * 4 == len(full)


def test_both_rates_are_sampled_as_the_learner_computes_them(policy):
    served = EmbeddedEngine(policy, EmbeddedConfig())
    one, other = noise(1), noise(2, width=16, height=16)
    prompts = [at(policy, rate, "a b", one, other) for rate in (FULL, COMPRESSED)]
    forest = sampled(policy, served, *prompts)
    assert len(served._features) == 4  # two pictures, at two rates each
    wanted = forest.trainable(forest.rows())
    behaviour = forest.rows().gather(forest.behaviour_logprob)[wanted]
    for layout in ("tree", "rows"):
        with torch.no_grad():
            found = row_outputs(policy, forest, wanted, layout=layout).logprob[wanted]
        torch.testing.assert_close(found, behaviour, rtol=0, atol=3e-5)
    assert policy.sight.metrics(forest)["pictures/compressed"] == 2
    assert policy.sight.metrics(forest)["pictures/full"] == 2


def test_a_full_prompt_is_what_transformers_gives(policy):
    prompt = at(policy, FULL, "a b", noise(1))
    plain, _ = tiny("internvl")
    ids = torch.tensor([policy.sight.pictures.plain(prompt)])
    with torch.no_grad():
        want = plain(input_ids=ids, **model_inputs(plain, policy.sight.pictures, prompt)).logits[0]
    got = logits(policy, prompt)
    torch.testing.assert_close(got, want, rtol=0, atol=1e-5)


@pytest.mark.parametrize("layout", ["tree", "rows"])
def test_a_policy_that_is_shown_other_pictures_judges_the_same_completions(policy, layout):
    served = EmbeddedEngine(policy, EmbeddedConfig())
    pictures = noise(1), noise(2, width=16, height=16)
    forest = sampled(policy, served, at(policy, COMPRESSED, "a b", *pictures), at(policy, FULL, "c", pictures[0]))
    wanted = forest.trainable(forest.rows())
    other = Policy(copy.deepcopy(policy.module), policy.tokenizer)
    other.shown = lambda tokens: policy.sight.pictures.all_at(tokens, FULL)
    with torch.no_grad():
        found = row_outputs(other, forest, wanted, layout=layout).logprob
    rows = forest.rows()
    for row, length in enumerate(forest.row_length.tolist()):
        path = policy.sight.pictures.all_at(forest.token[rows.index[row, :length]].tolist(), FULL)
        logprob = logits(policy, path).log_softmax(-1)
        own = int(wanted[row].sum())
        want = torch.stack([logprob[at - 1, path[at]] for at in range(len(path) - own, len(path))])
        torch.testing.assert_close(found[row][wanted[row]], want, rtol=0, atol=3e-5)


def test_the_router_decides_once_for_each_version_of_the_weights(policy):
    served = EmbeddedEngine(policy, EmbeddedConfig())
    give_rate(policy, "routed")
    last = policy.sight.rates.router[-1]
    with torch.no_grad():
        last.weight.zero_()
        last.bias.fill_(1.0)
    prompt = prompt_of(policy, "a", noise(1))
    assert rate_of(id_and_place(seen(prompt)[0])[0]) == FULL
    sampled(policy, served, prompt)
    assert policy.sight.encoded == 1  # the router's patches are embedded, not computed again
    with torch.no_grad():
        last.bias.fill_(-1.0)
    assert prompt_of(policy, "a", noise(1)) == prompt
    asyncio.run(served.load(policy.module, 1))
    assert rate_of(id_and_place(seen(prompt_of(policy, "a", noise(1)))[0])[0]) == COMPRESSED


SMALL_ONES = [noise(n, width=16, height=16) for n in range(20)]


def tasks_of(pictures):
    return [Task(str(n), tuple(asked("a", picture))) for n, picture in enumerate(pictures)]


def rates_seen(policy, tasks):
    prompts = [policy.render(task.messages) for task in policy.foreseen(tasks)]
    return prompts, [rate_of(id_and_place(seen(prompt)[0])[0]) for prompt in prompts]


@pytest.fixture
def together(policy, monkeypatch):
    """How many tiles went through the vision tower, each time; the router compresses half of the pictures."""
    give_rate(policy, "routed")
    ids = [id_and_place(seen(prompt_of(policy, "a", each))[0])[0] for each in SMALL_ONES]
    with torch.no_grad():
        logits = [float(policy.sight.rates.logit(each)) for each in policy.sight.patches(ids)]
        policy.sight.rates.router[-1].bias -= sorted(logits)[10] - 1e-6
    policy.sight.forget()
    policy.sight.encoded = 0
    sizes = []
    patches = PictureRates.patches
    monkeypatch.setattr(
        PictureRates, "patches", lambda self, pixels: sizes.append(len(pixels)) or patches(self, pixels)
    )
    return sizes


def test_pictures_to_route_go_through_the_tower_together_and_once(policy, together):
    served = EmbeddedEngine(policy, EmbeddedConfig.model_validate({"encoder": {"at_once": 8}}))
    prompts, rates = rates_seen(policy, tasks_of(SMALL_ONES))
    assert sorted(rates) == [FULL] * 10 + [COMPRESSED] * 10
    # The picture whose logit is 1e-6 is seen again, alone.
    assert sorted(together) == [1, 4, 8, 8]
    sampled(policy, served, *prompts)
    assert policy.sight.encoded == sum(together) == 21
    assert len(served._features) == 20
    asyncio.run(served.load(policy.module, 1))
    sampled(policy, served, *prompts)  # without a prompt that is rendered again
    assert policy.sight.encoded == 41


def test_features_of_routed_pictures_are_those_of_pictures_that_are_encoded_when_needed(policy, together):
    prompts, _ = rates_seen(policy, tasks_of(SMALL_ONES))
    ids = [id_and_place(seen(prompt)[0])[0] for prompt in prompts]
    with torch.no_grad():
        held = policy.sight.encode(ids)
        assert sum(together) == 21
        again = policy.sight.encode(ids)
        assert sum(together) == 41
    for one, other in zip(held, again, strict=True):
        torch.testing.assert_close(one.embedding, other.embedding, rtol=0, atol=1e-5)


@pytest.mark.parametrize("at_once", [1, 3, 20])
def test_a_pictures_rate_does_not_depend_on_those_beside_it(policy, together, at_once, monkeypatch):
    logits = PictureRates.logits
    # Another machine, on which a picture's last bits depend on how many it is encoded with.
    rounding = {1: 0, 2: 1e-4, 3: -1e-4, 20: 2e-4}
    monkeypatch.setattr(PictureRates, "logits", lambda self, patches: logits(self, patches) + rounding[len(patches)])
    policy.sight.at_once = at_once
    _, rates = rates_seen(policy, tasks_of(SMALL_ONES))
    alone = []
    for picture in SMALL_ONES:
        policy.sight.forget()
        alone += rates_seen(policy, tasks_of([picture]))[1]
    assert rates == alone
    policy.sight.forget()
    assert rates_seen(policy, tasks_of(SMALL_ONES[::-1]))[1] == alone[::-1]


def test_an_untrained_router_shows_pictures_in_full():
    # So that whatever is trained before it, in the recipe vico its own reference, is trained at one rate.
    policy = load_policy(ModelSettings(path="scratch-pictures", rate="routed"))
    assert rates_seen(policy, tasks_of(SMALL_ONES))[1] == [FULL] * 20


def test_random_rates_depend_on_the_picture_alone(policy):
    give_rate(policy, "random")
    first = [rate_of(id_and_place(seen(prompt_of(policy, "a", noise(n)))[0])[0]) for n in range(20)]
    assert 4 < sum(first) < 16
    assert first == [rate_of(id_and_place(seen(prompt_of(policy, "b", noise(n)))[0])[0]) for n in range(20)]


def test_a_saved_model_keeps_its_second_rate_and_transformers_loads_it_without(policy, tmp_path):
    save_policy(policy, tmp_path / "model")
    again = load_policy(ModelSettings(path=str(tmp_path / "model")))
    assert again.sight.pictures.rates == again.sight.route
    for one, other in zip(policy.module.parameters(), again.module.parameters(), strict=True):
        assert torch.equal(one, other)
    plain = AutoModelForImageTextToText.from_pretrained(tmp_path / "model")
    assert plain.state_dict().keys() == tiny("internvl")[0].state_dict().keys()
    (tmp_path / "model" / FILE).write_bytes(b"no weights")
    with pytest.raises(RecipeError, match=r"picture_rates\.safetensors"):
        load_policy(ModelSettings(path=str(tmp_path / "model")))


def test_models_that_can_have_no_second_rate_are_refused(tmp_path):
    save_module(*tiny("llava"), tmp_path / "model")
    with pytest.raises(RecipeError, match=r"model\.rate: .* has no pixel shuffle .*; allowed: an InternVL"):
        load_policy(ModelSettings(path=str(tmp_path / "model"), rate="full"))
    with pytest.raises(RecipeError, match=r"model\.rate: got 'full', but base reads text alone"):
        load_policy(ModelSettings(path="base", rate="full"))
    with pytest.raises(ValidationError, match="beside lora"):
        ModelSettings(path="scratch-pictures", rate="full", lora={})
