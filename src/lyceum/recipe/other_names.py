"""What lyceum calls the settings of TRL, verl and OpenRLHF.

The table is ``other_names.yaml``. A key of theirs is answered with ours.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import Any

from lyceum.utils.documents import read_yaml


@dataclass(frozen=True)
class OtherName:
    """A setting of another library.

    Attributes:
        library, theirs: its name there.
        ours: the key here; empty where there is none.
        note: how the two differ, or what to do instead; empty where they are the same.
        rather: the key in recipes that have it, of which the note does not speak; empty where there is one key.
        values: what to type here for a value there.
        also: further names of the setting there.
    """

    library: str
    theirs: str
    ours: str
    note: str = ""
    rather: str = ""
    values: Mapping[Any, str] = field(default_factory=dict)
    also: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return self.theirs, *self.also

    def said(self, lacking: Callable[[str], str] | None = None, here: Callable[[str], str] | None = None) -> str:
        """``rollout.samples is TRL's num_generations``, and the note.

        Args:
            lacking: why a recipe cannot take a key of ours, in words; empty where it can. By default any is taken.
            here: what a command that does not train calls a key of ours; empty where it has none. By default the same.
        """
        if not self.ours:
            return f"{self.whose} {self.theirs}: {self.note}"
        if here is not None:
            name = here(self.ours)
            return replace(self, ours=name, rather="").said() if name else f"a setting of training: {self.said()}"
        if self.rather and lacking is not None and not lacking(self.rather):
            return f"{self.rather} is {self.whose} {self.theirs}"
        why = lacking(self.ours) if lacking is not None else ""
        told = f"{self.ours} is {self.whose} {self.theirs}{f': {self.notes}' if self.notes else ''}"
        return f"{told}; {why}" if why else told

    @property
    def whose(self) -> str:
        return f"{self.library}'" if self.library.endswith("s") else f"{self.library}'s"

    @property
    def notes(self) -> str:
        """What to type for each value, and the note."""
        by_value: dict[str, list[str]] = {}
        for value, typed in self.values.items():
            by_value.setdefault(typed, []).append(_text(value))
        told = [f"{', '.join(of)} is {typed}" for typed, of in by_value.items()]
        return "; ".join([*told, self.note] if self.note else told)


def _read(name: str) -> Any:
    return read_yaml((files("lyceum.recipe") / name).read_text(encoding="utf-8"))


@cache
def other_names() -> tuple[OtherName, ...]:
    table = _read("other_names.yaml")
    return tuple(
        OtherName(library, theirs, **row | {"also": tuple(row.get("also", ()))})
        for library, rows in table.items()
        for theirs, row in rows.items()
    )


@cache
def _by_ending() -> Mapping[str, list[OtherName]]:
    """The settings whose names are so, or end so after a dot, in the table's order."""
    found = defaultdict[str, list[OtherName]](list)
    for name in other_names():
        parts = [each.split(".") for each in name.names]
        for ending in dict.fromkeys(".".join(each[at:]) for each in parts for at in range(len(each))):
            found[ending].append(name)
    return found


def known_elsewhere(
    key: str,
    *,
    whole: bool = True,
    below: str = "",
    of: str = "",
    lacking: Callable[[str], str] | None = None,
    here: Callable[[str], str] | None = None,
) -> str | None:
    """What an unknown key is called here; None where no library of the table has it.

    Args:
        key: as typed; ``-`` may stand for ``_``.
        whole: False also takes the last names of a dotted key, as ``optim.lr``.
        below: the first name of a key of ours; only keys that begin with it are meant.
        of: the whole key, of which ``key`` is the end: no other name of itself.
        lacking, here: as :meth:`OtherName.said` has them.
    """
    wanted = key.lstrip("-").replace("-", "_")
    names = [
        name
        for name in other_names()
        if (wanted in name.names or (not whole and any(each.endswith(f".{wanted}") for each in name.names)))
        and (not below or name.ours.partition(".")[0] == below)
        and (not of or name.ours != of)
    ]
    return "; ".join({name.ours: name.said(lacking, here) for name in reversed(names)}.values()) or None


def answered(key: str, value: Any) -> str | None:
    """What to type for a setting of another library with this value, or for one of many that the table has together
    (``critic.*``), or whose first name is a key of ours; None for any other."""
    wanted = key.lstrip("-").replace("-", "_")
    names = _by_ending().get(wanted, [])
    for name in names:
        typed = {_text(each): typed for each, typed in name.values.items()}
        if _text(value) in typed:
            return f"{typed[_text(value)]} is {name.whose} {name.theirs}={_text(value)}"
    begins_as_ours = "." in wanted and key.partition(".")[0] in ("data", "reward", "rollout")
    if exact := [name for name in names if begins_as_ours and (wanted in name.names or wanted.count(".") > 1)]:
        return exact[0].said()
    families = [name for name in other_names() if name.theirs.endswith(".*") and _is_below(name.theirs[:-1], wanted)]
    return None if names or not families else max(families, key=lambda name: len(name.theirs)).said()


def misspelt(key: str, known: Sequence[str]) -> str | None:
    """The name of another library's that is nearly ``key``, where none of ``known`` is as near; None where none is."""
    names = {each for name in other_names() for each in name.names if "." not in each}
    near = get_close_matches(key, sorted(names), n=1, cutoff=0.88)
    return None if not near or get_close_matches(key, known, n=1, cutoff=0.88) else near[0]


BLOCKS = ("actor_rollout_ref", "algorithm", "critic", "custom_reward_function", "defaults", "reward_model", "trainer")
"""Keys at the top of verl's configuration files, none of which is a recipe's; ``defaults`` is hydra's own."""

LEAST_OF_TRL = 4
"""Settings of TRL from which on a file is a configuration of TRL's and not a recipe with a name or two of theirs."""

MOST_TOLD = 12
"""Maximum settings of such a file that are translated in its error message."""


def of_verl(raw: Mapping[str, Any]) -> list[str]:
    """What a recipe's plain values are that are a configuration of verl's, and its settings here; none for others."""
    blocks = [key for key in raw if key in BLOCKS]
    if not blocks:
        return []
    found = [(key, value) for block in (*blocks, "data") for key, value in _leaves(block, raw.get(block))]
    told = [f"{key}: {said}" for key, value in found if (said := answered(key, value) or known_elsewhere(key))]
    more = [f"and {len(told) - MOST_TOLD} more"] if len(told) > MOST_TOLD else []
    return [
        f"recipe: got {', '.join(blocks)} at the top, as configurations of verl and hydra have them; allowed: keys of "
        "lyceum below extends: grpo, or another recipe; lyceum convert FILE makes one of it, with all that it says",
        *told[:MOST_TOLD],
        *more,
    ]


MARKS = ("num_generations", "max_completion_length", "reward_funcs", "per_device_train_batch_size")
"""Settings that only configurations of TRL have."""


def of_trl(raw: Mapping[str, Any]) -> list[str]:
    """What a recipe's plain values are that are a configuration of TRL's; none for others."""
    theirs = [name for name in other_names() if name.library == "TRL"]
    found = [key for key in raw if any(key in name.names for name in theirs)]
    if not any(key in MARKS for key in raw) or len(found) < LEAST_OF_TRL:
        return []
    named = ", ".join(found[:LEAST_OF_TRL])
    return [
        f"recipe: got {named} and others at the top, as configurations of TRL have them; allowed: keys of lyceum below "
        "extends: grpo, or another recipe; lyceum convert FILE makes one of it, with all that it says"
    ]


def _leaves(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for name, below in value.items():
            yield from _leaves(f"{key}.{name}", below)
    else:
        yield key, value


def other_metrics() -> dict[str, dict[str, dict[str, str]]]:
    """Library -> its name of a metric -> ours, and a note."""
    return _read("other_metrics.yaml")


def metric_elsewhere(name: str) -> str:
    """`` (ours is verl's name)`` of a metric that another library calls by this name; nothing where none does."""
    for library, metrics in other_metrics().items():
        if name in metrics:
            return f" ({metrics[name]['ours']} is {library}'s {name})"
    return ""


def _is_below(above: str, key: str) -> bool:
    """Whether a key stands below ``above``, which ends with a dot, and of which the last name is enough."""
    return key.startswith(above) or f".{above}".endswith(f".{key.partition('.')[0]}.")


def _text(value: Any) -> str:
    """A value as it is typed; true and false in whatever letters."""
    return str(value).lower() if isinstance(value, bool) else str(value)
