"""Follow-up turns keep what was sampled, on templates as Qwen 3 (which rewrites history) and SmolLM2 have them."""

import json
from pathlib import Path

import pytest
from chat_templates import CHATML, QWEN3, chat_tokenizer
from hypothesis import given, settings
from hypothesis import strategies as st
from some_tokenizers import SMOLLM2
from transformers import PreTrainedTokenizerFast

from lyceum.core.tree import Node
from lyceum.core.types import Origin
from lyceum.models.renderer import Renderer
from lyceum.models.scratch import character_tokenizer
from lyceum.utils.errors import RecipeError

USER = {"role": "user", "content": "What is 8*3?"}
TOOL = {"role": "tool", "content": "24"}
NEXT = {"role": "user", "content": "And 2 more?"}


def renderer_of(template: str, name: str = "byte level") -> Renderer:
    return Renderer(chat_tokenizer(template, name))


def ids(renderer: Renderer, text: str) -> list[int]:
    return renderer.tokenizer(text, add_special_tokens=False)["input_ids"]


def text_of(renderer: Renderer, tokens) -> str:
    return renderer.tokenizer.decode(list(tokens), skip_special_tokens=False)


def sampled_apart(renderer: Renderer, text: str) -> list[int]:
    """A text as no tokenizer encodes it: character by character, as a model may well sample it."""
    pieces = text.replace("<|im_end|>", "\0").replace("<think>", "\1").replace("</think>", "\2")
    names = {"\0": "<|im_end|>", "\1": "<think>", "\2": "</think>"}
    return [token for piece in pieces for token in ids(renderer, names.get(piece, piece))]


def test_a_tools_answer_comes_after_what_was_sampled_token_for_token():
    renderer = renderer_of(QWEN3)
    prompt = renderer.render([USER], tools=[{"name": "times"}])
    assert '{"name": "times"}' in prompt.text
    answer = sampled_apart(renderer, '<think>\nTimes.\n</think>\n\n<tool_call>{"name": "times"}</tool_call><|im_end|>')
    follow = renderer.follow(prompt, answer, [TOOL])
    assert follow.keep == len(prompt.tokens) + len(answer)
    shown = "\n<|im_start|>user\n<tool_response>\n24\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
    assert text_of(renderer, follow.tokens) == shown
    assert follow.prompt.tokens == (*prompt.tokens, *answer, *follow.tokens)
    assert follow.prompt.text == text_of(renderer, follow.prompt.tokens)
    # And again, from where the second answer began.
    second = ids(renderer, "<think>\nAgain.\n</think>\n\n<tool_call>...</tool_call><|im_end|>")
    again = renderer.follow(follow.prompt, second, [TOOL, TOOL])
    assert again.keep == len(follow.prompt.tokens) + len(second)
    assert text_of(renderer, again.tokens).count("<tool_response>") == 2


def test_a_next_question_takes_the_thoughts_out_and_the_path_is_left_before_them():
    renderer = renderer_of(QWEN3)
    prompt = renderer.render([USER])
    answer = sampled_apart(renderer, "<think>\n8*3=24\n</think>\n\n24.<|im_end|>")
    appended = renderer.follow(prompt, answer, [NEXT])
    assert appended.keep == len(prompt.tokens) + len(answer), "but where histories are appended to"
    assert text_of(renderer, appended.tokens) == ("\n<|im_start|>user\nAnd 2 more?<|im_end|>\n<|im_start|>assistant\n")
    follow = renderer.follow(prompt, answer, [NEXT], "template")
    assert follow.keep == len(prompt.tokens), "nothing of the answer stands behind the thoughts"
    shown = "24.<|im_end|>\n<|im_start|>user\nAnd 2 more?<|im_end|>\n<|im_start|>assistant\n"
    assert text_of(renderer, follow.tokens) == shown
    said = [USER, {"role": "assistant", "content": renderer.decode(answer)}, NEXT]
    assert follow.prompt.text == renderer.render(said).text


def test_thoughts_several_turns_ago_are_where_the_path_is_left():
    renderer = renderer_of(QWEN3)
    prompt = renderer.render([USER])
    first = renderer.follow(prompt, ids(renderer, "<think>\na\n</think>\n\ncall<|im_end|>"), [TOOL], "template")
    answer = ids(renderer, "<think>\nb\n</think>\n\n24<|im_end|>")
    follow = renderer.follow(first.prompt, answer, [NEXT], "template")
    assert follow.keep == len(prompt.tokens)
    assert "<think>" not in follow.prompt.text
    assert "call<|im_end|>\n<|im_start|>user\n<tool_response>" in follow.prompt.text


@pytest.mark.parametrize("history", ["append", "template"])
def test_an_answer_without_thoughts_stands(history):
    # Last of its conversation it would be rendered with an empty place for them; what was sampled has none.
    renderer = renderer_of(QWEN3)
    prompt, answer = renderer.render([USER]), ids(renderer_of(QWEN3), "24<|im_end|>")
    follow = renderer.follow(prompt, answer, [NEXT], history)
    assert follow.keep == len(prompt.tokens) + len(answer)
    assert text_of(renderer, follow.tokens).startswith("\n<|im_start|>user\nAnd")


@pytest.mark.parametrize("history", ["append", "template"])
def test_what_a_template_would_trim_stays_as_it_was_sampled(history):
    renderer = renderer_of(CHATML)
    prompt, answer = renderer.render([USER]), ids(renderer_of(CHATML), "  24 \n<|im_end|>")
    follow = renderer.follow(prompt, answer, [NEXT], history)
    assert follow.keep == len(prompt.tokens) + len(answer)
    assert text_of(renderer, follow.tokens).startswith("\n<|im_start|>user\nAnd")


@pytest.mark.parametrize("history", ["append", "template"])
@pytest.mark.parametrize("end", ["", "<|endoftext|>", "<|im_end|>"])
def test_an_answer_that_did_not_end_is_ended_by_the_template(end, history):
    renderer = renderer_of(CHATML)
    prompt, answer = renderer.render([USER]), ids(renderer_of(CHATML), f"24 {end}")
    follow = renderer.follow(prompt, answer, [NEXT], history)
    assert follow.keep == len(prompt.tokens) + len(answer)
    expected = ("" if end == "<|im_end|>" else "<|im_end|>") + "\n<|im_start|>user\n"
    assert text_of(renderer, follow.tokens).startswith(expected)


def test_an_end_of_sequence_that_the_template_does_not_write_is_left_out():
    # A base model's end of sequence under a chat template with another one: no conversation has both.
    renderer = renderer_of(CHATML)
    renderer.tokenizer.eos_token = "<|endoftext|>"
    prompt, answer = renderer.render([USER]), ids(renderer, "24 <|endoftext|>")
    appended = renderer.follow(prompt, answer, [NEXT])
    assert appended.keep == len(prompt.tokens) + len(answer), "but for histories that are appended to"
    assert appended.tokens == renderer.follow(prompt, answer, [NEXT], "template").tokens
    follow = renderer.follow(prompt, answer, [NEXT], "template")
    assert follow.keep == len(prompt.tokens) + len(answer) - 1
    assert text_of(renderer, follow.tokens).startswith("<|im_end|>\n<|im_start|>user\n")


def test_the_built_in_template_goes_on_after_the_end_of_sequence():
    renderer = Renderer(character_tokenizer())
    prompt = renderer.render([{"role": "user", "content": "37+8="}])
    answer = [*renderer.tokenizer("37+8=44")["input_ids"], renderer.tokenizer.eos_token_id]
    follow = renderer.follow(prompt, answer, [{"role": "user", "content": "!="}])
    assert (follow.keep, renderer.decode(follow.tokens)) == (len(prompt.tokens) + len(answer), "!=")


@pytest.mark.parametrize("template", [QWEN3, CHATML])
@settings(deadline=None)
@given(
    said=st.text(st.sampled_from("24 é😀\n<x>"), max_size=12),
    thought=st.booleans(),
    ended=st.booleans(),
    tool=st.booleans(),
    history=st.sampled_from(["append", "template"]),
)
def test_whatever_is_said_the_kept_part_is_a_beginning_of_the_path(template, said, thought, ended, tool, history):
    renderer = renderer_of(template)
    prompt = renderer.render([USER])
    content = ("<think>\nwell\n</think>\n\n" if thought else "") + said
    answer = sampled_apart(renderer, content + ("<|im_end|>" if ended else ""))
    follow = renderer.follow(prompt, answer, [TOOL if tool else NEXT], history)
    path = (*prompt.tokens, *answer)
    assert follow.prompt.tokens == (*path[: follow.keep], *follow.tokens)
    assert follow.prompt.text == text_of(renderer, follow.prompt.tokens)
    assert follow.prompt.text.endswith("<|im_start|>assistant\n")
    if template == CHATML or tool or history == "append":
        assert follow.keep == len(path)


def test_spans_of_text_are_slices_of_the_path():
    renderer = renderer_of(CHATML)
    prompt = renderer.render([USER])
    root = Node(None, list(prompt.tokens), Origin.PROMPT)
    answer = ids(renderer, "8*3=24, twenty-four.<|im_end|>")
    leaf = root.add(answer, Origin.POLICY, renderer.decode(answer))
    span = renderer.tokens(leaf, 0, len("8*3=24"))
    assert renderer.decode(leaf.path_tokens()[span]) == "8*3=24"
    assert span.start == len(prompt.tokens)


def test_a_template_that_refuses_the_turn_is_a_line():
    renderer = renderer_of("{{ messages[0].content }}{{ raise_exception('one turn only') if messages | length > 1 }}")
    with pytest.raises(RecipeError, match=r"model.chat_template: .*one turn only"):
        renderer.follow(renderer.render([USER]), ids(renderer, "24"), [NEXT])


@pytest.mark.skipif(not SMOLLM2.is_file(), reason="make smollm2 was not run")
def test_smollm2s_own_template_and_tokenizer():
    folder = Path(SMOLLM2).parent
    renderer = Renderer(PreTrainedTokenizerFast.from_pretrained(folder))
    prompt = renderer.render([USER])
    end = json.loads((folder / "tokenizer_config.json").read_text())["eos_token"]
    answer = [*(token for letter in "8*3=24" for token in ids(renderer, letter)), *ids(renderer, end)]
    follow = renderer.follow(prompt, answer, [NEXT])
    assert follow.keep == len(prompt.tokens) + len(answer)
    assert text_of(renderer, follow.tokens) == "\n<|im_start|>user\nAnd 2 more?<|im_end|>\n<|im_start|>assistant\n"
