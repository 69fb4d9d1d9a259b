"""Chat templates in the forms of widespread models, in our words and shortened, on small tokenizers made here."""

import re

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
{%- for call in m.tool_calls or [] -%}
{{- '<tool_call>\\n' + {'name': call.function.name, 'arguments': call.function.arguments} | tojson +
    '\\n</tool_call>' -}}
{%- endfor -%}
{{- '<|im_end|>\\n' -}}
{%- elif m.role == 'tool' -%}
{%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{ '<|im_start|>user' }}{% endif -%}
{{- '\\n<tool_response>\\n' + m.content + '\\n</tool_response>' -}}
{%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{ '<|im_end|>\\n' }}{% endif -%}
{%- else %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endif -%}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}
{%- if enable_thinking is defined and not enable_thinking %}{{ '<think>\\n\\n</think>\\n\\n' }}{% endif %}{% endif -%}
"""
CHATML = """\
{%- for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content | trim + '<|im_end|>\\n' }}{% endfor -%}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif -%}
"""


HERMES_CALL = (
    """{{ '\\n<tool_call>\\n{"name": "' + f.name + '", "arguments": ' + f.arguments | tojson + '}\\n</tool_call>' }}"""
)
RESULTS_AS_USER = """\
{%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{ '<|im_start|>user' }}{% endif -%}
{{- '\\n<tool_response>\\n' + m.content + '\\n</tool_response>' -}}
{%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{ '<|im_end|>\\n' }}{% endif -%}"""
QWEN25 = f"""\
{{%- if tools %}}{{{{ '<|im_start|>system\\n<tools>' }}}}
{{%- for t in tools %}}{{{{ '\\n' + t | tojson }}}}{{% endfor -%}}
{{{{ '\\n</tools><|im_end|>\\n' }}}}{{% endif -%}}
{{%- for m in messages -%}}
{{%- if m.role == 'tool' -%}}{RESULTS_AS_USER}
{{%- else %}}{{{{ '<|im_start|>' + m.role }}}}
{{%- if m.content or not m.tool_calls %}}{{{{ '\\n' + m.content }}}}{{% endif -%}}
{{%- for call in m.tool_calls or [] %}}{{% set f = call.function %}}{HERMES_CALL}{{% endfor %}}{{{{ '<|im_end|>\\n' }}}}
{{%- endif %}}{{% endfor -%}}
{{%- if add_generation_prompt %}}{{{{ '<|im_start|>assistant\\n' }}}}{{% endif -%}}
"""
# Thoughts of the turns before the last question are taken out; a turn begins with a thought that is open.
QWEN35 = f"""\
{{%- if tools %}}{{{{ '<|im_start|>system\\n<tools>' }}}}
{{%- for t in tools %}}{{{{ '\\n' + t | tojson }}}}{{% endfor -%}}
{{{{ '\\n</tools><|im_end|>\\n' }}}}{{% endif -%}}
{{%- set asked = namespace(at=-1) -%}}
{{%- for m in messages if m.role == 'user' %}}{{% set asked.at = messages.index(m) %}}{{% endfor -%}}
{{%- for m in messages -%}}
{{%- if m.role == 'tool' -%}}{RESULTS_AS_USER}
{{%- elif m.role == 'assistant' -%}}
{{%- set said = m.content.split('</think>')[-1].lstrip('\\n') -%}}
{{%- set thought = m.content.split('</think>')[0].split('<think>')[-1].strip('\\n')
    if '</think>' in m.content else '' -%}}
{{{{- '<|im_start|>assistant\\n' + ('<think>\\n' + thought + '\\n</think>\\n\\n' if loop.index0 > asked.at else '')
    + said -}}}}
{{%- for call in m.tool_calls or [] -%}}
{{{{- '\\n\\n<tool_call>\\n<function=' + call.function.name + '>\\n' -}}}}
{{%- for name, value in call.function.arguments | items -%}}
{{{{- '<parameter=' + name + '>\\n' + (value if value is string else value | tojson) + '\\n</parameter>\\n' -}}}}
{{%- endfor %}}{{{{ '</function>\\n</tool_call>' }}}}{{% endfor %}}{{{{ '<|im_end|>\\n' }}}}
{{%- else %}}{{{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}}}{{% endif -%}}
{{%- endfor -%}}
{{%- if add_generation_prompt %}}{{{{ '<|im_start|>assistant\\n<think>\\n' }}}}{{% endif -%}}
"""
# One call a turn, results as JSON. Llama 3.1 and 3.2 differ only in the system's message.
LLAMA3 = """\
{{- bos_token -}}
{%- for m in messages -%}
{%- if m.role == 'tool' %}{{ '<|start_header_id|>ipython<|end_header_id|>\\n\\n' + m.content | tojson + '<|eot_id|>' }}
{%- elif 'tool_calls' in m -%}
{%- if m.tool_calls | length != 1 %}
{{- raise_exception('This model only supports single tool-calls at once!') }}{% endif -%}
{%- set f = m.tool_calls[0].function -%}
{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n{"name": "' + f.name + '", "parameters": ' -}}
{{- f.arguments | tojson + '}<|eot_id|>' -}}
{%- else %}{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' }}
{%- if loop.first and tools %}{% for t in tools %}{{ t | tojson + '\\n\\n' }}{% endfor %}{% endif -%}
{{- m.content | trim + '<|eot_id|>' }}
{%- endif %}{% endfor -%}
{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif -%}
"""
# Roles alternate: results of tools are refused.
GEMMA3 = """\
{{- bos_token -}}
{%- for m in messages -%}
{%- if (m.role == 'user') != (loop.index0 % 2 == 0) %}
{{- raise_exception('Conversation roles must alternate') }}{% endif -%}
{{- '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\\n' + m.content | trim
    + '<end_of_turn>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif -%}
"""
# Messages of other roles are left out, and a conversation that ends is ended once more.
PHI3 = """\
{%- for m in messages if m.role in ('system', 'user', 'assistant') -%}
{{- '<|' + m.role + '|>\\n' + m.content + '<|end|>\\n' }}
{%- endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% else %}{{ eos_token }}{% endif -%}
"""
# Nothing ends a turn: the next one's mark does.
GLM45 = """\
{{- '[gMASK]<sop>' -}}
{%- if tools %}{{ '<|system|>\\n<tools>' }}
{%- for t in tools %}{{ '\\n' + t | tojson }}{% endfor %}{{ '\\n</tools>' }}{% endif -%}
{%- for m in messages -%}
{%- if m.role == 'tool' -%}
{%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{ '<|observation|>' }}{% endif -%}
{{- '\\n<tool_response>\\n' + m.content + '\\n</tool_response>' -}}
{%- elif m.role == 'assistant' -%}
{{- '<|assistant|>\\n<think></think>\\n' + m.content.split('</think>')[-1] | trim -}}
{%- for call in m.tool_calls or [] -%}
{{- '\\n<tool_call>' + call.function.name + '\\n' -}}
{%- for name, value in call.function.arguments | items -%}
{{- '<arg_key>' + name + '</arg_key>\\n<arg_value>' + (value if value is string else value | tojson)
    + '</arg_value>\\n' -}}
{%- endfor %}{{ '</tool_call>' }}{% endfor -%}
{%- else %}{{ '<|' + m.role + '|>\\n' + m.content }}{% endif -%}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<|assistant|>' }}{% endif -%}
"""
# Channels; a result only after a call, and a turn that ends the conversation ends otherwise than one before others.
GPT_OSS = """\
{{- '<|start|>system<|message|>You are a model.' }}
{%- if tools %}{% for t in tools %}{{ '\\n' + t | tojson }}{% endfor %}{% endif %}{{ '<|end|>' -}}
{%- set last = namespace(tool='') -%}
{%- for m in messages -%}
{%- if m.role == 'assistant' and m.tool_calls -%}
{%- if m.content %}{{ '<|start|>assistant<|channel|>analysis<|message|>' + m.content + '<|end|>' }}{% endif -%}
{%- set f = m.tool_calls[0].function %}{% set last.tool = f.name -%}
{{- '<|start|>assistant to=functions.' + f.name + '<|channel|>commentary json<|message|>' + f.arguments | tojson -}}
{{- '<|call|>' -}}
{%- elif m.role == 'assistant' -%}
{{- '<|start|>assistant<|channel|>final<|message|>' + m.content + ('<|return|>' if loop.last else '<|end|>') -}}
{%- elif m.role == 'tool' -%}
{%- if not last.tool %}{{ raise_exception('Message has tool role, but there was no call before it') }}{% endif -%}
{{- '<|start|>functions.' + last.tool + ' to=assistant<|channel|>commentary<|message|>' + m.content | tojson
    + '<|end|>' -}}
{%- else %}{{ '<|start|>' + m.role + '<|message|>' + m.content + '<|end|>' }}{% endif -%}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<|start|>assistant' }}{% endif -%}
"""
# A result names its call by an id of nine characters; the last question is told of the tools.
MISTRAL = """\
{{- bos_token -}}
{%- for m in messages -%}
{%- if m.role == 'user' -%}
{%- if tools and loop.index0 == messages | map(attribute='role') | list | length - 1 -%}
{{- '[AVAILABLE_TOOLS]' + tools | tojson + '[/AVAILABLE_TOOLS]' -}}
{%- endif %}{{ '[INST]' + m.content + '[/INST]' }}
{%- elif m.tool_calls -%}
{%- set f = m.tool_calls[0].function -%}
{{- '[TOOL_CALLS][{"name": "' + f.name + '", "arguments": ' + f.arguments | tojson
    + ', "id": "' + m.tool_calls[0].id -}}
{{- '"}]' + eos_token -}}
{%- elif m.role == 'assistant' %}{{ ' ' + m.content | trim + eos_token }}
{%- elif m.role == 'tool' -%}
{%- if m.tool_call_id is not defined or m.tool_call_id | length != 9 -%}
{{- raise_exception('Tool call IDs should be alphanumeric strings with length 9!') -}}
{%- endif -%}
{{- '[TOOL_RESULTS]{"content": ' + m.content | tojson + ', "call_id": "' + m.tool_call_id + '"}[/TOOL_RESULTS]' -}}
{%- endif %}{% endfor -%}
"""

FORMS = {
    "qwen2.5": (QWEN25, "<|im_end|>"),
    "qwen3": (QWEN3, "<|im_end|>"),
    "qwen3 without thinking": (QWEN3, "<|im_end|>"),
    "qwen3.5": (QWEN35, "<|im_end|>"),
    "llama3": (LLAMA3, "<|eot_id|>"),
    "gemma3": (GEMMA3, "<end_of_turn>"),
    "phi3": (PHI3, "<|end|>"),
    "glm4.5": (GLM45, "<|user|>"),
    "gpt-oss": (GPT_OSS, "<|return|>"),
    "smollm2": (CHATML, "<|im_end|>"),
    "mistral": (MISTRAL, "</s>"),
}
"""Model -> its template, and what ends its turns."""
CONTROLS = re.compile(r"<\|[a-z_]+\|>|</?(?:start|end)_of_turn>|\[/?[A-Z_]+\]|\[gMASK\]|<sop>|</s>")


def tokenizer_like(model: str, name: str = "byte level") -> PreTrainedTokenizerFast:
    """A small tokenizer with a model's template and its control tokens."""
    template, end = FORMS[model]
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer_of(name), eos_token=end, bos_token="<s>", chat_template=template,
        clean_up_tokenization_spaces=False,
    )  # fmt: skip
    tokenizer.add_tokens(sorted({*CONTROLS.findall(template)} - {end}), special_tokens=True)
    tokenizer.add_tokens(["<think>", "</think>", "<tool_call>", "</tool_call>"])
    if model == "qwen3 without thinking":
        tokenizer.chat_template = "{%- set enable_thinking = false -%}" + template  # as load.py writes it
    return tokenizer


def chat_tokenizer(template: str, name: str = "byte level") -> PreTrainedTokenizerFast:
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer_of(name), eos_token="<|im_end|>", chat_template=template,
        additional_special_tokens=["<|im_start|>", "<|endoftext|>"], clean_up_tokenization_spaces=False,
    )  # fmt: skip
    tokenizer.add_tokens(["<think>", "</think>"])
    return tokenizer
