"""Tool calls in the model's own form, found by a probe of its chat template."""

import pytest
from chat_templates import FORMS, tokenizer_like

from lyceum.core.types import Spoken, ToolCall
from lyceum.models.renderer import Renderer
from lyceum.models.responses import hermes_call, hermes_spans

TIMES = {
    "type": "function",
    "function": {
        "name": "times",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}},
    },
}
USER = {"role": "user", "content": "What is 8*3?"}
CALL = ToolCall("times", {"a": 8, "b": "3"})

SAID = {
    "qwen3.5": (
        "function-tags",
        "Times.\n</think>\n\n<tool_call>\n<function=times>\n<parameter=a>\n8\n</parameter>\n<parameter=b>\n3\n"
        "</parameter>\n</function>\n</tool_call><|im_end|>",
    ),
    "llama3": ("bare-json", '{"name": "times", "parameters": {"a": 8, "b": "3"}}<|eot_id|>'),
    "glm4.5": (
        "argument-tags",
        "\n<think>Times.</think>\n<tool_call>times\n<arg_key>a</arg_key>\n<arg_value>8</arg_value>\n<arg_key>b</arg_key>\n"
        "<arg_value>3</arg_value>\n</tool_call><|observation|>",
    ),
    "gpt-oss": (
        "harmony",
        "<|channel|>analysis<|message|>Times.<|end|><|start|>assistant to=functions.times<|channel|>commentary json"
        '<|message|>{"a": 8, "b": "3"}<|call|>',
    ),
    "mistral": ("call-list", '[TOOL_CALLS][{"name": "times", "arguments": {"a": 8, "b": "3"}}]</s>'),
}


def spoken(model: str, text: str) -> Spoken:
    renderer = Renderer(tokenizer_like(model))
    prompt = renderer.render([USER], (TIMES,))
    said = renderer.tokenizer(text, add_special_tokens=False)["input_ids"]
    return renderer.spoken(prompt.text, said, (TIMES,))


@pytest.mark.parametrize("model", SAID)
def test_a_call_is_read_in_the_form_that_the_template_writes(model):
    form, text = SAID[model]
    assert Renderer(tokenizer_like(model)).form.name == form
    said = spoken(model, text)
    assert said.calls == (CALL,), "a stays a number, b a text, as the tool's schema says"
    assert not said.fault
    assert said.thoughts == ("Times." if model not in ("llama3", "mistral") else "")
    assert "times" not in said.content


@pytest.mark.parametrize("model", ["qwen2.5", "qwen3"])
def test_hermes_calls_stand_in_the_content_outside_of_thoughts(model):
    assert Renderer(tokenizer_like(model)).form.name == "hermes"
    call = '<tool_call>{"name": "times", "arguments": {"a": 8}}</tool_call>'
    said = spoken(model, f"<think>\nI could write {call}.\n</think>\n\n{call}<|im_end|>")
    assert said.calls is None
    assert said.content.strip().removesuffix("<|im_end|>") == call
    assert said.thoughts.startswith("I could write")


@pytest.mark.parametrize("model", ["smollm2", "gemma3", "phi3"])
def test_a_template_without_calls_has_no_form(model):
    assert spoken(model, "<tool_call>{}</tool_call>") is None


@pytest.mark.parametrize("model", SAID)
@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text.replace("8", "["),
        lambda text: text.replace("8", "[" * 5000),
        lambda text: text[: len(text) // 2],
        lambda text: text.replace('"times"', "7"),
        lambda text: text + "x" * 100_001,
        lambda text: text * 3,
        lambda text: "\ud800"[:0] + text.replace("times", "\0"),
    ],
)
def test_whatever_a_model_writes_nothing_is_raised(model, spoil):
    renderer = Renderer(tokenizer_like(model))
    prompt = renderer.render([USER], (TIMES,))
    said = renderer.form.read(prompt.text, spoil(SAID[model][1]), (TIMES,))
    assert isinstance(said, Spoken)
    assert said.fault or said.calls is not None


def test_a_form_is_asked_of_the_template_and_not_of_a_list_of_models():
    assert {model: form and form.name for model in FORMS if (form := Renderer(tokenizer_like(model)).form) or True} == {
        "qwen2.5": "hermes",
        "qwen3": "hermes",
        "qwen3 without thinking": "hermes",
        "qwen3.5": "function-tags",
        "llama3": "bare-json",
        "gemma3": None,
        "phi3": None,
        "glm4.5": "argument-tags",
        "gpt-oss": "harmony",
        "smollm2": None,
        "mistral": "call-list",
    }


def test_hermes_calls_are_found_one_by_one_and_one_that_is_wrong_spoils_no_other():
    good = '<tool_call>{"name": "times", "arguments": {"a": 8}}</tool_call>'
    text = f"So {good} and <tool_call>{{</tool_call> then <tool_call>{good} end <tool_call>"
    spans = [text[begin:end] for begin, end in hermes_spans(text)]
    assert spans == [good, "<tool_call>{</tool_call>", good]
    assert hermes_call(good) == ToolCall("times", {"a": 8})
    for wrong, says in ((spans[1], "the call is not JSON"), ("<tool_call>[]</tool_call>", "no call of a tool")):
        with pytest.raises(ValueError, match=says):
            hermes_call(wrong)
    assert hermes_spans("<tool_call>" * 100_000) == [], "in linear time"
