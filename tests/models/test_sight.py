"""Models that see, over token trees and in the engine, against transformers' own forward and generation."""

import asyncio
import copy
from types import SimpleNamespace

import pytest
import torch
from pydantic import ValidationError
from tiny_sight import FAMILIES, asked, drawn, noise, prompt_of, tiny

from lyceum.core.forest import build_forest
from lyceum.core.pictures import id_and_place, is_picture
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Grade, Request, Sampling, Task
from lyceum.engine.embedded import EmbeddedConfig, EmbeddedEngine
from lyceum.learner._forward import row_outputs
from lyceum.models import picture_tokens
from lyceum.models.load import ModelSettings, load_policy, load_tokenizer, save_module, save_policy
from lyceum.models.packed_paths import packed, trie_logprobs
from lyceum.models.picture_trial import PictureTrial, model_inputs
from lyceum.models.policy import Policy
from lyceum.models.sight import parts_of
from lyceum.utils.errors import RecipeError

EVERY = pytest.mark.parametrize("name", FAMILIES)


@pytest.fixture(scope="module")
def made():
    """name -> a model on transformers' own attention, the oracle, and the same weights as lyceum runs them."""
    found = {}

    def of(name):
        if name not in found:
            model, tokenizer = tiny(name)
            found[name] = model, Policy(copy.deepcopy(model), tokenizer)
        return found[name]

    return of


def pictures_of(policy):
    return policy.sight.pictures


def logits(model, policy, path):
    """transformers' own, with gradient."""
    ids = torch.tensor([pictures_of(policy).plain(path)])
    return model(input_ids=ids, **model_inputs(model, pictures_of(policy), path), use_cache=False).logits[0]


def tree_of(policy, prompt, *answers):
    """A tree of one prompt, with the log-probabilities 0 of answers that someone drew."""
    tree = Tree(Task("t", ()), [Node.prompt(prompt)])
    for answer in answers:
        leaf = tree.root.add_drawn(drawn(answer))
        leaf.grade = Grade(1.0)
    return tree


ANSWERS = [11, 12, 13, 1], [11, 21, 22, 1]


@EVERY
def test_a_tree_has_the_values_and_gradients_of_transformers_own_rows(made, name):
    model, policy = made(name)
    prompt = prompt_of(policy, "a b", noise(1), noise(2, width=32))
    forest = build_forest([tree_of(policy, prompt, *ANSWERS)])
    # Pictures and text are there once, and the answers' first token.
    assert forest.n_tokens == len(prompt) + 1 + 3 + 3
    expected = [logits(model, policy, prompt + answer) for answer in ANSWERS]
    rows = forest.rows()
    got = policy.head(policy.forest_hidden(forest))
    for row, want in enumerate(expected):
        torch.testing.assert_close(got[rows.index[row]], want.float(), rtol=0, atol=1e-5)
    # The answers' log-probabilities, which reach the vision tower through the picture's tokens.
    ids = torch.tensor([list(answer) for answer in ANSWERS])
    where = slice(len(prompt) - 1, len(prompt) + 3)
    loss = sum(z[where].log_softmax(-1).gather(1, ids[i][:, None]).sum() for i, z in enumerate(expected))
    own = torch.stack([got[rows.index[row]][where] for row in range(2)])
    mine = own.log_softmax(-1).gather(2, ids[:, :, None]).sum()
    names = [n for n, p in model.named_parameters() if p.requires_grad]
    theirs = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
    ours = torch.autograd.grad(mine, list(policy.module.parameters()), allow_unused=True)
    towards_pictures = 0
    for n, a, b in zip(names, theirs, ours, strict=True):
        if a is None and b is None:
            continue
        scale = max(1.0, float(a.abs().max()))
        torch.testing.assert_close(b / scale, a / scale, rtol=0, atol=1e-5, msg=lambda said, n=n: f"{n}: {said}")
        towards_pictures += "vis" in n and bool(a.abs().max() > 0)
    assert towards_pictures > 4


@EVERY
def test_both_layouts_and_packed_paths_give_the_engines_log_probabilities(made, name):
    _, policy = made(name)
    served = EmbeddedEngine(policy, EmbeddedConfig())
    prompts = [prompt_of(policy, "a b", noise(1)), prompt_of(policy, "a c", noise(2, width=32), noise(1))]
    requests = [Request(prompt, list(range(4)), Sampling(max_completion_tokens=6)) for prompt in prompts]
    drawn = extend(served, *requests)
    # One picture is in both prompts.
    before = policy.sight.encoded
    assert {id_and_place(t)[0] for prompt in prompts for t in prompt if is_picture(t)} == set(served._features)
    extend(served, *requests)
    assert policy.sight.encoded == before
    trees = []
    for prompt, samples in zip(prompts, drawn, strict=True):
        tree = Tree(Task("t", ()), [Node.prompt(prompt)])
        for sample in samples:
            tree.root.add_drawn(sample).grade = Grade(1.0)
        trees.append(tree)
    forest = build_forest(trees)
    wanted = forest.trainable(forest.rows())
    behaviour = forest.rows().gather(forest.behaviour_logprob)[wanted]
    for layout in ("tree", "rows"):
        with torch.no_grad():
            found = row_outputs(policy, forest, wanted, layout=layout).logprob[wanted]
        torch.testing.assert_close(found, behaviour, rtol=0, atol=3e-5)
    path = prompts[0] + drawn[0][0].tokens
    scored = asyncio.run(served.score(path))[len(prompts[0]) :]
    torch.testing.assert_close(torch.tensor(scored), torch.tensor(drawn[0][0].model_logprob), rtol=0, atol=3e-5)
    [trie] = packed([path], 10_000)
    asked_for = SimpleNamespace(tokens=path, start=len(prompts[0]), stop=len(path))
    with torch.no_grad():
        by_paths = trie_logprobs(policy, trie, [asked_for])
    torch.testing.assert_close(by_paths, torch.tensor(drawn[0][0].model_logprob), rtol=0, atol=3e-5)


@EVERY
def test_greedy_draws_equal_transformers_generate(made, name):
    model, policy = made(name)
    served = EmbeddedEngine(policy, EmbeddedConfig())
    prompts = [prompt_of(policy, "a b", noise(seed)) for seed in (1, 2)]
    greedy = Sampling(temperature=0.0, max_completion_tokens=8)
    drawn = extend(served, *(Request(prompt, [0], greedy) for prompt in prompts))
    for prompt, [got] in zip(prompts, drawn, strict=True):
        ids = torch.tensor([pictures_of(policy).plain(prompt)])
        more = model_inputs(model, pictures_of(policy), prompt)
        out = model.generate(ids, **more, do_sample=False, max_new_tokens=8, eos_token_id=1, pad_token_id=0)
        assert got.tokens == out[0, len(prompt) :].tolist()


@EVERY
def test_pictures_under_one_placeholder_are_never_mixed_up(made, name):
    model, policy = made(name)
    one, other = (prompt_of(policy, "a b", noise(seed)) for seed in (1, 2))
    assert pictures_of(policy).plain(one) == pictures_of(policy).plain(other)
    assert one != other
    served = EmbeddedEngine(policy, EmbeddedConfig())
    sampling = Sampling(max_completion_tokens=1)
    # The first is kept, so that the second could be taken for it.
    extend(served, Request(one, [0], sampling, keep=True))
    for prompt in (one, other, one):
        [[got]] = extend(served, Request(prompt, [0], sampling, keep=True))
        want = logits(model, policy, prompt)[-1].log_softmax(-1)[got.tokens[0]]
        assert got.model_logprob[0] == pytest.approx(want.item(), abs=3e-5)
    apart = (logits(model, policy, one)[-1] - logits(model, policy, other)[-1]).abs().max()
    assert apart.item() > 1e-4


def test_new_weights_make_new_features(made):
    _, policy = made("internvl")
    served = EmbeddedEngine(policy, EmbeddedConfig())
    request = Request(prompt_of(policy, "a", noise(5)), [0], Sampling(max_completion_tokens=1))
    extend(served, request)
    before = policy.sight.encoded
    extend(served, request)
    assert policy.sight.encoded == before
    asyncio.run(served.load(policy.module, 1))
    extend(served, request)
    assert policy.sight.encoded == before + 1


def test_image_tokens_that_see_those_behind_them_are_refused(made, monkeypatch):
    _, policy = made("llava")
    trial = PictureTrial.of(tiny("llava")[0], policy.tokenizer)
    trial.check(policy)
    trial.alone[:, 5] += 0.1  # as if another token had been seen there
    with pytest.raises(NotImplementedError, match="gives other logits over a token tree with a picture"):
        trial.check(policy)


def test_of_gemmas_tokens_those_of_a_picture_see_each_other_and_others_what_is_before_them(made):
    _, policy = made("gemma3")
    prompt = prompt_of(policy, "a b", noise(1))
    [id] = {id_and_place(token)[0] for token in prompt if is_picture(token)}
    assert policy.sight.two_way
    assert policy.sight._ahead(id).tolist() == [3, 2, 1, 0]
    # Tiles with text between them are apart: of four places each, the last sees nothing ahead.
    _, tiled = made("idefics3")
    tokens = prompt_of(tiled, "a", noise(1))
    [id] = {id_and_place(token)[0] for token in tokens if is_picture(token)}
    tiles = tiled.sight.pictures.runs(id)
    assert len(tiles) > 1
    assert tiled.sight._ahead(id).tolist() == [3, 2, 1, 0] * len(tiles)


@pytest.mark.parametrize("name", ["internvl", "qwen3-vl", "smolvlm", "gemma3"])
def test_a_saved_model_is_loaded_with_its_processor(tmp_path, name):
    model, tokenizer = tiny(name)
    save_module(model, tokenizer, tmp_path / "model")
    policy = load_policy(ModelSettings(path=str(tmp_path / "model")))
    own = Policy(model, tokenizer)
    prompt = prompt_of(policy, "a b", noise(1))
    assert prompt == prompt_of(own, "a b", noise(1))
    forest = build_forest([tree_of(policy, prompt, *ANSWERS)])
    with torch.no_grad():
        expected = own.forest_hidden(forest)
        torch.testing.assert_close(policy.forest_hidden(forest), expected)
        save_policy(policy, tmp_path / "again")  # which leaves it as it was
        torch.testing.assert_close(policy.forest_hidden(forest), expected)


def test_a_gemma_3_without_its_image_processor_reads_text_alone(tmp_path):
    save_module(*tiny("gemma3"), tmp_path / "model")
    settings = ModelSettings(path=str(tmp_path / "model"))
    assert picture_tokens.pictures_of(load_tokenizer(settings)) is not None
    for name in ("preprocessor_config.json", "processor_config.json"):
        (tmp_path / "model" / name).unlink()
    assert picture_tokens.pictures_of(load_tokenizer(settings)) is None


def test_a_conversation_goes_on_with_another_picture(made):
    _, policy = made("qwen2.5-vl")
    first = policy.renderer.render(asked("a", noise(1)))
    assert policy.decode(first.tokens) == "[]a"
    after = policy.renderer.follow(first, [11, 12, 1], asked("b", noise(2)))
    assert after.keep == len(first.tokens) + 3
    whole = policy.render(
        [*asked("a", noise(1)), {"role": "assistant", "content": policy.decode([11, 12])}, *asked("b", noise(2))]
    )
    assert list(after.prompt.tokens) == whole


def test_a_placeholder_that_a_user_types_is_no_picture(made):
    _, policy = made("llava")
    tokens = policy.render(asked("see <image>", noise(1)))
    assert sum(map(is_picture, tokens)) == 16
    assert policy.sight.pictures.placeholder_id not in tokens
    assert "< image>" in policy.decode(tokens)


def extend(served, *requests):
    async def all_of_them():
        return await asyncio.gather(*(served.extend(request) for request in requests))

    return asyncio.run(all_of_them())


@EVERY
def test_every_weight_is_of_one_part(made, name):
    model, _ = made(name)
    parts = parts_of(model)
    assert all(parts.values())
    assert sorted(id(p) for part in parts.values() for p in part) == sorted(map(id, model.parameters()))
    names = {id(p): n for n, p in model.named_parameters()}
    assert all(
        "language_model" in names[id(p)] or "text_model" in names[id(p)] or "lm_head" in names[id(p)]
        for p in parts["language"]
    )
    assert all("vis" in names[id(p)] for p in parts["vision"])


def test_frozen_parts_are_not_trained_and_adapters_are_tried_with_a_picture():
    policy = load_policy(ModelSettings(path="scratch-pictures", freeze=("vision", "projector")))
    trained = {name.split(".")[1] for name, p in policy.module.named_parameters() if p.requires_grad}
    assert trained == {"language_model"}
    adapted = load_policy(ModelSettings(path="scratch-pictures", lora={"rank": 2}))
    assert adapted.sight is not None
    with pytest.raises(RecipeError, match=r"model\.freeze: got .*, but base reads text alone"):
        load_policy(ModelSettings(path="base", freeze=("vision",)))
    with pytest.raises(ValidationError, match="all three parts"):
        ModelSettings(freeze=("vision", "projector", "language"))
