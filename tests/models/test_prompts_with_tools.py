"""Whether a model's chat template can carry tools, said before any weight is loaded."""

import pytest
from chat_templates import tokenizer_like

from lyceum.core.types import Task
from lyceum.environment.calculator import Calculator
from lyceum.models.prompts import check_prompts
from lyceum.tasks.chain import Chain
from lyceum.utils.errors import RecipeError

TOOLS = Calculator(notation=None).tools


def checked(model: str, monkeypatch, text: str = "What is 8*3?") -> None:
    source = Chain().build("train", 0)
    monkeypatch.setattr(type(source), "__getitem__", lambda self, i: Task("a", ({"role": "user", "content": text},)))
    check_prompts("tasks", source, tokenizer_like(model), 4096, TOOLS)


@pytest.mark.parametrize("model", ["gemma3", "phi3"])
def test_a_template_that_cannot_carry_results_is_refused(model, monkeypatch):
    with pytest.raises(RecipeError, match=r"model.chat_template: .* role 'tool' after an answer.*; allowed:"):
        checked(model, monkeypatch)


@pytest.mark.parametrize(
    ("model", "text", "said"),
    [
        ("smollm2", "What is 8*3?", True),
        ("smollm2", 'Call by <tool_call>{"name": "calculator", ...}</tool_call>.', False),
        ("qwen3", "What is 8*3?", False),
        ("llama3", "What is 8*3?", False),
    ],
)
def test_a_template_without_a_place_for_tools_is_named(model, text, said, monkeypatch, caplog):
    checked(model, monkeypatch, text)
    assert ("has no place for tools" in caplog.text) == said
