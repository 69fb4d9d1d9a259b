import string

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from lyceum.models.scratch import build_scratch, character_tokenizer
from lyceum.models.scratch_words import build_scratch_stories
from lyceum.tasks.chain import make_task, retried


@pytest.fixture(scope="module")
def tokenizer():
    return character_tokenizer()


def ids(tokenizer, messages):
    return tokenizer.apply_chat_template(messages, add_generation_prompt=True)["input_ids"]


def test_each_character_is_one_token_and_comes_back(tokenizer):
    # Spaces, doubled spaces and newlines are what word pre-tokenizers and decoders change.
    text = string.printable[:95] + "\n  a , b .\n\n"
    encoded = tokenizer(text)["input_ids"]
    assert len(encoded) == len(text)
    assert tokenizer.unk_token_id not in encoded
    assert tokenizer.decode(encoded) == text


def test_other_characters_are_one_unknown_token_each(tokenizer):
    assert tokenizer("é+€")["input_ids"] == [
        tokenizer.unk_token_id,
        tokenizer("+")["input_ids"][0],
        tokenizer.unk_token_id,
    ]


def test_nothing_is_added_to_a_text(tokenizer):
    assert tokenizer("1")["input_ids"] == [tokenizer.get_vocab()["1"]]
    assert tokenizer.bos_token_id is None


def test_a_user_message_is_its_bare_content(tokenizer):
    message = {"role": "user", "content": "37+8="}
    assert ids(tokenizer, [message]) == tokenizer("37+8=")["input_ids"]
    parts = {"role": "user", "content": [{"type": "text", "text": "37"}, {"type": "text", "text": "+8="}]}
    assert ids(tokenizer, [parts]) == ids(tokenizer, [message])


def test_a_system_message_stands_on_a_line_of_its_own(tokenizer):
    messages = [{"role": "system", "content": "mod 100"}, {"role": "user", "content": "1+2="}]
    assert tokenizer.decode(ids(tokenizer, messages)) == "mod 100\n1+2="


def test_a_chat_that_goes_on_is_token_for_token_what_was_sampled(tokenizer):
    # The tree grows a chat turn by extending sampled tokens: rendering the whole chat must give the same ones.
    task = make_task("t", 37, [8, -2])
    attempt = "37+8=55-2=53#53"
    sampled = ids(tokenizer, task.messages) + tokenizer(attempt)["input_ids"] + [tokenizer.eos_token_id]
    rendered = ids(tokenizer, retried(task, attempt, 1).messages)
    assert rendered[: len(sampled)] == sampled
    assert tokenizer.decode(rendered[len(sampled) :]) == "!1="


def test_a_saved_model_loads_by_the_auto_classes_and_is_the_same(tmp_path, tokenizer):
    model, own = build_scratch(layers=1, width=16, heads=2, feed_forward=16)
    model.save_pretrained(tmp_path)
    own.save_pretrained(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    other = AutoTokenizer.from_pretrained(tmp_path)
    encoded = other("1+2=", return_tensors="pt")["input_ids"]
    assert torch.equal(loaded(encoded).logits, model(encoded).logits)
    assert (other.pad_token_id, other.eos_token_id) == (tokenizer.pad_token_id, tokenizer.eos_token_id)
    assert loaded.generation_config.eos_token_id == other.eos_token_id
    messages = [{"role": "user", "content": "1+2="}]
    assert ids(other, messages) == ids(tokenizer, messages)


def test_the_shipped_size_fits_in_five_megabytes():
    model, _ = build_scratch()
    parameters = sum(p.numel() for p in model.parameters())
    # embeddings in and out 2 * 99 * 128; a layer 4 * 128 * 128 + 3 * 128 * 448 + 2 norms; the last norm
    assert parameters == 2 * 99 * 128 + 4 * (4 * 128 * 128 + 3 * 128 * 448 + 2 * 128) + 128 == 976_768
    assert parameters * 4 < 5e6


def test_the_seed_decides_the_weights_and_the_global_stream_is_left_alone():
    small = {"layers": 1, "width": 16, "heads": 2, "feed_forward": 16}
    torch.manual_seed(5)
    first, _ = build_scratch(seed=1, **small)
    after = torch.rand(1)
    torch.manual_seed(5)
    assert torch.equal(torch.rand(1), after)
    again, _ = build_scratch(seed=1, **small)
    other, _ = build_scratch(seed=2, **small)
    assert torch.equal(first.lm_head.weight, again.lm_head.weight)
    assert not torch.equal(first.lm_head.weight, other.lm_head.weight)


def test_the_model_of_stories_begins_with_heads_that_find_what_stood_after_the_same_name():
    model, tokenizer = build_scratch_stories()
    model.set_attn_implementation("eager")
    text = "Leo has 7 pens. Ann also has 9 coins. Ann has 4 pens. Leo has"
    encoded = tokenizer(text, return_tensors="pt")["input_ids"]
    with torch.no_grad():
        first, second, *_ = model(encoded, output_attentions=True).attentions
    last = encoded.shape[1] - 1
    for head in range(4):
        assert first[0, head, last, last - head - 1] > 0.8
    found = dict(zip(tokenizer.convert_ids_to_tokens(encoded[0]), second[0, 0, last].tolist(), strict=True))
    assert found[" 7"] > 5 * max(found[" 9"], found[" 4"])
