"""One case from beginning to end: the files, the command, and everything that must hold whatever was tried."""

from __future__ import annotations

import json
import re
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path

import fuzz_workspace
from fuzz_cases import Case, apply, removed
from fuzz_process import Commands, Ended

sys.path.insert(0, str(Path(__file__).parents[1]))  # pytest has it there already, the command has not
from folder_digest import digest

CODES = (0, 1, 2, 3, 130)
"""What README says of them: done, failed, unusable, nothing learnt, stopped."""
OURS = re.compile(r'Traceback \(most recent call last\):\n(?! *File "[^"]*(reward|tools|hostile)\.py")')
"""A traceback of the program: that of a user's function begins in the user's file."""


class Fuzzing:
    """Tries cases; a context manager.

    Attributes:
        codes: (kind of case, exit code) -> how many there were.
        interrupted: cases that were sent Ctrl-C, since what they asked for takes long.
    """

    def __enter__(self) -> Fuzzing:
        self.folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
        self.commands = Commands().__enter__()
        self.codes: Counter[tuple[str, int]] = Counter()
        self.interrupted = 0
        original = self.folder / "original"
        fuzz_workspace.build(original, lambda argv: self.commands.run(argv, original))
        return self

    def __exit__(self, *_: object) -> None:
        self.commands.__exit__()
        removed(self.folder)

    def faults(self, case: Case) -> list[str]:
        """Try a case; what did not hold, each with the words of the command."""
        work = self.folder / "work"
        for leftover in (work, self.folder / "work.tmp"):
            removed(leftover)
        shutil.copytree(self.folder / "original", work, symlinks=True)
        apply(case, work)
        before = digest(work, without=("__pycache__",))  # which Python itself writes
        ended = self.commands.run(list(case.argv), work)
        after = digest(work, without=("__pycache__",))
        self.codes[case.kind, ended.code] += 1
        self.interrupted += ended.interrupts > 0
        found = [*ways_of_ending(ended), *files_that_changed(case, ended, before, after), *what_was_said(case, ended)]
        if case.unearned and not ended.interrupts:
            found += what_was_earned(case, ended, work / "runs" / "new" / "metrics.jsonl")
        if any((self.folder / "work.tmp").iterdir()):
            found.append("left temporary files")
        return [f"{fault}\n  {ended.err[-3000:]}{ended.out[-500:]}" for fault in found]


def ways_of_ending(ended: Ended) -> list[str]:
    found: list[str] = []
    if ended.killed:
        found.append(f"did not end within {ended.seconds} seconds, {ended.interrupts} Ctrl-C")
    elif ended.code not in CODES:
        found.append(f"exit code {ended.code}")
    if OURS.search(ended.out + ended.err):
        found.append("a traceback")
    if ended.code != 0 and not (ended.out + ended.err).strip():
        found.append(f"exit code {ended.code} without a word")
    if ended.interrupts and not (ended.out + ended.err).strip():
        found.append("not a word before Ctrl-C")
    if ended.left:
        found.append(f"left {ended.left} processes")
    if control := {c for c in ended.out + ended.err if not c.isprintable() and c not in "\n\t"}:
        found.append(f"printed control characters: {sorted(control)!r}")
    return found


def what_was_said(case: Case, ended: Ended) -> list[str]:
    """Rows without the score that they should have, and words that are missing."""
    found: list[str] = []
    if case.scores and not ended.interrupts:
        lines = [json.loads(line) for line in ended.out.splitlines() if line.startswith('{"row"')]
        scores = [line["score"] for line in lines]
        right = len(scores) == len(case.scores) and all(
            isinstance(score, float) and wanted in (None, score)
            for score, wanted in zip(scores, case.scores, strict=True)
        )
        found += [] if right else [f"scores {scores} in the place of {list(case.scores)}"]
    if ended.code == 0 and case.says not in " ".join((ended.out + ended.err).split()):
        found.append(f"does not say {case.says!r}")
    return found


def what_was_earned(case: Case, ended: Ended, metrics: Path) -> list[str]:
    """That a run did not go through, rewarded something, or did not count what happened."""
    if ended.code not in (0, 3):
        return [f"exit code {ended.code} of a run that should go through"]
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    earned = [name for name in ("reward/mean", "correct/mean") if any((line.get(name) or 0) > 0 for line in lines)]
    found = [f"{name} is above 0" for name in earned]
    return found + [f"{name} is 0" for name in case.counts if not any(line.get(name) for line in lines)]


def files_that_changed(case: Case, ended: Ended, before: dict[str, str], after: dict[str, str]) -> list[str]:
    changed = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
    if ended.code == 2:
        return [f"refused, and changed {', '.join(changed[:5])}"] if changed else []
    own = [path.rstrip("/") for path in case.own]
    # A folder that had to be made for what is the command's own is its own too.
    outside = [
        name
        for name in changed
        if not any(name == path or name.startswith(f"{path}/") or path.startswith(f"{name}/") for path in own)
    ]
    return [f"changed what is not its own: {', '.join(outside[:5])}"] if outside else []
