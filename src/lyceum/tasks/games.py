"""Games of other libraries as tasks: a process plays them, and every state is (seed, actions).

The games' own objects change in place, and many cannot be copied. So what a trajectory keeps is which seed its game
began with, what was played, and what was seen of it: any process can come to the same state by playing it again. Where
a game then shows something else, it is not repeatable, and the trajectory is ungraded.
"""

from __future__ import annotations

import importlib
import importlib.util
import random
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from hashlib import blake2b
from typing import Any, ClassVar, Protocol

import numpy as np
from pydantic import Field

from lyceum.core.settings import TasksSettings
from lyceum.core.tree import Node
from lyceum.core.types import Grade, Grader, Split, Task
from lyceum.reward.base import allow_code, code_allowed, each
from lyceum.reward.pool import WorkerError, WorkerPool, shared_pool
from lyceum.tasks.base import Source, check_index
from lyceum.utils.documents import read_json
from lyceum.utils.errors import RecipeError
from lyceum.utils.numbers import to_json
from lyceum.utils.seeds import counter_seed
from lyceum.utils.terminal import quoted

KINDS = ("gymnasium", "textarena")
GAME, SEED = "game", "game_seed"
"""Columns of a task: how its game is made and played, as JSON, and the seed that it begins with."""
KEPT = 256
"""Games that a process keeps open; others are played again from their beginning."""
_BRACKETS = re.compile(r"\[([^\[\]\n]{1,200})\]")
_CHARACTERS = 20_000
"""Maximum characters of what a game shows; the rest is cut."""


class LibraryGame(Protocol):
    """A game under way."""

    def begin(self, seed: int) -> str:
        """What is shown at first."""
        ...

    def play(self, action: str) -> Move:
        """What an action leads to.

        Raises:
            NotAnAction: it is none; nothing has changed.
        """
        ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class Move:
    """What followed an action: the text that is shown, its reward in the game's unit, and whether the game is over.

    ``player``: to whom it is shown, and whose turn it is; 0 is the policy.
    """

    text: str
    reward: float
    end: bool
    player: int = 0


class NotAnAction(ValueError):
    """Says what is allowed."""


def marked(said: str) -> str:
    """What stands in the last ``[brackets]`` of a turn, or else the whole turn."""
    found = _BRACKETS.findall(said)
    return (found[-1] if found else said).strip()


class GameTasks(TasksSettings):
    """Settings of the kinds whose tasks are games."""

    library: ClassVar[str]

    name: str = Field(min_length=1)
    """Name of the game, as the library registers it; gymnasium's ``module:name`` imports the module, which is code."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Keyword arguments with which the library makes it."""
    instructions: str = ""
    """Text that stands before the first observation in the prompt."""
    size: int = Field(default=10_000, ge=1)
    """Tasks in each split: each is the game from another seed."""
    solved_at: float = 1.0
    """Sum of a game's rewards from which it counts as solved."""
    processes: int = Field(default=2, ge=1, le=64)
    """Processes in which games are played."""
    timeout_seconds: float = Field(default=30.0, gt=0)
    """Time limit per action, in seconds, the replay of earlier ones included; one that takes longer is ended."""
    memory_mb: int | None = Field(default=None, ge=16)
    """Maximum memory that a process may allocate, in megabytes; null: no limit."""

    def build(self, split: Split, seed: int) -> LibraryGames:
        if importlib.util.find_spec(self.library) is None:
            raise RecipeError(
                f"tasks.kind: {self.library} is not installed; allowed: after pip install 'lyceum-rl[{self.library}]'"
            )
        with allow_code():  # the user allowed the recipe's code when it was loaded
            return LibraryGames(self, split, seed)

    def code(self) -> tuple[str, ...]:
        return (self.name,) if ":" in self.name else ()

    @property
    def made(self) -> dict[str, Any]:
        """How a process makes the game."""
        raise NotImplementedError


class LibraryGames(Source):
    """``source[i]`` depends on (seed, split, i) and on the game."""

    def __init__(self, settings: GameTasks, split: Split, seed: int) -> None:
        self.settings, self.seed = settings, seed
        self.split: Split = split
        of = settings
        limits = {"processes": of.processes, "timeout_seconds": of.timeout_seconds, "memory_mb": of.memory_mb}
        self.game = to_json({"kind": of.kind, "made": of.made, **limits})
        self.pool = pool_of(self.game)

    def __len__(self) -> int:
        return self.settings.size

    def __getitem__(self, index: int) -> Task:
        of = self.settings
        check_index(of.kind, index, len(self))
        key = f"{of.kind}/{of.name}/{self.split}/{self.seed}/{index}"
        seed = counter_seed(self.seed, key) % 2**31
        try:
            shown = self.pool.submit({"seed": seed, "actions": [], "seen": []}).result()["text"]
        except WorkerError as error:
            raise RecipeError(f"tasks.name: {of.kind} {of.name!r} does not begin: {error}") from error
        text = "\n\n".join(filter(None, (of.instructions, shown)))
        columns = {GAME: self.game, SEED: seed}
        return Task(key, ({"role": "user", "content": text},), None, columns, provenance=of.kind)

    def grader(self) -> Grader:
        def grade(task: Task, leaf: Node) -> Grade:
            earned = sum(node.reward for node in leaf.path())
            return Grade(earned, earned >= self.settings.solved_at)

        return each(grade)


_allowed: set[str] = set()
"""Games of this process's recipes, which may be code."""


def pool_of(game: str) -> WorkerPool:
    """The processes that play a game, for as long as somebody holds them.

    Args:
        game: a task's column ``GAME``.
    Raises:
        RecipeError: it imports code that no recipe was allowed: rows of a file may have such a column too.
    """
    given = read_json(game)
    if given["kind"] not in KINDS:
        raise RecipeError(f"tasks: got games of kind {quoted(given['kind'])}; allowed: {', '.join(KINDS)}")
    code = [each for each in (given["made"]["name"], given["made"].get("opponent")) if ":" in (each or "")]
    if code and not code_allowed() and game not in _allowed:
        raise RecipeError(f"tasks: {quoted(code[0])} is code; allowed: with trust_code=true")
    _allowed.add(game)
    return shared_pool(
        "lyceum.tasks.games:player",
        {"kind": given["kind"], "made": given["made"]},
        workers=given["processes"],
        timeout_seconds=given["timeout_seconds"],
        memory_mb=given["memory_mb"],
    )


def digest(text: str) -> str:
    """What observations are compared by."""
    return blake2b(text.encode("utf-8", "replace"), digest_size=8).hexdigest()


@dataclass
class _Open:
    """A game under way, with the global generators that it draws from: others are played in the same process."""

    game: LibraryGame
    generators: tuple[Any, Any]

    def do(self, step: Callable[[LibraryGame], Any]) -> Any:
        random.setstate(self.generators[0])
        np.random.set_state(self.generators[1])  # noqa: NPY002 # games draw from it
        try:
            return step(self.game)
        finally:
            self.generators = random.getstate(), np.random.get_state()  # noqa: NPY002


def player(kind: str, made: Mapping[str, Any]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """The worker's job function. What cannot be made is said when it starts."""
    make: Callable[..., LibraryGame] = importlib.import_module(f"lyceum.tasks.{kind}").make
    make(**made).close()
    return played(lambda: make(**made))


def played(make: Callable[[], LibraryGame]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """A function that plays the last of a job's ``actions``, after the others if they are not played yet.

    A job has ``seed``, ``actions``, and ``seen``: digests of what was shown at first and after each action but the
    last. Its result has ``text``, ``reward``, ``end``, or ``refused`` where the last is no action.
    """
    kept: OrderedDict[tuple[int, tuple[str, ...]], _Open] = OrderedDict()

    def begun(seed: int) -> tuple[_Open, str]:
        generator = np.random.RandomState(seed)  # as numpy's global generator is
        opened = _Open(make(), (random.Random(seed).getstate(), generator.get_state()))
        return opened, cut(opened.do(lambda game: game.begin(seed)))

    def replayed(seed: int, actions: list[str], seen: list[str]) -> _Open:
        opened, text = begun(seed)
        for turn, action in enumerate([None, *actions]):
            if action is not None:
                text = cut(opened.do(lambda game, action=action: game.play(action)).text)
            if digest(text) != seen[turn]:
                opened.game.close()
                raise ValueError(f"replay differs after {turn} actions: the game is not repeatable from its seed")
        return opened

    def work(job: dict[str, Any]) -> dict[str, Any]:
        seed, actions = job["seed"], list(job["actions"])
        if not actions:
            opened, text = begun(seed)
            opened.game.close()
            return {"text": text, "reward": 0.0, "end": False}
        last = actions.pop()
        opened = kept.pop((seed, tuple(actions)), None) or replayed(seed, actions, job["seen"])
        try:
            move = opened.do(lambda game: game.play(last))
        except NotAnAction as error:
            played, result = actions, {"refused": cut(str(error))}
        else:
            played, result = [*actions, last], {**asdict(move), "text": cut(move.text)}
        if result.get("end"):
            opened.game.close()
            return result
        kept[seed, tuple(played)] = opened
        if len(kept) > KEPT:
            kept.popitem(last=False)[1].game.close()
        return result

    return work


def cut(text: str) -> str:
    text = text.encode("utf-8", "replace").decode()
    return text if len(text) <= _CHARACTERS else f"{text[:_CHARACTERS]}..."
