"""Reading a file of another library: which one it is of, and its settings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from lyceum.analysis.conversion.configuration import Configuration, Library, Trainer, Unread
from lyceum.analysis.conversion.script import read_script
from lyceum.analysis.conversion.shell import commands
from lyceum.recipe.other_names import BLOCKS
from lyceum.utils.documents import DOCUMENT, DocumentError, read_json, read_yaml
from lyceum.utils.errors import RecipeError
from lyceum.utils.terminal import quoted

OF_PAIRS = ("beta", "loss_type", "precompute_ref_log_probs", "max_prompt_length")
OF_DEMONSTRATIONS = ("packing", "assistant_only_loss", "completion_only_loss", "dataset_text_field", "max_seq_length")
OF_GIVEN = ("model_name_or_path", "per_device_train_batch_size", "num_train_epochs", "learning_rate")
"""Settings by which a flat configuration is one of TRL's for DPO, for fine-tuning, or for either."""

OF_TRL = ("num_generations", "max_completion_length", "reward_funcs", "num_iterations", "scale_rewards")
"""Settings by which a flat configuration is one of TRL's for GRPO or RLOO."""

ALLOWED = (
    "a .py script with GRPOTrainer, RLOOTrainer, DPOTrainer or SFTTrainer of TRL; a .yaml or .json configuration of "
    "TRL or verl; a .sh file with a command of TRL, verl or OpenRLHF"
)


def read_configuration(path: str, overrides: Sequence[str] = ()) -> Configuration:
    """The settings of a file, with some set anew.

    Args:
        overrides: ``KEY=VALUE``, keys as that library calls them.
    Raises:
        RecipeError: the file cannot be read, or is none of the three libraries'.
    """
    found = _read(path)
    keys = dict(found.keys)
    for override in overrides:
        key, equals, value = override.lstrip("+-").partition("=")
        if not key or not equals:
            raise RecipeError(f"override: got {quoted(override)}; allowed: KEY=VALUE, by {found.library}'s names")
        keys[key.replace("-", "_")] = _value(value)
    return Configuration(found.library, keys, found.script, found.trainer)


def _read(path: str) -> Configuration:
    file = Path(path)
    try:
        with file.open("rb") as opened:
            text = opened.read(DOCUMENT.characters * 4).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RecipeError(f"convert: {quoted(path)} is no text; allowed: {ALLOWED}") from error
    except (OSError, ValueError) as error:  # ValueError: a path with a null character
        said = error.strerror if isinstance(error, OSError) else error
        raise RecipeError(f"convert: {quoted(path)} cannot be read: {said}; allowed: {ALLOWED}") from error
    if file.suffix == ".py":
        return read_script(path, text)
    if file.suffix in (".sh", ".bash", ".slurm", ".sbatch"):
        return _of_command(path, text)
    if file.suffix not in (".yaml", ".yml", ".json"):
        raise RecipeError(f"convert: got {path}; allowed: {ALLOWED}")
    try:
        raw = read_json(text) if file.suffix == ".json" else read_yaml(text)
    except DocumentError as error:  # perhaps of a key that appears twice
        try:
            raw = read_yaml(_last_of_each(text))
        except DocumentError:
            raise RecipeError(f"convert: {path} cannot be read: {error}") from error
    if not isinstance(raw, Mapping):
        raise RecipeError(f"convert: {path} holds no settings; allowed: {ALLOWED}")
    return _of_document(path, raw)


def _of_document(path: str, raw: Mapping[str, Any]) -> Configuration:
    if any(key in BLOCKS for key in raw):
        return Configuration("verl", {key: _hydra(value) for key, value in _leaves("", raw)})
    if any(key in OF_TRL for key in raw):
        return Configuration("TRL", raw)
    if any(key in OF_PAIRS for key in raw) and any(key in OF_GIVEN for key in raw):
        return Configuration("TRL", raw, trainer="dpo")
    if any(key in (*OF_DEMONSTRATIONS, "max_length") for key in raw) and any(key in OF_GIVEN for key in raw):
        return Configuration("TRL", raw, trainer="sft")
    raise RecipeError(
        f"convert: {path} has {', '.join(list(raw)[:5])}; allowed: settings of TRL's GRPOConfig ({', '.join(OF_TRL)}), "
        f"DPOConfig ({', '.join(OF_PAIRS)}) or SFTConfig ({', '.join(OF_DEMONSTRATIONS)}), "
        f"or of verl ({', '.join(BLOCKS)})"
    )


def _of_command(path: str, text: str) -> Configuration:
    for words in reversed(commands(text)):
        library = _library(words)
        if library == "verl":
            given = [word.lstrip("+") for word in words if re.match(r"\+{0,2}[A-Za-z_][\w.@/]*=", word)]
            pairs = (word.partition("=") for word in given)
            return Configuration("verl", {key: _value(value) for key, _, value in pairs})
        if library is not None:
            return Configuration(library, dict(_options(path, words, library)), trainer=_trainer(words, library))
    raise RecipeError(f"convert: {path} has no command of TRL, verl or OpenRLHF; allowed: {ALLOWED}")


def _library(words: Sequence[str]) -> Library | None:
    if any(re.search(r"\bopenrlhf\.cli\.", word) for word in words):
        return "OpenRLHF"
    if any(re.match(r"\+{0,2}(actor_rollout_ref|algorithm|data)\.[\w.]+=", word) for word in words):
        return "verl"
    programs = any(word.endswith(".py") or word in TRL_COMMANDS for word in words)
    return "TRL" if programs and any(word.startswith("--") for word in words) else None


TRL_COMMANDS = ("grpo", "rloo", "dpo", "sft")
"""What follows ``trl`` in a command."""


def _trainer(words: Sequence[str], library: Library) -> Trainer:
    """The trainer of TRL's command, by its name or that of the script."""
    names = [Path(word).stem for word in words if word.endswith(".py") or word in TRL_COMMANDS]
    found = next((name for name in names if library == "TRL" and name in ("dpo", "sft")), None)
    return "dpo" if found == "dpo" else "sft" if found == "sft" else "online"


def _options(path: str, words: Sequence[str], library: Library) -> Iterator[tuple[str, Any]]:
    """``--key value`` of a command; of TRL's the launcher's ``num_processes``, and the file after ``--config``."""
    program = re.compile(r"openrlhf\.cli\." if library == "OpenRLHF" else r".*\.py$|(grpo|rloo|dpo|sft)$")
    begin = next((i for i, word in enumerate(words) if program.match(word)), 0)
    launcher, own = dict(_pairs(words[:begin])), dict(_pairs(words[begin + 1 :]))
    if library == "TRL":
        for key in ("num_processes", "nproc_per_node"):
            if key in launcher:
                yield "num_processes", launcher[key]
        if isinstance(file := own.pop("config", None), str):
            near = [each for each in (Path(file), Path(path).parent / file) if each.is_file()]
            if near:
                yield from _read(str(near[0])).keys.items()
            else:
                yield "config", Unread(file)
    yield from own.items()


def _pairs(words: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """Options of argparse: one without a value is true, one with several is a list."""
    at = [i for i, word in enumerate(words) if re.match(r"--[A-Za-z]", word)]
    for begin, end in pairwise([*at, len(words)]):
        key, equals, value = words[begin][2:].partition("=")
        values = [*([value] if equals else []), *(word.rstrip(",") for word in words[begin + 1 : end])]
        read = [_value(each) for each in values]
        yield key.replace("-", "_"), True if not read else read[0] if len(read) == 1 else read


def _value(text: str) -> Any:
    """A value as a command line has it; one that a variable or a program would give is unread."""
    if re.search(r"\$[({\w]", text):
        return Unread(text)
    try:
        value = read_yaml(text) if text else ""
    except DocumentError:
        return text
    return text if isinstance(value, dict) and not text.startswith("{") else value


def _hydra(value: Any) -> Any:
    """A leaf of a yaml of hydra; ``${...}`` is a reference to another."""
    return Unread(value) if isinstance(value, str) and "${" in value else value


def _leaves(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for name, below in value.items():
            yield from _leaves(f"{key}.{name}".lstrip("."), below)
    else:
        yield key, value


def _last_of_each(text: str) -> str:
    """The text of a flat YAML without keys that come again below, which PyYAML lets through."""
    lines = text.splitlines()
    last = {match[1]: i for i, line in enumerate(lines) if (match := re.match(r"([\w-]+):", line))}
    kept, dropping = [], False
    for i, line in enumerate(lines):
        if match := re.match(r"([\w-]+):", line):
            dropping = last[match[1]] != i
        if not dropping:
            kept.append(line)
    return "\n".join(kept)
