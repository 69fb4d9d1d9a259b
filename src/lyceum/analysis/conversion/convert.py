"""A configuration of another library as a recipe, with what became of each of its keys."""

from __future__ import annotations

import logging
import re
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from lyceum.analysis.conversion import openrlhf, trl, verl
from lyceum.analysis.conversion.configuration import Configuration, Script
from lyceum.analysis.conversion.read import read_configuration
from lyceum.analysis.conversion.rules import Converted, converted
from lyceum.analysis.conversion.trl_given import IMITATED, PAIRS, RulesOfRows
from lyceum.recipe.schema import Recipe, load_recipe
from lyceum.utils.documents import write_yaml
from lyceum.utils.errors import RecipeError
from lyceum.utils.terminal import printable

LIBRARIES: Mapping[str, ModuleType] = {"TRL": trl, "verl": verl, "OpenRLHF": openrlhf}
PLACEHOLDER = "ROWS.jsonl"
"""The tasks' file of a recipe whose configuration names none."""
WIDTH = 110
_SECRET = re.compile(r"token$|password|secret|wandb(\.|_)?(api_)?key$|use_wandb$|api_key")
"""Keys whose values stand in no comment."""
MOST_OF_A_VALUE = 60


@dataclass(frozen=True)
class Conversion:
    """What a configuration became.

    Attributes:
        source: the file.
        library: whose configuration it is.
        answers: its key -> what it became, in the file's order.
        recipe: plain values of the recipe, which extends one of ours.
        values: its key -> its value.
        rewards: Python source of the reward functions, for a file of their own; empty where there is none.
        refused: keys that the file leaves out and whose default there a recipe refuses -> why, and what it has instead.
    """

    source: str
    library: str
    answers: Mapping[str, Converted]
    recipe: Mapping[str, Any]
    values: Mapping[str, Any] = field(default_factory=dict)
    rewards: str = ""
    refused: Mapping[str, str] = field(default_factory=dict)

    @property
    def named(self) -> dict[str, str]:
        """Keys without a counterpart, and why; also those of defaults that are refused."""
        return {key: answer.note for key, answer in self.answers.items() if not answer.ours} | dict(self.refused)

    @property
    def done(self) -> dict[str, tuple[str, ...]]:
        """Converted keys, and what they are here."""
        return {key: tuple(answer.ours) for key, answer in self.answers.items() if answer.ours}

    @property
    def runs_code(self) -> bool:
        """Whether the recipe names functions, which a run must be allowed to call."""
        parts = self.recipe.get("reward", ())
        return any(isinstance(part, Mapping) and "function" in part for part in parts)

    @property
    def text(self) -> str:
        """The recipe's file."""
        lines = [f"# Converted from {self.source} ({self.library}): {self.counted}."]
        tasks = self.recipe.get("tasks", self.recipe.get("data"))
        if isinstance(tasks, Mapping) and tasks["path"] == PLACEHOLDER:
            lines.append(f"# No data set can be read from it: a file or a name instead of {PLACEHOLDER}.")
        told = {key: answer.note for key, answer in self.answers.items() if answer.ours and answer.note}
        if told:
            lines += ["# Converted, with a difference or an assumption:"]
            by_note: dict[str, list[str]] = {}
            for key, note in told.items():
                by_note.setdefault(note, []).append(self.quoted(key))
            lines += [f"#   {', '.join(keys)}: {note}" for note, keys in by_note.items()]
        if self.named:
            lines += ["# Without a counterpart here:"]
            lines += [f"#   {self.quoted(key)}: {note}" for key, note in self.named.items()]
        return "\n".join(map(_one_line, lines)) + "\n" + write_yaml(dict(self.recipe), width=WIDTH)

    @property
    def counted(self) -> str:
        """How many keys became what, and which defaults are refused, on one line."""
        lost = len(self.answers) - len(self.done)
        defaults = ", ".join(map(self.quoted, self.refused))
        told = f"; refused defaults of {self.library}: {defaults}" if defaults else ""
        return f"{len(self.answers)} keys, {len(self.done)} converted, {lost} without a counterpart{told}"

    def quoted(self, key: str) -> str:
        value = "..." if _SECRET.search(key) else str(self.values.get(key))
        return f"{key}={value if len(value) <= MOST_OF_A_VALUE else value[: MOST_OF_A_VALUE - 3] + '...'}"


def convert(path: str, overrides: Sequence[str] = (), *, rewards: str = "") -> Conversion:
    """A file of TRL, verl or OpenRLHF as a recipe. Nothing of it is run.

    Args:
        overrides: ``KEY=VALUE`` that replace settings, by that library's names.
        rewards: file that a script's reward functions will be in; without it the recipe names the script itself, where
            importing it does not train.
    Raises:
        RecipeError: the file cannot be read, or is none of these.
    """
    of = read_configuration(path, overrides)
    source = ""
    if rewards and of.script is not None:
        source, of = _with_own_file(of, rewards)
    elif rewards and of.library == "OpenRLHF" and (source := openrlhf.wrapper(of)):
        of = Configuration(of.library, of.keys, Script(rewards))
    module = rules_of(of)
    named = openrlhf.older(of) if of.library == "OpenRLHF" else of
    older = {key: openrlhf.NEWER.get(key, key) if of.library == "OpenRLHF" else key for key in of.keys}
    found = {key: _answer(named, module, older[key], value) for key, value in of.keys.items()}
    answers = _each_once(found, [key for key in found if module.rule_of(older[key]) is not None])
    defaults = {key: value for key, value in module.DEFAULTS.items() if key not in named.keys}
    usual = {key: _answer(named, module, key, value) for key, value in defaults.items()}
    answers, kept, lost = _accepted(module, dict(module.ALWAYS) | _ours(usual), answers)
    recipe = _nested(module, {**kept, **_ours(answers)})
    refused = _instead(of.library, recipe, usual, lost) if lost else {}
    values = {**{key: defaults[key] for key in refused}, **of.keys}
    return Conversion(path, of.library, answers, recipe, values, source, refused)


Rules = ModuleType | RulesOfRows
"""``DEFAULTS``, ``ALWAYS``, ``EXTENDS``, ``ROWS`` and ``rule_of``: what a configuration's keys become."""


def rules_of(of: Configuration) -> Rules:
    return {"online": LIBRARIES[of.library], "dpo": PAIRS, "sft": IMITATED}[of.trainer]


def _answer(of: Configuration, module: Rules, key: str, value: Any) -> Converted:
    rule = module.rule_of(key)
    return converted(of, {} if rule is None else {key: rule}, key, value)


def _each_once(answers: Mapping[str, Converted], own: Collection[str]) -> dict[str, Converted]:
    """The answers, each key of ours from one of theirs: where several have different values, the others say whose.

    Args:
        own: keys with a rule of their own, which come before those of the table of names. Else the later one counts.
    """
    by: dict[str, str] = {}
    for theirs in sorted(answers, key=lambda theirs: theirs in own):
        by |= dict.fromkeys(answers[theirs].ours, theirs)

    def once(answer: Converted) -> Converted:
        counts = {key: answers[by[key]].ours[key] for key in answer.ours}
        told = [f"{key} is {counts[key]}, by {by[key]}" for key, value in answer.ours.items() if counts[key] != value]
        kept = {key: value for key, value in answer.ours.items() if counts[key] == value}
        more = [answer.note] if kept and answer.note else []
        return Converted(kept, "; ".join([*told, *more])) if told else answer

    return {theirs: once(answer) for theirs, answer in answers.items()}


def _with_own_file(of: Configuration, file: str) -> tuple[str, Configuration]:
    """The source of the script's reward functions and tools for a file of their own, and the settings naming it."""
    script = of.script
    assert script is not None
    names = of["reward_funcs"]
    names = [names] if isinstance(names, str) else [name for name in names or [] if isinstance(name, str)]
    own = [name for name in names if name in script.sources and not script.modules[name]]
    if not own:
        return "", of
    moved = type(script)(file, script.modules, False, script.sources)
    return script.file_of(own), Configuration(of.library, of.keys, moved, of.trainer)


def _ours(answers: Mapping[str, Converted]) -> dict[str, Any]:
    """Keys of ours and their values, of all answers."""
    return {key: value for answer in answers.values() for key, value in answer.ours.items()}


def _accepted(
    module: Rules, given: dict[str, Any], answers: dict[str, Converted]
) -> tuple[dict[str, Converted], dict[str, Any], dict[str, str]]:
    """The answers, those that a recipe refuses without a counterpart, and the defaults that it takes.

    Returns:
        Those two, and why it refuses other defaults, by our keys.
    """
    lost: dict[str, str] = {}
    for _ in range(len(answers) + len(given) + 1):
        set_by_file = _ours(answers)
        values = {**given, **set_by_file}
        lines = _mistakes(_nested(module, values))
        blamed = {key: line for line in lines for key in values if _is_about(line, key)}
        if not blamed:
            if lines:
                raise RecipeError(["convert: the settings do not go together here", *lines])
            break
        lost |= {key: line for key, line in blamed.items() if key not in set_by_file}
        given = {key: value for key, value in given.items() if key not in blamed}
        answers = {
            key: Converted({}, blamed[wrong[0]])
            if (wrong := [each for each in answer.ours if each in blamed])
            else answer
            for key, answer in answers.items()
        }
    return answers, given, lost


def _instead(
    library: str, recipe: Mapping[str, Any], usual: Mapping[str, Converted], lost: Mapping[str, str]
) -> dict[str, str]:
    """Defaults of the other library that a recipe refuses: why, and what it trains with."""
    loaded = _loaded(recipe)
    refused = {}
    for theirs, answer in usual.items():
        taken = {key: _setting(loaded, key) for key in answer.ours if key in lost}
        if other := {key: value for key, value in taken.items() if value != answer.ours[key]}:
            why = dict.fromkeys(lost[key] for key in other)
            told = ", ".join(f"{key}={value}" for key, value in other.items())
            refused[theirs] = f"the default of {library}; {'; '.join(why)}; instead {told}"
    return refused


def _setting(recipe: Recipe, key: str) -> Any:
    """The value of a dotted key, of the recipe or its stage; None where neither has it."""
    for found in (recipe, recipe.stages[0]):
        for name in key.split("."):
            found = getattr(found, name, None)
        if found is not None:
            return found
    return None


def _mistakes(recipe: Mapping[str, Any]) -> list[str]:
    """Why a recipe's file would be refused, line by line."""
    try:
        _loaded(recipe)
    except RecipeError as error:
        return error.lines
    return []


def _loaded(recipe: Mapping[str, Any]) -> Recipe:
    """The recipe of a file; RecipeError where it is none."""
    without = {key: value for key, value in recipe.items() if key != "output"}  # which may be elsewhere, and is said
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "converted.yaml"
        file.write_text(write_yaml(without), encoding="utf-8")
        before = logging.root.manager.disable
        logging.disable(logging.WARNING)  # what a command that trains says, once
        try:
            return load_recipe(str(file), ["trust_code=true"])  # the functions that it names are not loaded
        finally:
            logging.disable(before)


def _is_about(line: str, key: str) -> bool:
    place = re.sub(r"^stages\.(\d+|[\w-]+)\.", "", line.partition(":")[0])
    return place == key or place.startswith(f"{key}.") or key.startswith(f"{place}.")


def _nested(module: Rules, values: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted keys as a recipe's file."""
    recipe: dict[str, Any] = {"extends": module.EXTENDS}
    values = dict(values)
    parts = [values.pop(key) for key in ("reward.function", "reward.overlong") if key in values]
    if parts:
        whole = "reward.function" if any(part["kind"] == "verl" for part in parts) else ""
        values["reward"] = parts if whole else ["task", *parts]
    for key, value in _kinds_first(values):
        _set(recipe, key.split("."), value)
    rows = recipe.setdefault(module.ROWS, {})
    recipe[module.ROWS] = {"kind": "dataset" if module.ROWS == "tasks" else "file", "path": PLACEHOLDER, **rows}
    for holder in (recipe, recipe.get("evaluate", {})):
        path = (holder.get("tasks") or {}).get("path")
        if isinstance(path, list):
            holder["tasks"] = [{**holder["tasks"], "path": each} for each in path]
    return {key: recipe[key] for key in sorted(recipe, key=_place)}


ORDER = ("extends", "name", "output", "seed", "model", "tasks", "data", "reward", "evaluate", "steps", "epochs")
"""Keys with which a recipe's file begins."""


def _place(key: str) -> int:
    return ORDER.index(key) if key in ORDER else len(ORDER)


def _kinds_first(values: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return sorted(values.items(), key=lambda pair: not pair[0].endswith(".kind"))


def _set(place: dict[str, Any], names: Sequence[str], value: Any) -> None:
    for name in names[:-1]:
        below = place.get(name)
        if not isinstance(below, dict):  # model.lora=true, and then its rank
            below = place[name] = {}
        place = below
    if not (value is True and isinstance(place.get(names[-1]), dict)):
        place[names[-1]] = value


def _one_line(text: str) -> str:
    return printable(" ".join(text.split()) if not text.startswith("#   ") else "#   " + " ".join(text[1:].split()))
