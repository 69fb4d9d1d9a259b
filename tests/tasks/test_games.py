"""Games of other libraries: played in processes, repeated from seed and actions."""

import importlib.util
import json
import random
import re
from types import SimpleNamespace

import pytest

from lyceum.core.types import Task
from lyceum.environment.game import PlayedGame
from lyceum.recipe.schema import load_recipe
from lyceum.reward.pool import WorkerError
from lyceum.tasks.games import GAME, KEPT, SEED, Move, NotAnAction, digest, played, pool_of
from lyceum.tasks.gymnasium import GymnasiumTasks
from lyceum.tasks.textarena import TextArenaTasks
from lyceum.training.train import train
from lyceum.utils.aio import run_async
from lyceum.utils.errors import RecipeError

pytestmark = pytest.mark.usefixtures("small_scratch")


class Dice:
    """Shows a number of the global generator after each action; ``quit`` ends it."""

    begun, drifts = 0, False

    def begin(self, seed):
        type(self).begun += 1
        self.drift = type(self).begun if self.drifts else 0
        return f"{seed}: {random.random()}"

    def play(self, action):
        if action == "?":
            raise NotAnAction("got '?'; allowed: all else")
        return Move(f"{action} {random.random()} {self.drift}", 0.5, action == "quit")

    def close(self):
        pass


def game_of(work, seed, actions):
    """What each of the actions led to, and what was shown before the last."""
    seen, moves = [digest(work({"seed": seed, "actions": [], "seen": []})["text"])], []
    for i in range(len(actions)):
        moves.append(work({"seed": seed, "actions": actions[: i + 1], "seen": seen}))
        seen = [*seen, digest(moves[-1].get("text", ""))]
    return moves


def test_a_game_is_the_same_whatever_else_its_process_plays_and_in_another_process():
    work = played(Dice)
    alone = game_of(played(Dice), 7, ["a", "b", "quit"])
    seen = [digest(work({"seed": 7, "actions": [], "seen": []})["text"])]
    for i, action in enumerate(["a", "b", "quit"]):
        game_of(work, 8 + i, ["x", "y"])  # between its turns
        move = work({"seed": 7, "actions": ["a", "b", "quit"][: i + 1], "seen": seen})
        assert move == alone[i], action
        seen.append(digest(move["text"]))
    anew = played(Dice)({"seed": 7, "actions": ["a", "b", "quit"], "seen": seen[:3]})
    assert anew == alone[2] | {"end": True, "reward": 0.5}
    branch = work({"seed": 7, "actions": ["a", "c"], "seen": seen[:2]})
    assert branch["text"].split()[1:] == alone[1]["text"].split()[1:], "another branch, from the same state"


def test_what_is_no_action_changes_nothing():
    work = played(Dice)
    seen = [digest(work({"seed": 7, "actions": [], "seen": []})["text"])]
    assert work({"seed": 7, "actions": ["?"], "seen": seen}) == {"refused": "got '?'; allowed: all else"}
    assert work({"seed": 7, "actions": ["a"], "seen": seen}) == game_of(played(Dice), 7, ["a"])[0]


def test_a_game_that_is_not_repeatable_says_so_where_it_is_played_again():
    class Drifting(Dice):
        drifts = True

    work = played(Drifting)
    seen = [digest(work({"seed": 7, "actions": [], "seen": []})["text"])]
    first = work({"seed": 7, "actions": ["a"], "seen": seen})
    seen.append(digest(first["text"]))
    for other in range(KEPT):
        begun = digest(work({"seed": other + 10, "actions": [], "seen": []})["text"])
        work({"seed": other + 10, "actions": ["a"], "seen": [begun]})
    with pytest.raises(ValueError, match="replay differs after 1 actions"):
        work({"seed": 7, "actions": ["a", "b"], "seen": seen})


def test_a_file_may_not_name_code_by_a_column():
    made = {"name": "os:Game-v0", "options": {}, "actions": []}
    game = json.dumps({"kind": "gymnasium", "made": made, "processes": 1, "timeout_seconds": 5, "memory_mb": None})
    with pytest.raises(RecipeError, match="'os:Game-v0' is code"):
        PlayedGame().build().reset(Task("t", (), None, {GAME: game, SEED: 1}))
    with pytest.raises(RecipeError, match="got games of kind 'rows'"):
        pool_of(game.replace('"gymnasium"', '"rows"'))
    assert GymnasiumTasks(name="mine:Game-v0").code() == ("mine:Game-v0",)


def needs(package):
    missing = importlib.util.find_spec(package) is None
    return pytest.mark.skipif(missing, reason=f"{package} is not installed: make test-engines")


LAKE = GymnasiumTasks(name="FrozenLake-v1", options={"is_slippery": False}, actions=("left", "down", "right", "up"))


@needs("gymnasium")
def test_an_environment_of_gymnasium_is_read_and_played_in_text():
    source = LAKE.build("train", 0)
    assert source[0] == LAKE.build("train", 0)[0]
    assert source[0].columns[SEED] != source[1].columns[SEED]
    assert source[0].messages[0]["content"].strip().startswith("[S]FFF"), "the place that colour marks"

    def play(action, actions=()):
        seen, before = [digest(source[0].messages[0]["content"])], list(actions)
        for i in range(len(before)):
            moved = pool_of(source.game).submit({"seed": seed, "actions": before[: i + 1], "seen": seen}).result()
            seen.append(digest(moved["text"]))
        return pool_of(source.game).submit({"seed": seed, "actions": [*before, action], "seen": seen}).result()

    seed = source[0].columns[SEED]
    assert "[F]" in play("I go [down].")["text"]
    assert "allowed: [left], [down], [right], [up]" in play("hm")["refused"]
    won = ["down", "down", "right", "right", "down"]
    assert play("right", won) | {"reward": 1.0, "end": True} == play("right", won)


@needs("gymnasium")
def test_what_gymnasium_does_not_know_is_said_in_a_line():
    with pytest.raises(RecipeError, match=r"tasks\.name: gymnasium 'NoSuch-v0' does not begin"):
        GymnasiumTasks(name="NoSuch-v0").build("train", 0)[0]
    with pytest.raises(RecipeError, match="allowed: Discrete or Text"):
        GymnasiumTasks(name="Pendulum-v1").build("train", 0)[0]


@needs("textarena")
def test_a_game_of_textarena_is_won_by_its_own_rules():
    source = TextArenaTasks(name="GuessTheNumber-v0").build("train", 0)
    assert "square brackets" in source[0].messages[0]["content"]
    seed, low, high = source[0].columns[SEED], 1, 20
    actions, seen = [], [digest(source.pool.submit({"seed": seed, "actions": [], "seen": []}).result()["text"])]
    while True:
        actions.append(f"I guess [{(low + high) // 2}]")
        moved = source.pool.submit({"seed": seed, "actions": actions, "seen": seen}).result()
        if moved["end"]:
            break
        seen.append(digest(moved["text"]))
        assert moved["text"].count("[GAME]") == 1, "what is new, alone"
        low, high = ((low + high) // 2 + 1, high) if "higher" in moved["text"] else (low, (low + high) // 2 - 1)
    assert (moved["reward"], "correct" in moved["text"]) == (1.0, True)
    with pytest.raises(RecipeError, match="does not begin"):
        TextArenaTasks(name="TicTacToe-v0").build("train", 0)[0]


FIRST_FREE = """
import re


def first_free(shown):
    return re.findall(r"\\[\\d\\]", shown)[-1]
"""


class Scripted:
    """A context whose model plays the highest free cell."""

    def render(self, messages):
        self.messages = list(messages)
        return [0]

    async def ask(self, prefix, n, sampling, *, key):
        free = re.findall(r"\[(\d)\]", self.messages[-1]["content"].rpartition("Available Moves")[2])
        return [SimpleNamespace(tokens=[int(max(free))])]

    def decode(self, tokens):
        return f"I take [{tokens[0]}]"


@needs("textarena")
def test_the_second_player_is_the_model_itself():
    source = TextArenaTasks(name="TicTacToe-v0", opponent="self").build("train", 0)
    environment, context = PlayedGame().build(), Scripted()
    state, turn = environment.reset(source[0]), SimpleNamespace(address=1)
    for said in ("[0]", "[1]"):
        observed = run_async(environment.step(state, turn, said, context))
        state = observed.state
        assert not observed.end
        assert "Player 1" in observed.messages[0]["content"]
    assert [message["role"] for message in state.other] == ["user", "assistant"] * 2
    assert len(state.actions) == 4
    again = PlayedGame().build()
    again.reset(source[0])
    ended = run_async(again.step(state, turn, "[2]", context))
    assert (ended.reward, ended.end) == (1.0, True), "three in a row"
    lost = run_async(environment.step(environment.reset(source[0]), turn, "nothing", context))
    assert lost.reward <= 0


@needs("textarena")
def test_the_second_player_is_a_function(tmp_path):
    (tmp_path / "others.py").write_text(FIRST_FREE)
    settings = TextArenaTasks(name="TicTacToe-v0", opponent=f"{tmp_path}/others.py:first_free")
    assert settings.code() == (f"{tmp_path}/others.py:first_free",)
    source = settings.build("train", 0)
    environment = PlayedGame().build()
    state, turn = environment.reset(source[0]), SimpleNamespace(address=1)
    observed = run_async(environment.step(state, turn, "[4]", Scripted()))
    assert len(observed.state.actions) == 1
    assert observed.messages[0]["content"].count("Player 1") > 0
    with pytest.raises(RecipeError, match="is code"):
        pool_of(source.game.replace("first_free", "another"))


@needs("gymnasium")
def test_one_that_hangs_is_ended_and_named(tmp_path, monkeypatch):
    (tmp_path / "hanging.py").write_text("""
import time
import gymnasium


class Hanging(gymnasium.Env):
    action_space = observation_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return 0, {}

    def step(self, action):
        while action:
            time.sleep(0.01)
        return 1, 0.0, False, False, {}


gymnasium.register("Hanging-v0", Hanging)
""")
    monkeypatch.syspath_prepend(str(tmp_path))
    from lyceum.reward.base import allow_code

    with allow_code():
        source = GymnasiumTasks(name="hanging:Hanging-v0", timeout_seconds=1).build("train", 0)
        job = {"seed": source[0].columns[SEED], "seen": [digest(source[0].messages[0]["content"])]}
        with pytest.raises(WorkerError, match="1 s"):
            source.pool.submit({**job, "actions": ["1"]}).result()
        assert source.pool.submit({**job, "actions": ["0"]}).result()["text"] == "1", "in a process that replaced it"


@needs("gymnasium")
def test_a_run_plays(tmp_path):
    sampling = "{max_completion_tokens: 40, constraint: {kind: regex, pattern: '[0-3]'}}"
    rollout = f"{{kind: turns, environment: {{kind: game, max_turns: 4}}, samples: 4, sampling: {sampling}}}"
    keys = [
        *("tasks={kind: gymnasium, name: FrozenLake-v1, options: {is_slippery: false}}", f"rollout={rollout}"),
        *("model=scratch", "steps=2", "reward=environment", "tasks_per_step=2", "evaluate.n=0", "track=[]"),
        *(f"output={tmp_path}", "name=run", "threads=1"),
    ]
    run = train(load_recipe("grpo", keys))
    steps = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert sum(step.get("rollout/turns/calls", 0) for step in steps) > 0
    assert all(step.get("rollout/turns/failed_steps", 0) == 0 for step in steps)
