"""What lyceum calls the settings of TRL, verl and OpenRLHF.

The table is ``other_names.yaml``. A key of theirs is answered with ours; ``python -m lyceum.recipe.other_names``
writes ``docs/coming-from.md``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import groupby

from lyceum.utils.documents import read_yaml


@dataclass(frozen=True)
class OtherName:
    """A setting of another library.

    Attributes:
        library, theirs: its name there.
        ours: the key here; empty where there is none.
        note: how the two differ, or what to do instead; empty where they are the same.
        rather: the key in recipes that have it, of which the note does not speak; empty where there is one key.
    """

    library: str
    theirs: str
    ours: str
    note: str = ""
    rather: str = ""

    def said(self, lacking: Callable[[str], str] | None = None) -> str:
        """``rollout.samples is TRL's num_generations``, and the note.

        Args:
            lacking: why a recipe cannot take a key of ours, in words; empty where it can. By default any is taken.
        """
        whose = f"{self.library}'" if self.library.endswith("s") else f"{self.library}'s"
        if not self.ours:
            return f"{whose} {self.theirs}: {self.note}"
        if self.rather and lacking is not None and not lacking(self.rather):
            return f"{self.rather} is {whose} {self.theirs}"
        why = lacking(self.ours) if lacking is not None else ""
        told = f"{self.ours} is {whose} {self.theirs}{f': {self.note}' if self.note else ''}"
        return f"{told}; {why}" if why else told


@cache
def other_names() -> tuple[OtherName, ...]:
    table = read_yaml((files("lyceum.recipe") / "other_names.yaml").read_text(encoding="utf-8"))
    return tuple(OtherName(library, theirs, **row) for library, rows in table.items() for theirs, row in rows.items())


def known_elsewhere(
    key: str, *, whole: bool = True, below: str = "", lacking: Callable[[str], str] | None = None
) -> str | None:
    """What an unknown key is called here; None where no library of the table has it.

    Args:
        key: as typed; ``-`` may stand for ``_``.
        whole: False also takes the last names of a dotted key, as ``optim.lr``.
        below: the first name of a key of ours; only keys that begin with it are meant.
        lacking: as :meth:`OtherName.said` has it.
    """
    wanted = key.lstrip("-").replace("-", "_")
    names = [
        name
        for name in other_names()
        if (name.theirs == wanted or (not whole and name.theirs.endswith(f".{wanted}")))
        and (not below or name.ours.partition(".")[0] == below)
    ]
    return "; ".join({name.ours: name.said(lacking) for name in reversed(names)}.values()) or None


def page() -> str:
    """``docs/coming-from.md``."""
    lines = ["# Names of settings in TRL, verl and OpenRLHF", ""]
    lines += ["<!-- Made by `python -m lyceum.recipe.other_names > docs/coming-from.md`. -->", ""]
    lines += ["Settings of TRL, verl and OpenRLHF, and the key that does the same in lyceum. If you type one of"]
    lines += ["theirs, as in `lyceum train grpo num_generations=8`, the error names lyceum's key. Whole commands:"]
    lines += ["[from TRL or verl, task by task](side-by-side.md)."]
    for library, names in groupby(other_names(), key=lambda name: name.library):
        lines += ["", f"## {library}", "", "| there | here | |", "|---|---|---|"]
        lines += [f"| `{n.theirs}` | {_cell(n)} | {n.note} |" for n in names]
    return "\n".join(lines) + "\n"


def _cell(name: OtherName) -> str:
    ours = f"`{name.ours}`" if name.ours else ""
    return f"{ours}; `{name.rather}` in recipes that have it" if name.rather else ours


if __name__ == "__main__":
    print(page(), end="")
