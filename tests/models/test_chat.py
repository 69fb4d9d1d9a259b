import os
import subprocess
import sys

import pytest

from lyceum.core.types import Task
from lyceum.models import chat
from lyceum.models.load import ModelSettings, load_policy, load_tokenizer
from lyceum.models.prompts import TokenizerReader
from lyceum.models.renderer import Renderer
from lyceum.utils.errors import RecipeError

USER = [{"role": "user", "content": "1+1="}]


def render(tokenizer, messages):
    return Renderer(tokenizer).render(messages).tokens


@pytest.fixture
def with_template(tmp_path):
    def load(template: str):
        (tmp_path / "template.jinja").write_text(template)
        return load_tokenizer(ModelSettings(path="scratch", chat_template=str(tmp_path / "template.jinja")))

    return load


def test_what_a_template_raises_over_a_prompt_is_a_line(with_template):
    tokenizer = with_template(
        "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
        "{{ messages[0].content }}"
    )
    assert tokenizer.decode(render(tokenizer, USER)) == "1+1="
    with pytest.raises(RecipeError, match=r"model.chat_template: .* System role not supported; give another template"):
        render(tokenizer, [{"role": "system", "content": "Be brief."}, *USER])


def test_the_task_whose_prompt_cannot_be_rendered_is_named(with_template):
    tokenizer = with_template(
        "{{ messages[0].content }}{{ raise_exception('no sums') if '1+1' in messages[0].content }}"
    )
    with pytest.raises(
        RecipeError, match=r"^tasks: the prompt of task 'a' cannot be rendered\nmodel.chat_template: .*no sums"
    ):
        TokenizerReader("tasks", tokenizer, 64).check(Task("a", tuple(USER)))


def test_the_descriptions_of_tools_count_among_the_prompts_tokens(with_template):
    tokenizer = with_template("{% for tool in tools %}{{ tool.description }}{% endfor %}{{ messages[0].content }}")
    task, tools = Task("a", tuple(USER)), [{"name": "add", "description": "x" * 60}]
    TokenizerReader("tasks", tokenizer, 64, [{"name": "add", "description": "x" * 59}]).check(task)  # 59 + 4 tokens
    with pytest.raises(
        RecipeError, match="has 64 tokens, its 1 tools' descriptions among them, the model's context 64"
    ):
        TokenizerReader("tasks", tokenizer, 64, tools).check(task)


def test_a_role_that_the_template_does_not_name_is_refused(with_template):
    task = Task("a", ({"role": "usr", "content": "1+1="},))
    with pytest.raises(RecipeError, match=r"message of the role 'usr' \(did you mean 'user'\?\)"):
        TokenizerReader("tasks", with_template("{{ messages[0].role }}{{ messages[0].content }}"), 64).check(task)
    TokenizerReader(
        "tasks", with_template("{{ 'Q: ' if messages[0].role == 'usr' }}{{ messages[0].content }}"), 64
    ).check(task)


def test_a_template_may_ask_for_a_system_message(with_template):
    tokenizer = with_template(
        "{% if messages[0].role != 'system' %}{{ raise_exception('no system') }}{% endif %}{{ messages[1].content }}"
    )
    assert tokenizer.decode(render(tokenizer, [{"role": "system", "content": ""}, *USER])) == "1+1="


@pytest.mark.parametrize(
    ("template", "fault"),
    [
        ("{% if %}", "is not valid Jinja: Expected an expression, .*, line 1"),
        ("", "drops the user's message: 'nightingale' renders as ''"),
        ("Answer:", "drops the user's message: 'nightingale' renders as 'Answer:'"),
        ("{{ messages[0].content }}{% for i in range(99) %}{{ range(9) | random }}{% endfor %}", "differently each"),
        ("{{ messages[0].content }}{{ 'a' * 10000000 }}", "makes 10000011 characters of one word"),
        ("{{ messages[0].content }}{{ 'a' * 10000000000 }}", "takes more than 1024 MiB"),
        ("{{ messages[0].content }}{{ 'x' | center(3000000000) }}", "takes more than 1024 MiB"),
    ],
)
def test_a_template_that_loses_the_prompt_is_refused(with_template, template, fault):
    with pytest.raises(RecipeError, match=rf"^model.chat_template: the template of .*template.jinja .*{fault}"):
        with_template(template)


def test_a_template_that_does_not_end_is_ended(with_template, monkeypatch):
    monkeypatch.setattr(chat, "TRIAL_SECONDS", 0.5)
    endless = (
        "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}{{ messages[0].content }}"
    )
    with pytest.raises(RecipeError, match=r"does not end within 0.5 seconds"):
        with_template(endless)


@pytest.mark.parametrize(
    "dear",
    [
        "{% for i in range(30000) %}{% for j in range(30000) %}{% endfor %}{% endfor %}",
        "{{ lipsum(n=1000000) }}",
    ],
)
def test_a_template_has_two_seconds_of_a_processor(with_template, dear):
    # They took the 20 seconds that a busy machine may need for one that is cheap.
    begin = os.times().children_user
    with pytest.raises(RecipeError, match=r"takes more than 2 seconds for one message of one word"):
        with_template("{{ messages[0].content }}" + dear)
    assert os.times().children_user - begin < 4


def test_a_limit_of_memory_that_holds_already_is_lowered(tmp_path):
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_AS, (64 << 30, 64 << 30))\n"
        "from lyceum.models.load import ModelSettings, load_tokenizer\n"
        "load_tokenizer(ModelSettings(path='scratch', chat_template=sys.argv[1]))"
    )
    file = tmp_path / "template.jinja"
    file.write_text("{{ messages[0].content }}{{ 'a' * 3000000000 }}")
    ended = subprocess.run([sys.executable, "-c", code, str(file)], capture_output=True, text=True, check=False)
    assert "takes more than 1024 MiB" in ended.stderr


def test_where_no_process_can_be_forked_the_template_is_tried_all_the_same(with_template, monkeypatch):
    monkeypatch.setattr(chat.multiprocessing, "get_all_start_methods", lambda: ["spawn"])
    with pytest.raises(RecipeError, match="drops the user's message"):
        with_template("Question:")


def test_a_template_file_that_is_no_text_is_refused(tmp_path):
    (tmp_path / "template.jinja").write_bytes(b"\xff\xfe")
    with pytest.raises(RecipeError, match=r"model.chat_template: .*template.jinja: UnicodeDecodeError"):
        load_tokenizer(ModelSettings(path="scratch", chat_template=str(tmp_path / "template.jinja")))


def test_content_in_parts_is_what_it_is_in_one(with_template):
    parts = [{"role": "user", "content": [{"type": "text", "text": "1+"}, {"type": "text", "text": "1="}]}]
    plain = with_template("{{ messages[0].content }}")  # of a list this would print Python's notation
    assert render(plain, parts) == render(plain, USER)
    with pytest.raises(RecipeError, match=r"has the part \{'type': 'video'\}; allowed: \{type: text"):
        render(plain, [{"role": "user", "content": [{"type": "video"}]}])
    with pytest.raises(RecipeError, match="a message holds a picture, and the model reads text alone"):
        render(plain, [{"role": "user", "content": [{"type": "image"}]}])


def test_half_of_a_character_is_named():
    policy = load_policy(ModelSettings(path="scratch"))
    with pytest.raises(RecipeError, match=r"lone surrogate at 1: 'a\\ud83d'"):
        policy.render([{"role": "user", "content": "a\ud83d"}])
    with pytest.raises(RecipeError, match=r"lone surrogate at 1: 'a\\ud83d'"):
        policy.encode("a\ud83d")


def test_a_prompt_of_no_tokens_is_refused(with_template):
    tokenizer = with_template("{{ messages[0].content }}")
    with pytest.raises(RecipeError, match="the template renders nothing for"):
        render(tokenizer, [{"role": "user", "content": ""}])


def test_the_plain_template_is_each_messages_content():
    tokenizer = load_tokenizer(ModelSettings(path="scratch", chat_template="plain"))
    turns = [("system", "S"), ("user", "1+1="), ("assistant", "2"), ("user", "3")]
    messages = [{"role": role, "content": content} for role, content in turns]

    def text(n, *, add_generation_prompt=True):
        return tokenizer.apply_chat_template(messages[:n], tokenize=False, add_generation_prompt=add_generation_prompt)

    end = tokenizer.eos_token
    assert text(4) == f"S\n\n1+1=2{end}\n\n3"
    # What comes later changes nothing of what stands before: turns can follow on sampled tokens.
    assert all(text(4).startswith(text(n)) for n in (1, 2, 3))
    assert tokenizer.apply_chat_template(USER, tokenize=False, add_generation_prompt=True) == "1+1="


def test_the_plain_template_begins_as_the_tokenizer_does(tmp_path):
    from tokenizers.processors import TemplateProcessing

    from lyceum.models.scratch import build_scratch

    module, tokenizer = build_scratch(seed=0)
    module.save_pretrained(tmp_path)
    tokenizer.chat_template = None
    for begins in (False, True):
        tokenizer.bos_token = tokenizer.eos_token
        if begins:
            eos = (tokenizer.eos_token, tokenizer.eos_token_id)
            tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
                single=f"{eos[0]} $A", pair=None, special_tokens=[eos]
            )
        tokenizer.save_pretrained(tmp_path)
        with pytest.raises(RecipeError, match=r"comes without a chat template; allowed: plain \(for a base model"):
            load_tokenizer(ModelSettings(path=str(tmp_path)))
        loaded = load_tokenizer(ModelSettings(path=str(tmp_path), chat_template="plain"))
        text = loaded.apply_chat_template(USER, tokenize=False, add_generation_prompt=True)
        assert text == ("<eos>1+1=" if begins else "1+1=")
