"""Environments of OpenEnv: the client against recorded replies, and against a server of OpenEnv's own."""

import asyncio
import importlib.util
import json
from pathlib import Path

import pytest

from lyceum.core.types import Task
from lyceum.environment.openenv import (
    ActionForm,
    OpenEnvError,
    OpenEnvServer,
    OpenEnvWorlds,
    action_form,
    shown_field,
)
from lyceum.recipe.schema import load_recipe
from lyceum.tasks.games import NotAnAction
from lyceum.training.train import train
from lyceum.utils.errors import RecipeError

RECORDED = json.loads((Path(__file__).parent / "openenv_replies.json").read_text())
TASK = Task("t0", ({"role": "user", "content": "Guess."},), None, {"highest": 9})


class Recorded:
    """A connection to a server that says what OpenEnv 0.10 said."""

    def __init__(self, replies):
        self.replies, self.sent, self.closed = list(replies), [], False

    async def send(self, message):
        self.sent.append(json.loads(message))

    async def recv(self):
        return self.replies.pop(0)

    async def wait_closed(self):
        assert self.sent[-1] == {"type": "close"}

    async def close(self):
        self.closed = True


def worlds_of(*replies, **settings):
    """Worlds whose one connection has these replies."""
    worlds, connection = OpenEnvWorlds(OpenEnvServer(url="http://127.0.0.1:1", **settings)), Recorded(replies)

    async def connected():
        return connection

    worlds._connected = connected
    schemas = RECORDED["schema"]
    worlds.forms = action_form(schemas["action"], None), shown_field(schemas["observation"], None)
    return worlds, connection


def test_an_episode_begins_with_a_reset_and_ends_with_the_session():
    replies = [json.dumps(RECORDED[name]) for name in ("reset", "step", "refused", "end")]
    worlds, connection = worlds_of(*replies, columns=("highest",), failed_reward=-1)

    async def play():
        session, messages = await worlds.begin(TASK)
        said = ("Perhaps [3]?", "no number", "[1.5]", "[5]")
        observed = [await worlds.step(session, each) for each in said]
        await worlds.end(session)
        return messages, observed

    (message,), observed = asyncio.run(play())
    assert message == {"role": "user", "content": "From 1 to 9."}
    hint, wrong, refused, last = observed
    assert (hint.messages[0]["content"], hint.reward, hint.end) == ("higher", -0.1, False)
    assert wrong.messages[0]["content"] == "error: got 'no number': Expecting value, character 1; allowed: a number"
    assert refused.messages[0]["content"].startswith("error: number: Input should be a valid integer")
    assert [(each.failed, each.reward) for each in (wrong, refused)] == [(1, -1.0)] * 2
    assert (last.reward, last.end, last.messages) == (1.0, True, ())
    reset, *steps, close = connection.sent
    assert reset["data"].keys() == {"seed", "highest"}
    assert [step["data"] for step in steps] == [{"number": 3}, {"number": 1.5}, {"number": 5}]
    assert close == {"type": "close"}
    assert connection.closed


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        (RECORDED["full"], "allowed: max_concurrent_envs=N"),
        (RECORDED["raised"], "not this number"),
        ({"type": "observation", "data": {"observation": {}, "reward": "much"}}, "allowed: a number"),
        ({"type": "observation", "data": {"observation": {"hint": "x"}, "done": True}}, "ended when it begins"),
        ({"type": "observation"}, "answered reset with"),
        ("<html>", "answered reset with '<html>'"),
    ],
)
def test_what_a_server_should_not_say_ends_the_trajectory_and_the_session(reply, says):
    worlds, connection = worlds_of(reply if isinstance(reply, str) else json.dumps(reply))
    with pytest.raises(OpenEnvError, match=says):
        asyncio.run(worlds.begin(TASK))
    assert connection.closed


def test_turns_become_actions_by_the_servers_schema():
    text = {"properties": {"message": {"type": "string"}, "metadata": {"type": "object"}}}
    assert action_form(text, None).read("[say] \ud800") == {"message": "[say] ?"}
    several = {"properties": {"action_id": {"type": "integer"}, "game": {"type": "string"}}}
    assert action_form(several, "action_id").read("I take [2].") == {"action_id": 2}
    assert action_form(several, None).read('so: {"action_id": 2}') == {"action_id": 2}
    with pytest.raises(NotAnAction, match="allowed: an object of JSON"):
        action_form(several, None).read("2")
    with pytest.raises(NotAnAction, match="allowed: a number"):
        action_form(several, "action_id").read("true")
    way = {"properties": {"way": {"$ref": "#/$defs/Way"}}, "$defs": {"Way": {"enum": ["LEFT", "RIGHT"]}}}
    assert action_form(way, None).read("I go [left]") == {"way": "LEFT"}
    with pytest.raises(NotAnAction, match=r"allowed: \[LEFT\], \[RIGHT\]"):
        action_form(way, None).read("up")
    assert action_form({}, None) == ActionForm(None)
    with pytest.raises(RecipeError, match=r"action: got 'gam' \(did you mean 'game'\?\); allowed: action_id, game"):
        action_form(several, "gam")
    with pytest.raises(RecipeError, match="observation: got 'x'; allowed: message"):
        shown_field(text, "x")


def test_an_observation_is_shown_whole_or_by_a_field():
    reply = json.dumps({"type": "observation", "data": {"observation": {"stdout": "x" * 30, "code": 0}}})
    worlds, _ = worlds_of(reply, reply, max_characters=20)
    worlds.forms = ActionForm("code", "text"), None
    _, (message,) = asyncio.run(worlds.begin(TASK))
    assert message["content"] == '{"stdout": "xxxxxxxx... [cut: 20 of 55 characters]'
    worlds.forms = ActionForm("code", "text"), "code"
    _, (message,) = asyncio.run(worlds.begin(TASK))
    assert message["content"] == "0"


def test_openenv_settings_that_cannot_work_are_refused(tmp_path):
    for settings in ({}, {"url": "http://a", "command": "b {port}"}):
        with pytest.raises(ValueError, match="allowed: one, such as url="):
            OpenEnvServer.model_validate(settings)
    with pytest.raises(ValueError, match=r"it does not say \{port\}"):
        OpenEnvServer(command="python3 server.py")
    with pytest.raises(ValueError, match="allowed: such as http"):
        OpenEnvServer(url="localhost:8000")
    recipe = tmp_path / "recipe.yaml"
    environment = "{kind: openenv, command: 'python3 a.py {port}'}"
    recipe.write_text(f"extends: grpo\nstages:\n  - rollout: {{kind: turns, environment: {environment}}}\n")
    with pytest.raises(RecipeError, match="trust_code: the recipe wants to run"):
        load_recipe(str(recipe), [])


# A server of OpenEnv's own --------------------------------------------------------------------------------------------

PYTHON = Path(__file__).parents[2] / ".venv-openenv" / "bin" / "python"
NEEDED = pytest.mark.skipif(
    not PYTHON.exists() or importlib.util.find_spec("websockets") is None,
    reason="openenv is not installed: make test-engines",
)


def settings_of(sessions):
    command = (str(PYTHON), str(Path(__file__).parent / "openenv_server.py"), "{port}", str(sessions))
    return OpenEnvServer(command=command, start_seconds=300)


def keys_of(folder, sessions, **more):
    """Keys of a run in the environment, with the settings that are given."""
    rows = [{"prompt": f"Guess {i}.", "highest": 5} for i in range(8)]
    (folder / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    environment = settings_of(sessions).model_dump(exclude_unset=True) | {
        "columns": ["highest"],
        "max_turns": 3,
        **more,
    }
    sampling = {"max_completion_tokens": 40, "constraint": {"kind": "regex", "pattern": "[1-5]|10[13]"}}
    rollout = {"kind": "turns", "environment": {"kind": "openenv", **environment}, "samples": 4, "sampling": sampling}
    return [
        *(
            f"tasks={folder}/tasks.jsonl",
            "tasks.columns.answer=null",
            f"rollout={json.dumps(rollout)}",
            "model=scratch",
        ),
        *("steps=2", "reward=environment", "tasks_per_step=2", "evaluate.n=0", "track=[]", "threads=1", "name=run"),
        *(f"output={folder}", "max_steps_without_signal=0"),
    ]


@NEEDED
def test_one_that_has_no_place_is_refused_before_the_model_loads(tmp_path):
    with pytest.raises(RecipeError, match="max_concurrent_envs=N"):
        train(load_recipe("grpo", [*keys_of(tmp_path, 1), "model=none-such"]))


@NEEDED
def test_a_server_plays_and_one_that_dies_is_started_again():
    worlds = OpenEnvWorlds(settings_of(8))

    async def play():
        session, (message,) = await worlds.begin(TASK)
        assert message["content"] == "From 1 to 9."
        other, _ = await worlds.begin(TASK)
        seen = {way: [await worlds.step(way, f"[{guess}]") for guess in range(1, 10)] for way in (session, other)}
        assert seen[session][0].messages == seen[other][0].messages, "the same seed"
        assert [each.end for each in seen[session]].count(True) == 1
        assert sum(each.reward for each in seen[session]) == pytest.approx(1 - 8 * 0.1)
        with pytest.raises(OpenEnvError, match="not this number"):
            await worlds.step(other, "101")
        with pytest.raises(Exception, match="close"):
            await worlds.step(other, "102")
        await worlds.end(session)
        await worlds.end(other)
        _, (message,) = await worlds.begin(TASK)
        assert message["content"] == "From 1 to 9."

    asyncio.run(play())


@NEEDED
def test_a_run_plays_in_sessions_and_counts_what_failed(tmp_path):
    run = train(load_recipe("grpo", keys_of(tmp_path, 8, step_timeout_seconds=2)))
    steps = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    counted = {name: sum(step.get(f"rollout/turns/{name}", 0) for step in steps) for name in ("calls", "failed_steps")}
    assert counted["calls"] > 0
    assert counted["failed_steps"] > 0, "101 raises there, 103 takes too long"
    assert {step["completions"] for step in steps if "completions" in step} <= {8}
