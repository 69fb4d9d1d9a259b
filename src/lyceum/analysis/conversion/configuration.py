"""A configuration of another library: its keys and values, as far as they can be read without running anything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Library = Literal["TRL", "verl", "OpenRLHF"]
Trainer = Literal["online", "dpo", "sft"]
"""Of TRL: on samples of the policy (GRPO, RLOO), on pairs, on demonstrations."""


@dataclass(frozen=True)
class Unread:
    """A value that only running the file would tell.

    Attributes:
        source: how it is written there.
    """

    source: str

    def __str__(self) -> str:
        return self.source


@dataclass(frozen=True)
class Configuration:
    """What another library would train with.

    Attributes:
        library: whose it is.
        keys: its settings, in the file's order.
        script: the Python file that defines its reward functions; None of a configuration without one.
        trainer: which of its library's it is for.
    """

    library: Library
    keys: Mapping[str, Any]
    script: Script | None = None
    trainer: Trainer = "online"

    def __getitem__(self, key: str) -> Any:
        """The value of a key; None where it is not set, or cannot be read."""
        value = self.keys.get(key)
        return None if isinstance(value, Unread) else value

    def number(self, key: str, default: float) -> float:
        """The value of a key where it is a positive number; else the default."""
        value = self[key]
        return value if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0 else default


@dataclass(frozen=True)
class Script:
    """What a Python file defines that a recipe may name.

    Attributes:
        path: as the user named it.
        modules: function -> the module that it is imported from, or "" where the file defines it itself.
        runs: whether importing the file would start the training.
        sources: name -> source of the statement that defines it, and the names that it uses.
    """

    path: str
    modules: Mapping[str, str] = field(default_factory=dict)
    runs: bool = False
    sources: Mapping[str, tuple[str, frozenset[str]]] = field(default_factory=dict)

    def file_of(self, names: list[str]) -> str:
        """Python source with these functions and all that they use of the file, in its order."""
        wanted, open_ = set(), list(names)
        while open_:
            name = open_.pop()
            if name in self.sources and name not in wanted:
                wanted.add(name)
                open_ += self.sources[name][1]
        parts = dict.fromkeys(source for name, (source, _) in self.sources.items() if name in wanted)
        return "\n\n".join(parts) + "\n"
