"""Functions of the user's own are called as the policy asks, and told of as they are written."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from chat_templates import QWEN3, chat_tokenizer
from fake_task import FakeTask
from folder_digest import digest
from tiny_models import plain_model, policy_like
from user_tools import add, text

from lyceum.analysis.measure import Measurement
from lyceum.analysis.rehearsal import rehearse
from lyceum.core.tree import Node
from lyceum.core.types import Exchange, Grade, Origin, Sampling, Task
from lyceum.engine.embedded import EmbeddedEngine
from lyceum.environment._notation import Notation
from lyceum.environment.tools import Tools
from lyceum.recipe.schema import load_recipe
from lyceum.reward.base import allow_code, named_code
from lyceum.rollout.turns import Turns
from lyceum.run.reader import read_recipe
from lyceum.run.trees import read_trees
from lyceum.runtime.in_process import InProcess
from lyceum.training.train import check, train
from lyceum.utils.aio import run_async
from lyceum.utils.errors import Interrupted, RecipeError

FILE = str(Path(__file__).with_name("user_tools.py"))


@pytest.fixture(autouse=True)
def _code_is_allowed() -> Iterator[None]:
    with allow_code():
        yield


def tools(*names: str, **settings) -> Tools:
    return Tools(functions=tuple(f"{FILE}:{name}" for name in names), **settings)


def called(name: str, **arguments) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def stepped(settings: Tools, said: str):
    environment = settings.build()
    return run_async(environment.step(environment.reset(Task("t", ())), Node(None, [1], 0), said, FakeTask()))


def results(settings: Tools, *calls: str) -> list[str]:
    return [message["content"] for message in stepped(settings, "".join(calls)).messages]


def test_the_template_is_told_what_signature_and_docstring_say():
    (tool,) = tools("add").tools
    assert tool["function"]["name"] == "add"
    assert tool["function"]["description"] == "Add two lengths."
    assert tool["function"]["parameters"] == {
        "type": "object",
        "properties": {
            "a": {"type": "integer", "description": "the first length"},
            "b": {"type": "number", "description": "the second length"},
            "unit": {"type": "string", "enum": ["m", "km"], "description": "of both"},
        },
        "required": ["a"],
    }


@pytest.mark.parametrize("settings", [{}, {"processes": 0}], ids=["in a process", "here"])
def test_calls_are_answered_in_their_order_and_counted_by_tool(settings):
    asked = [called("add", a=1, b=2.5), called("text", of="é"), called("text", of=None), called("fails", at="x")]
    seen = stepped(tools("add", "text", "fails", **settings, failed_reward=-0.5), "Well. " + "".join(asked))
    assert [message["content"] for message in seen.messages] == [
        '{"sum": 3.5, "unit": "m"}', "é", "none", "error: KeyError: 'x'"
    ]  # fmt: skip
    assert [(message["role"], message["name"]) for message in seen.messages[:2]] == [("tool", "add"), ("tool", "text")]
    assert (seen.calls, seen.failed, seen.reward, seen.end) == (4, 1, -0.5, False)
    assert dict(seen.counts) == {"calls/add": 1, "calls/text": 2, "calls/fails": 1, "failed_calls/fails": 1}
    assert set(seen.counts) <= set(tools("add", "text", "fails").counted)


TAKES = 'allowed: a (integer), b (number, optional), unit ("m" or "km", optional)'
REFUSED = {
    called("times", a=1): "error: no tool 'times'; allowed: add, text",
    called("add"): f"error: 'a' is missing; {TAKES}",
    called("add", a=1, c=2): f"error: unknown argument 'c'; {TAKES}",
    called("add", a="1"): f"error: 'a' is '1'; {TAKES}",
    called("add", a=True): f"error: 'a' is True; {TAKES}",
    called("add", a=1, unit="inch"): f"error: 'unit' is 'inch'; {TAKES}",
    called("text", of=3): "error: 'of' is 3; allowed: of (string or null)",
    "<tool_call>add(1)</tool_call>": "error: the call is not JSON (Expecting value, character 1); allowed: ",
    "<tool_call>" + "[" * 10_000 + "</tool_call>": "error: the call is not JSON (lists and objects more than 20 deep)",
    f'<tool_call>{{"name": "add", "arguments": {{"a": {"9" * 30}}}}}</tool_call>': "error: the call is not JSON (",
    '<tool_call>{"name": "add", "arguments": "a"}</tool_call>': "error: no call of a tool with arguments; allowed: ",
    '<tool_call>{"name": ["add"], "arguments": {}}</tool_call>': "error: no call of a tool with arguments; allowed: ",
}


def test_what_does_not_fit_is_not_called_and_says_what_is_allowed():
    seen = stepped(tools("add", "text", processes=0), "".join(REFUSED))
    for message, told in zip(seen.messages, REFUSED.values(), strict=True):
        assert message["content"].startswith(told)
    assert (seen.calls, seen.failed) == (len(REFUSED), len(REFUSED))
    assert stepped(tools("add"), "The answer is 24. <tool_call>").end


def test_results_and_calls_are_limited():
    settings = tools("text", "odd", processes=0, max_characters=10, max_calls=2)
    long, never, more = results(settings, called("text", of="x" * 25), called("odd"), called("odd"))
    assert long == "x" * 10 + "... [cut: 10 of 25 characters]"
    assert never.startswith("error: TypeError:... [cut: 10 of ")
    assert more == "error: more than 2 calls in a turn"


@pytest.mark.parametrize(("name", "given"), [("sleeps", {"seconds": 30}), ("hangs", {})])
def test_a_tool_that_hangs_is_ended(name, given):
    (text,) = results(tools(name, timeout_seconds=0.3), called(name, **given))
    assert text.startswith("error: no result within 0.3 seconds")


def test_a_tool_that_would_end_the_run_ends_its_own_call():
    assert results(tools("exits"), *(called("exits", how=how) for how in ("exit", "cancel", "timeout"))) == [
        "error: it called sys.exit(0)", "error: it was cancelled, and not by the run", "error: TimeoutError: no answer"
    ]  # fmt: skip


def test_calls_of_a_turn_run_together_and_are_answered_in_order():
    # Each waits fewer turns of the loop than the one before it, and sees all that began.
    assert results(tools("waits"), *(called("waits", turns=turns) for turns in (9, 6, 3))) == ["3", "3", "3"]


def test_replay_calls_nothing(monkeypatch):
    settings = tools("compute", notation=Notation(), processes=0)
    environment = settings.build()
    monkeypatch.setattr(type(environment), "result", None)
    state = environment.replay(Task("t", ()), [Exchange("37+8=", "45")])
    assert (state.text, state.calls) == ("37+8=45", 1)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("bare", "DocstringParsingException: .* no docstring.*; allowed: a docstring"),
        ("typed", "no description for the argument 'a'"),
        ("many", "parameter 'a' has no name"),
        ("ad", r"has no function 'ad' \(did you mean 'add'\?\)"),
    ],
)
def test_functions_that_do_not_tell_how_they_are_called_are_refused(name, told):
    with pytest.raises(RecipeError, match=f"environment.functions: .*{told}"):
        tools(name).build()


def test_settings_that_cannot_work_are_refused():
    for functions, more, told in [
        ([], {}, "at least 1"),
        ([f"{FILE}:add", "other.py:add"], {}, "two that are called 'add'"),
        ([f"{FILE}:add", f"{FILE}:text"], {"notation": {}}, "several with a notation"),
    ]:
        environment = json.dumps({"kind": "tools", "functions": functions, **more})
        with pytest.raises(RecipeError, match=told):
            load_recipe("calculator", [f"rollout.environment={environment}"])
    with pytest.raises(RecipeError, match=r"a function of one parameter, a str, or environment.notation=null"):
        tools("add", notation=Notation()).build()


def test_functions_may_be_given_themselves():
    settings = Tools(functions=[add, text])
    assert settings.names == ["add", "text"]
    assert results(settings, called("add", a=1)) == ['{"sum": 2.0, "unit": "m"}']
    elsewhere = Tools(functions=[name.replace("tool_add", "tool_of_another_process") for name in settings.functions])
    with pytest.raises(RecipeError, match=r"^environment.functions: 'tool_of_another_process' was passed in"):
        elsewhere.build()


SMALL = ["steps=2", "tasks_per_step=2", "rollout.samples=4", "evaluate.n=0", "trees_every=1", "tasks.levels=[4]"]
ENVIRONMENT = {"kind": "tools", "functions": [f"{FILE}:compute"], "notation": {}}


def test_code_that_nobody_allowed_is_not_run(tmp_path):
    mine = tmp_path / "mine.yaml"
    rollout = {"kind": "turns", "environment": ENVIRONMENT}
    mine.write_text(json.dumps({"extends": "calculator", "stages": [{"rollout": rollout}]}))
    with pytest.raises(
        RecipeError, match=r"the recipe wants to run .*user_tools.py:compute; look at it, then give trust"
    ):
        load_recipe(str(mine))
    recipe = load_recipe(str(mine), ["trust_code=true"])
    assert named_code(recipe) == [f"{FILE}:compute"]
    with allow_code(False), pytest.raises(RecipeError, match="which is Python code to run"):
        recipe.stages[0].rollout.build()
    wrong = json.dumps(ENVIRONMENT | {"functions": [f"{FILE}:bare"]})
    with pytest.raises(RecipeError, match="no docstring"):
        check(load_recipe("calculator", [f"rollout.environment={wrong}"]))


def test_the_prompt_that_a_dry_run_shows_tells_of_the_functions(tmp_path):
    environment = json.dumps({"kind": "tools", "functions": [f"{FILE}:add"]})
    template = tmp_path / "chat.jinja"
    template.write_text(QWEN3)
    keys = [*SMALL, f"output={tmp_path}", f"model.chat_template={template}", f"rollout.environment={environment}"]
    assert "Add two lengths." in rehearse(load_recipe("calculator", keys)).prompt


def test_a_run_calls_a_function_and_is_the_same_when_resumed(tmp_path):
    keys = [*SMALL, f"output={tmp_path}", f"rollout.environment={json.dumps(ENVIRONMENT)}"]
    path = train(load_recipe("calculator", [*keys, "name=run"]))
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        assert line["rollout/turns/calls"] == line["rollout/turns/calls/compute"] >= 2 * 4
        assert line["rollout/turns/failed_calls"] == line["rollout/turns/failed_calls/compute"]
    trees = [tree for file in sorted((path / "trees").iterdir()) for tree in read_trees(file).trees]
    answers = [node for tree in trees for node in tree.nodes() if node.origin is Origin.TOOL]
    assert sum(node.text.isdigit() for node in answers) > len(answers) / 2
    again = [*keys, "checkpoint_every=1", "name=again"]
    with pytest.raises(Interrupted):
        train(load_recipe("calculator", again), interrupted=iter([True]).__next__)
    resumed = train(load_recipe("calculator", again), resume=True)
    assert digest(resumed / "model", without=("README.md",)) == digest(path / "model", without=("README.md",))


def test_a_run_whose_prompts_tell_of_functions_needs_no_permission_beyond_the_recipes(tmp_path, capfd):
    environment = json.dumps({"kind": "tools", "functions": [f"{FILE}:add"]})
    keys = [*SMALL, "steps=1", f"output={tmp_path}", "name=run", f"rollout.environment={environment}"]
    with allow_code(False):  # as on the command line, where the path was typed
        train(load_recipe("calculator", keys))
    assert "no tool was called; where the model's chat template" in capfd.readouterr().err


def test_a_runs_functions_have_to_be_trusted_again(tmp_path):
    keys = [*SMALL, "steps=1", f"output={tmp_path}", f"rollout.environment={json.dumps(ENVIRONMENT)}"]
    path = train(load_recipe("calculator", keys))
    assert read_recipe(path)["stages"][0]["rollout"]["environment"]["functions"] == [f"{FILE}:compute"]
    assert "lyceum train recipe.yaml trust_code=true --name again" in (path / "model/README.md").read_text()
    with pytest.raises(RecipeError, match="wants to run"):
        Measurement.of(path, None, [], k=[1], n=1, samples=1, greedy=False, seed=0)
    with allow_code(False):
        Measurement.of(path, None, ["trust_code=true"], k=[1], n=2, samples=1, greedy=False, seed=0).run()


def test_a_chat_models_calls_are_answered_by_messages_of_the_tool():
    tokenizer = chat_tokenizer(QWEN3)
    vocabulary = {"vocab_size": len(tokenizer), "eos_token_id": tokenizer.eos_token_id, "max_position_embeddings": 2048}
    policy = policy_like(plain_model("qwen3", spread=0.15, **vocabulary), tokenizer)
    ends = Sampling(max_completion_tokens=40, stop_token_ids=tuple(range(5, 330, 6)))
    settings = Turns(samples=3, environment=tools("add", "sleeps"), sampling=ends)
    call = called("add", a=8) + called("sleeps", seconds=0.01)
    tokens = tokenizer(call, add_special_tokens=False)["input_ids"]

    async def rollout(context, start, n):
        return await settings.build()(context, start.add(tokens, Origin.PREFIX, call), n)

    async def right(task, leaves, context):
        return [Grade(1.0) for _ in leaves]

    runtime = InProcess(policy, EmbeddedEngine(policy), right, seed=3, tools=settings.tools)
    asked = [Task(f"t{i}", ({"role": "user", "content": "What is 8 m and 1 m?"},)) for i in range(2)]
    trees = run_async(runtime.run(asked, rollout, key=0))
    answered = [leaf for tree in trees for leaf in tree.trajectories if leaf.stats.get("turn", 1) > 1]
    assert answered
    for leaf in answered:
        whole = tokenizer.decode(leaf.path_tokens())
        assert "Add two lengths." in whole
        assert '<tool_response>\n{"sum": 9.0, "unit": "m"}\n</tool_response>' in whole
        assert "tool_response" not in leaf.completion
    metrics = settings.metrics(trees)
    assert metrics["calls/add"] == metrics["calls/sleeps"] == len(answered)
    assert settings.note(trees) is None
    silent = run_async(runtime.run(asked, settings.build(), key=0))
    assert "no tool was called" in (settings.note(silent) or "")
