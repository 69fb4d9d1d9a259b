"""Groups that other runs sample: what each writes to its folder on this machine, the others train on too."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from lyceum.buffer._index import Index
from lyceum.buffer.base import DrawnSettings, drawn, metrics_of, read
from lyceum.core.component import PathText, require_keys
from lyceum.core.needs import Need
from lyceum.core.tree import Tree
from lyceum.core.types import ReplayedGroup

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


ALONE = 3
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
            line="{own} with rollout.sampling.constraint, under which other runs' completions may be impossible; "
            "allowed: no constraint, or replay 'own'",
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
            for file in files_so_far(Path(run)):
                check_tokens(f"replay.runs: {run}", read_trees(file).trees, tokenizer)

    def build(self, run: Path, *, seed: int, stage: int, first_step: int) -> SharedReplay:
        return SharedReplay(self, run, seed=seed, first_step=first_step)


class SharedReplay:
    """What other runs have written so far: an index in memory, their trees in their own files.

    A resumed run goes on with the files that it knew at its checkpoint, and finds later ones as it meets them.
    """

    def __init__(self, settings: Shared, run: Path, *, seed: int, first_step: int) -> None:
        self.settings, self.run, self.seed, self.first_step = settings, run, seed, first_step
        self.index = Index()
        self.files: list[str] = []
        """Files in the order in which they were found: the index's file numbers."""
        self.found: list[int] = []
        """The stage's step before which each was found."""
        self.last: list[ReplayedGroup] = []
        """What the current step drew."""

    def draw(self, done: int, number: int) -> list[ReplayedGroup]:
        settings = self.settings
        self.look(done)
        self.last = []
        if done == ALONE and not self.files:
            log.warning(
                "replay.runs: after %d steps no other run has written a group (%s): this one trains on its own samples "
                "alone; start the others beside it, each with a name of the list and a seed of its own",
                ALONE,
                ", ".join(settings.runs),
            )
        if settings.due(done):
            oldest = -1 if settings.max_age is None else done + 1 - settings.max_age
            since = next((i for i, found in enumerate(self.found) if found >= oldest), len(self.found))
            step = self.first_step + done + 1
            places = drawn(settings, self.index, number, seed=self.seed, step=step, since=since)
            files = {int(file) for file in self.index.file[places]}
            self.last = read(
                self.index,
                places,
                {file: Path(self.files[file]) for file in files},
                {file: done + 1 - self.found[file] for file in files},
            )
            if settings.once:
                self.index.remove(places)
        return self.last

    def look(self, done: int) -> None:
        """Add the files that the runs have written since.

        Raises:
            RecipeError: one cannot be read, or is not what a run wrote.
        """
        from lyceum.run.stage_trees import files_so_far  # here: imports pyarrow
        from lyceum.run.trees import read_trees

        known = set(self.files)
        for run in map(Path, self.settings.runs):
            if run.resolve() == self.run.resolve():
                continue
            for file in (file for file in files_so_far(run) if str(file) not in known):
                trees = read_trees(file).trees
                usable = [not tree.age and self.settings.keeps(tree) for tree in trees]
                rows = [row for row, use in enumerate(usable) if use]
                priority = [self.settings.priority_of(trees[row]) for row in rows]
                self.index.add(len(self.files), priority, rows=rows, most=self.settings.most)
                self.files.append(str(file))
                self.found.append(done)

    def observe(self, done: int, trees: Sequence[Tree], weights: Sequence[float]) -> None:
        """Other runs read what this one writes; nothing is stored here."""

    def metrics(self) -> dict[str, float]:
        others = {str(Path(file).parents[1]) for file in self.files}
        return metrics_of(self.last, len(self.index)) | {"files": len(self.files), "runs": len(others)}

    def state_dict(self) -> dict[str, Any]:
        return {"index": self.index.state_dict(), "files": list(self.files), "found": list(self.found)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        require_keys("stage.replay", given=state, needed=("index", "files", "found"))
        self.index.load_state_dict(state["index"])
        self.files, self.found = list(state["files"]), list(state["found"])
