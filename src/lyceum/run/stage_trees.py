"""The trees that a stage of a run has left: those that an offline stage trained on, those of ``trees_every``, and those
that an online stage stored to replay them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lyceum.core.tree import Node, Tree
from lyceum.core.types import Origin
from lyceum.run.reader import is_run, read_recipe
from lyceum.run.trees import FOLDER, read_heading
from lyceum.utils.errors import RecipeError, nearest
from lyceum.utils.terminal import quoted

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_STEP = re.compile(r"step-([0-9]{6,18})\.parquet")
_PART = re.compile(r"part-([0-9]{6,18})\.parquet")


def part_file(folder: Path, number: int) -> Path:
    """File of a part of an offline stage's data.

    Args:
        folder: of the stage.
    """
    return folder / "data" / f"part-{number:06d}.parquet"


def replay_file(run: Path, step: int) -> Path:
    """File of the groups that a stage stored of a step, to replay them.

    Args:
        step: of the run.
    """
    return run / "replay" / f"step-{step:06d}.parquet"


def tree_files(run: Path, stage: str | None, key: str) -> list[Path]:
    """Files with the trees of a stage, or of all stages, in the order in which they were written.

    Args:
        key: of the recipe, for error lines.
    Raises:
        RecipeError: no run, no such stage, or no trees of it.
    """
    if not is_run(run):
        raise RecipeError(f"{key}.path: {run} is not a run's folder; allowed: one that lyceum train wrote")
    names = [str(each.get("name") or each.get("kind")) for each in read_recipe(run).get("stages") or ()]
    if stage is not None and stage not in names:
        raise RecipeError(
            f"{key}.from_stage: got {quoted(stage)}{nearest(stage, names)}, which is no stage of {run}; allowed: "
            f"{', '.join(names)}"
        )
    wanted = [number for number, name in enumerate(names) if stage in (None, name)]
    found = [file for number in wanted for file in _of_stage(run, names, number)]
    if not found:
        of = "" if stage is None else f" of stage {quoted(stage)}"
        raise RecipeError(f"{key}: {run} has no trees{of}; allowed: an offline stage, or a run with trees_every=STEPS")
    return found


def files_so_far(run: Path) -> list[Path]:
    """Files with the trees of all stages of a run that may still be going on; none where it is not there yet.

    Raises:
        RecipeError: its recipe, or a file, cannot be read.
    """
    if not is_run(run):
        return []
    names = [str(each.get("name") or each.get("kind")) for each in read_recipe(run).get("stages") or ()]
    return [file for number in range(len(names)) for file in _of_stage(run, names, number)]


def _of_stage(run: Path, names: list[str], number: int) -> Iterator[Path]:
    folder = run if number == len(names) - 1 else run / "stages" / names[number]
    yield from _numbered(folder / "data", _PART)
    of_step = {file.name: file for place in ("replay", FOLDER) for file in _numbered(run / place, _STEP)}
    yield from (file for _, file in sorted(of_step.items()) if read_heading(file).stage == number)


def _numbered(folder: Path, named: re.Pattern[str]) -> list[Path]:
    return sorted(file for file in folder.glob("*.parquet") if named.fullmatch(file.name))


LOOKED_AT = 8
"""Number of trajectories whose texts are compared with their tokens."""


def check_tokens(what: str, trees: Sequence[Tree], tokenizer: PreTrainedTokenizerBase) -> None:
    """Raise RecipeError where recorded tokens are those of another tokenizer: it has no such token, or most of the
    first trajectories decode to other texts.

    Args:
        what: the key and the file, for the error line.
    """
    allowed = "allowed: trees that were recorded with the model's tokenizer"
    size = len(tokenizer)
    for token in (token for tree in trees for node in tree.nodes() for token in node.tokens):
        if not 0 <= token < size:
            raise RecipeError(f"{what}: got token {token}, but the model's tokenizer has {size} tokens; {allowed}")
    texts = [text for tree in trees for leaf in tree.trajectories if (text := written(leaf))[0]][:LOOKED_AT]
    differ = sum(tokenizer.decode(tokens, skip_special_tokens=True) != text for tokens, text in texts)
    if 2 * differ > len(texts):
        raise RecipeError(
            f"{what}: got tokens of another tokenizer: by the model's own {differ} of {len(texts)} trajectories have "
            f"another text; {allowed}"
        )


def written(leaf: Node) -> tuple[list[int], str]:
    """Tokens and text of the first run of tokens that the policy wrote in a trajectory."""
    node = next((node for node in leaf.path() if node.origin is Origin.POLICY and node.tokens), None)
    return ([], "") if node is None else (node.tokens, node.text)
