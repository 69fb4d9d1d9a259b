"""Chat templates as Qwen 3 (which rewrites history) and SmolLM2 have them, on small tokenizers made here."""

from some_tokenizers import tokenizer_of
from transformers import PreTrainedTokenizerFast

# What Qwen 3's template writes, in our words, but for a shorter preamble of the tools: thoughts stay in the turns after
# the last question and are taken out of those before it; tools' results are a user's turn; a turn that ends the
# conversation has a place for thoughts even where it has none.
QWEN3 = """\
{%- if tools %}{{ '<|im_start|>system\\n<tools>' }}{% for tool in tools %}{{ '\\n' + tool | tojson }}{% endfor -%}
{{ '\\n</tools><|im_end|>\\n' }}{% endif -%}
{%- set asked = namespace(at=-1) -%}
{%- for m in messages if m.role == 'user' %}{% set asked.at = messages.index(m) %}{% endfor -%}
{%- for m in messages -%}
{%- if m.role == 'assistant' -%}
{%- set parts = m.content.split('</think>') -%}
{%- set thought = parts[0].split('<think>')[-1].strip('\\n') if parts | length > 1 else '' -%}
{%- set said = parts[-1].lstrip('\\n') if parts | length > 1 else m.content -%}
{{- '<|im_start|>assistant\\n' -}}
{%- if loop.index0 > asked.at and (loop.last or thought) -%}
{{- '<think>\\n' + thought + '\\n</think>\\n\\n' + said.lstrip('\\n') -}}
{%- else %}{{ said }}{% endif -%}
{{- '<|im_end|>\\n' -}}
{%- elif m.role == 'tool' -%}
{%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{ '<|im_start|>user' }}{% endif -%}
{{- '\\n<tool_response>\\n' + m.content + '\\n</tool_response>' -}}
{%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{ '<|im_end|>\\n' }}{% endif -%}
{%- else %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endif -%}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif -%}
"""
CHATML = """\
{%- for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content | trim + '<|im_end|>\\n' }}{% endfor -%}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif -%}
"""


def chat_tokenizer(template: str, name: str = "byte level") -> PreTrainedTokenizerFast:
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer_of(name), eos_token="<|im_end|>", chat_template=template,
        additional_special_tokens=["<|im_start|>", "<|endoftext|>"], clean_up_tokenization_spaces=False,
    )  # fmt: skip
    tokenizer.add_tokens(["<think>", "</think>"])
    return tokenizer
