"""Servers of the Model Context Protocol, of its own SDK, as an environment's tools."""

import asyncio
import importlib.util
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lyceum.core.types import ToolCall
from lyceum.environment.mcp import McpServer
from lyceum.recipe.schema import load_recipe
from lyceum.utils.errors import RecipeError

NEEDED = pytest.mark.skipif(importlib.util.find_spec("mcp") is None, reason="mcp is not installed: make test-engines")
SERVER = (sys.executable, str(Path(__file__).parent / "mcp_server.py"))


def results(settings, *calls):
    environment = settings.build()

    async def ask():
        return [await environment.result(ToolCall(name, arguments)) for name, arguments in calls]

    return asyncio.run(ask())


def test_settings_that_cannot_work_are_refused(tmp_path):
    for settings in ({}, {"command": ["a"], "url": "http://127.0.0.1:1"}):
        with pytest.raises(ValueError, match="allowed: one, such as command="):
            McpServer(**settings)
    with pytest.raises(ValueError, match="No closing quotation"):
        McpServer(command="python 'a")
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        "extends: grpo\nstages:\n  - rollout: {kind: turns, environment: {kind: mcp, command: python3 a.py}}\n"
    )
    with pytest.raises(RecipeError, match="trust_code: the recipe wants to run"):
        load_recipe(str(recipe), [])


@NEEDED
def test_the_servers_tools_are_the_policys():
    settings = McpServer(command=SERVER)
    told = {tool["function"]["name"]: tool["function"] for tool in settings.tools}
    assert told["add"]["description"] == "Add two numbers."
    assert told["add"]["parameters"]["properties"]["a"]["type"] == "integer"
    assert settings.counted == ("calls/add", "calls/wrong", "failed_calls/add", "failed_calls/wrong")
    good, text, unknown = results(settings, ("add", {"a": 8, "b": 3}), ("add", {"a": "8", "b": 3}), ("sub", {}))
    assert (good.text, good.failed) == ("11", False)
    assert text.text.startswith("error: 'a' is '8'; allowed: a (integer), b (integer)")
    assert "no tool 'sub'" in unknown.text
    only = McpServer(command=SERVER, only=("add",))
    assert [tool["function"]["name"] for tool in only.tools] == ["add"]
    with pytest.raises(RecipeError, match=r"only: got 'sub'; allowed: add, wrong"):
        _ = McpServer(command=SERVER, only=("sub",)).tools


@NEEDED
def test_whatever_a_tool_does_is_an_error_of_its_call_and_the_next_one_is_answered():
    settings = McpServer(command=SERVER, timeout_seconds=20)
    got = results(
        settings,
        *[each for kind in ("raises", "dies", "prints much", "forges") for each in
          [("wrong", {"kind": kind}), ("add", {"a": 1, "b": 1})]],
    )  # fmt: skip
    raises, dies, much, forges = got[::2]
    assert [each.text for each in got[1::2]] == ["2"] * 4
    assert raises.failed
    assert raises.text.startswith("error: "), "the SDK tells no more of an error than that there was one"
    assert dies.failed
    assert len(much.text) < 5000
    assert much.text.endswith("[cut: 4000 of 1000000 characters]")
    assert not forges.failed


def running(of):
    """Whether a process of this command line is there, and is not ended."""
    for each in Path("/proc").iterdir():
        try:
            if each.name.isdigit() and of in (each / "cmdline").read_bytes().decode() and int(each.name) != os.getpid():
                return True
        except (OSError, UnicodeDecodeError):
            continue
    return False


@NEEDED
def test_a_server_that_hangs_is_ended_with_its_connection(tmp_path):
    mark = f"mark-{tmp_path.name}-{os.getpid()}"
    code = f"import sys; sys.argv = ['x']; exec(open({SERVER[1]!r}).read())  # {mark}"
    settings = McpServer(command=(sys.executable, "-c", code), timeout_seconds=3)
    (hung,) = results(settings, ("wrong", {"kind": "hangs"}))
    assert hung.failed
    assert "3 s" in hung.text
    while running(mark):  # signals arrive in their own time
        time.sleep(0.05)


@NEEDED
def test_a_server_is_reached_over_http():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen([*SERVER, str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while True:
            with socket.socket() as trying:
                if trying.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert server.poll() is None
            time.sleep(0.1)
        (sum_,) = results(McpServer(url=f"http://127.0.0.1:{port}/mcp"), ("add", {"a": 8, "b": 3}))
    finally:
        server.kill()
        server.wait()
    assert sum_.text == "11"


@NEEDED
def test_a_server_that_is_none_is_said_in_a_line():
    for command in (("no-such-program",), (sys.executable, "-c", "print('hello')")):
        with pytest.raises(RecipeError, match="has no list of tools") as error:
            _ = McpServer(command=command, timeout_seconds=20).tools
        assert json.dumps(str(error.value)).count("\\n") == 0
