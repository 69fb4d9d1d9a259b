"""What lyceum calls the settings of TRL, verl and OpenRLHF.

The table is ``other_names.yaml``. A key of theirs is answered with ours; ``python -m lyceum.recipe.other_names``
writes ``docs/coming-from.md``.
"""

from __future__ import annotations

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
    """

    library: str
    theirs: str
    ours: str
    note: str = ""

    @property
    def said(self) -> str:
        """``rollout.samples is TRL's num_generations``, and the note."""
        whose = f"{self.library}'" if self.library.endswith("s") else f"{self.library}'s"
        if not self.ours:
            return f"{whose} {self.theirs}: {self.note}"
        return f"{self.ours} is {whose} {self.theirs}" + (f": {self.note}" if self.note else "")


@cache
def other_names() -> tuple[OtherName, ...]:
    table = read_yaml((files("lyceum.recipe") / "other_names.yaml").read_text(encoding="utf-8"))
    return tuple(OtherName(library, theirs, **row) for library, rows in table.items() for theirs, row in rows.items())


def known_elsewhere(key: str, *, whole: bool = True) -> str | None:
    """What an unknown key is called here; None where no library of the table has it.

    Args:
        key: as typed; ``-`` may stand for ``_``.
        whole: False also takes the last names of a dotted key, as ``optim.lr``.
    """
    wanted = key.lstrip("-").replace("-", "_")
    names = [
        name for name in other_names() if name.theirs == wanted or (not whole and name.theirs.endswith(f".{wanted}"))
    ]
    return "; ".join({name.ours: name.said for name in reversed(names)}.values()) or None


def page() -> str:
    """``docs/coming-from.md``."""
    lines = ["# Names of settings in TRL, verl and OpenRLHF", ""]
    lines += ["<!-- Made by `python -m lyceum.recipe.other_names > docs/coming-from.md`. -->", ""]
    lines += ["Settings of TRL, verl and OpenRLHF, and the key that does the same in lyceum. If you type one of"]
    lines += ["theirs, as in `lyceum train grpo num_generations=8`, the error names lyceum's key. Whole commands:"]
    lines += ["[from TRL or verl, task by task](side-by-side.md)."]
    for library, names in groupby(other_names(), key=lambda name: name.library):
        lines += ["", f"## {library}", "", "| there | here | |", "|---|---|---|"]
        lines += [f"| `{n.theirs}` | {f'`{n.ours}`' if n.ours else ''} | {n.note} |" for n in names]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(page(), end="")
