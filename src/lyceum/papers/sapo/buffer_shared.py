"""Groups that other runs sample: what each writes to its folder on this machine, the others train on too."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from lyceum.core.component import PathText
from lyceum.core.group import Group
from lyceum.core.needs import Need
from lyceum.core.types import GroupSource
from lyceum.data.buffer.base import DrawnSettings, ReplayedGroups
from lyceum.run.reader import is_run
from lyceum.utils.errors import RecipeError
from lyceum.utils.paths import local_path

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


WARN_AFTER_STEPS = 3
"""Steps that other runs are waited for before a run says that it trains on its own samples alone."""

log = logging.getLogger(__name__)


class Shared(DrawnSettings):
    """Groups of other runs on this machine, finished or still going on, that write their trees (``trees_every``, or
    replay ``own``); graded as those runs graded them. A run that is not there, or has written nothing yet, gives none.

    Source:
        SAPO, arXiv:2509.08721 (each node mixes its own rollouts with those that others share).
    """

    refuses: ClassVar = (
        Need(
            "constrained-tokens",
            line="replay.kind: got 'shared' with rollout.sampling.constraint, under which other runs' completions may "
            "be impossible; allowed: no constraint, or replay 'own'",
        ),
    )

    kind: Literal["shared"] = "shared"
    runs: tuple[PathText, ...] = Field(min_length=1, max_length=64)
    """Folders of the runs. The run's own is left out, so that all nodes can have the same list."""
    instead: bool = True
    """Whether they take the place of sampled groups: a step then has ``tasks_per_step`` in all, one of them sampled at
    least."""
    ratio: Literal["behaviour", "step"] = "step"
    """What importance ratios of their tokens are relative to: the log-probabilities under which the other run sampled
    them, or those of this run's weights at the start of the step, as if it had sampled them itself."""

    def check_files(self, tokenizer: PreTrainedTokenizerBase) -> None:
        from lyceum.run.stage_trees import check_tokens, files_so_far  # here: imports pyarrow
        from lyceum.run.trees import read_trees

        for run in self.runs:
            _require_run_or_nothing(run)
            for file in files_so_far(Path(run)):
                check_tokens(f"replay.runs: {run}", read_trees(file).trees, tokenizer)

    def build(self, sampled: GroupSource, run: Path, *, seed: int, stage: int, first_step: int) -> SharedReplay:
        return SharedReplay(self, sampled, run, seed=seed, first_step=first_step)


def _require_run_or_nothing(path: str) -> None:
    """Refuse a folder that holds something else than a run: no group ever comes from there."""
    folder = local_path(path)
    if folder.exists() and not is_run(folder) and not (folder / ".lock").exists():  # one that begins has the lock first
        raise RecipeError(
            f"replay.runs: {path} is no run of lyceum; allowed: folders of runs, such as runs/NAME, also of later ones"
        )


class SharedReplay(ReplayedGroups):
    """What other runs have written so far, in their own files.

    A resumed run goes on with the files that it knew at its checkpoint, and finds later ones as it meets them.
    """

    def __init__(self, settings: Shared, sampled: GroupSource, run: Path, *, seed: int, first_step: int) -> None:
        super().__init__(settings, sampled, seed=seed, first_step=first_step)
        self.runs, self.run = list(map(Path, settings.runs)), run
        self.files: list[str] = []
        """Files in the order in which they were found: the index's file numbers."""
        self.found: list[int] = []
        """The stage's step before which each was found."""

    def since(self, done: int) -> int:
        oldest = -1 if self.settings.max_age is None else done + 1 - self.settings.max_age
        return next((i for i, found in enumerate(self.found) if found >= oldest), len(self.found))

    def file(self, number: int) -> tuple[Path, int]:
        return Path(self.files[number]), self.found[number]

    def draw(self, done: int, number: int) -> list[Group]:
        self.look(done)
        if done == WARN_AFTER_STEPS and not self.files:
            log.warning(
                "replay.runs: after %d steps no other run has written a group (%s): this one trains on its own samples "
                "alone; start the others beside it, each with a name of the list and a seed of its own",
                WARN_AFTER_STEPS,
                ", ".join(map(str, self.runs)),
            )
        return super().draw(done, number)

    def look(self, done: int) -> None:
        """Add the files that the runs have written since.

        Raises:
            RecipeError: one cannot be read, or is not what a run wrote.
        """
        from lyceum.run.stage_trees import files_so_far  # here: imports pyarrow
        from lyceum.run.trees import read_trees

        known = set(self.files)
        for run in self.runs:
            if run.resolve() == self.run.resolve():
                continue
            for file in (file for file in files_so_far(run) if str(file) not in known):
                groups = read_trees(file).groups
                usable = [not (of.age or of.dropped) and self.settings.keeps(of.tree) for of in groups]
                rows = [row for row, use in enumerate(usable) if use]
                priority = [self.settings.priority_of(groups[row].tree) for row in rows]
                self.index.add(len(self.files), priority, rows=rows, most=self.settings.most)
                self.files.append(str(file))
                self.found.append(done)

    def measured(self) -> dict[str, float]:
        others = {str(Path(file).parents[1]) for file in self.files}
        return super().measured() | {"files": len(self.files), "runs": len(others)}

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"files": list(self.files), "found": list(self.found)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.files, self.found = list(state["files"]), list(state["found"])
