"""A recipe's proof: its mechanism acts, without it the run differs, and killed it ends in the same bits.

Each function gives what was not shown, a line per mistake.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from lyceum.analysis.differences import first_difference, read_digests
from lyceum.analysis.sizes import require_fit
from lyceum.core.paper_folders import PROOF
from lyceum.recipe.files import folder_of_recipe
from lyceum.recipe.proof import DIFFERS, Proof
from lyceum.recipe.schema import load_recipe
from lyceum.run.checkpoint import found as found_checkpoints
from lyceum.run.checkpoint import load
from lyceum.run.digests import FOLDER
from lyceum.training.stages.method import Method
from lyceum.training.stages.offline import Offline
from lyceum.training.stages.online import Online
from lyceum.training.train import train
from lyceum.utils.errors import RecipeError

USUAL = ("evaluate.n=0", "track=[]", "digests=true", "checkpoint_every=1")
"""Keys of every run of a proof."""
BEFORE = ("evaluate.n=0", "track=[]", "digests=false", "checkpoint_every=0")
"""Keys of the run before it, of which nothing is compared."""
WITHOUT = ("checkpoint_every=0",)
"""Further keys of the run without the mechanism, which nothing goes on from."""

Off = str | tuple[str, ...]


def proof_of(recipe: str) -> Proof:
    """The proof of a recipe that stands in a paper's folder.

    Raises:
        RecipeError: the recipe is in none, or its folder has no proof of it.
    """
    folder = folder_of_recipe(recipe)
    if folder is None:
        raise RecipeError(f"recipe: got {recipe!r}, which is in no paper's folder; allowed: one that is, with {PROOF}")
    file = folder.path / PROOF
    proofs = getattr(folder.load(file), "PROOFS", {}) if file.is_file() else {}
    if not isinstance(proofs, dict) or not isinstance(found := proofs.get(recipe), Proof):
        raise RecipeError(f"papers: {file} says nothing of {recipe!r}; allowed: PROOFS = {{{recipe!r}: Proof(...)}}")
    return found


def unproven(
    name: str, proof: Proof, folder: Path, *, every: bool = False, say: Callable[[str], None] = lambda line: None
) -> list[str]:
    """Run a recipe as its proof says, once more without its mechanism, and again from the middle where it was killed.

    Args:
        folder: an empty one, for the runs.
        every: by all keys of ``off`` and not the first alone, and killed also where no component keeps a state.
        say: told of each part that was shown.
    """

    def shown(part: str, wrong: list[str]) -> list[str]:
        if not wrong:
            say(f"{name}: {part}")
        return [f"{name}: {line}" for line in wrong]

    train_before(name, proof, folder)
    run, left = whole(name, proof, folder)
    lines = metrics(run)
    wrong = shown(f"it acts: {', '.join(proof.acted)}", idle(proof, lines) + wrong_shares(name, lines))
    for number, (off, part) in enumerate(islice(proof.off.items(), None if every else 1)):
        found = not_differing(name, proof, run, folder / f"off-{number}", off, part)
        wrong += shown(f"without it, by {off}: other {part}", found)
    if every or keeps_state(left):
        wrong += shown("killed and resumed: the same bits", other_end(name, proof, run, left))
    return wrong


def train_before(name: str, proof: Proof, folder: Path) -> None:
    """Train what the recipe's brief run begins with."""
    if proof.beside is not None:
        recipe = load_recipe(name, [*BEFORE, *proof.beside, f"output={folder / 'beside'}"])
        train(recipe.model_copy(update={"stages": recipe.stages[: proof.through]}), checked=require_fit)


def brief_keys(name: str, proof: Proof, folder: Path) -> list[str]:
    """The proof's own keys for a run in ``folder``: what it begins with is beside that."""
    return [key.replace("{beside}", str(folder.parent / "beside" / name)) for key in proof.keys]


def trained(name: str, proof: Proof, folder: Path, *keys: str, **how: Any) -> Path:
    """A brief run in ``folder``."""
    return train(load_recipe(name, [*USUAL, *brief_keys(name, proof, folder), *keys, f"output={folder}"]), **how)


def whole(name: str, proof: Proof, folder: Path) -> tuple[Path, Path]:
    """A run, and the last of its folders that a kill would have left: steps after its checkpoint are in its records."""
    run, left = folder / "whole" / name, folder / "killed" / name

    def killed() -> bool:
        if any((run / "checkpoints").glob("step-*")):
            shutil.rmtree(left, ignore_errors=True)
            shutil.copytree(run, left, copy_function=copied)
        return False

    return trained(name, proof, folder / "whole", interrupted=killed, checked=require_fit), left


def copied(source: str, target: str) -> None:
    """Copy a run's file. Those of checkpoints, most of a run's bytes, never change: each is linked where it can be."""
    if Path(source).parent.parent.name == "checkpoints":
        with contextlib.suppress(OSError):
            os.link(source, target)
            return
    shutil.copy2(source, target)


def metrics(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


def acted(metric: str, lines: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a metric is above 0 in some step; ``NAME < 1`` and ``NAME > 8`` set another bound."""
    name, sign, bound = metric.split(" ") if " " in metric else (metric, ">", "0")
    found = [line[name] for line in lines if line.get(name) is not None]
    return any(value > float(bound) if sign == ">" else value < float(bound) for value in found)


def idle(proof: Proof, lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """Metrics that never acted, and those of ``late`` that did."""
    never = [f"{metric}: never in {len(lines)} steps" for metric in proof.acted if not acted(metric, lines)]
    early = [f"{metric}: acts, and goes from late to acted" for metric in proof.late if acted(metric, lines)]
    return never + early


def not_differing(name: str, proof: Proof, run: Path, folder: Path, off: Off, part: str) -> list[str]:
    """Where the run without the mechanism does not first differ in ``part``."""
    found = first_part_that_differs(name, proof, run, folder, (off,) if isinstance(off, str) else off)
    return [] if found == part else [f"{off}: the run first differs in {found}, and not in {part}"]


class Differs(Exception):
    """A run has left the other's bits: it ends there, and not by ``interrupted``, which would write a checkpoint."""


def first_part_that_differs(name: str, proof: Proof, run: Path, folder: Path, off: tuple[str, ...]) -> str | None:
    """Where the run without the mechanism first differs from the other; it is not trained any further."""
    expected = without_metrics(read_digests(run))

    def found() -> Any:
        so_far = without_metrics(read_digests(folder / name))
        return first_difference({step: expected[step] for step in so_far if step in expected}, so_far)

    def ended() -> bool:
        # An offline stage asks while it gathers its data too, before the first digest.
        if (folder / name / FOLDER).exists() and found() is not None:
            raise Differs
        return False

    with contextlib.suppress(Differs):
        trained(name, proof, folder, *off, *WITHOUT, interrupted=ended)
    difference = found()
    return None if difference is None else difference.part


def without_metrics(digests: Mapping[int, Mapping[str, Mapping[str, Any]]]) -> dict[int, Any]:
    """Tokens, grades, advantages and weights: another metric alone is no other run."""
    return {
        step: {part: {k: v for k, v in parts[part].items() if not k.startswith("metrics.")} for part in DIFFERS}
        for step, parts in digests.items()
    }


def mixed(name: str) -> dict[int, tuple[str, tuple[str, ...]]]:
    """The stages whose advantages have several sources, by their settings: place -> (name, sources)."""
    recipe = load_recipe(name, [*USUAL, "digests=false"])  # which not every recipe as shipped can leave
    learning = {place: stage for place, stage in enumerate(recipe.stages) if isinstance(stage, Online | Offline)}
    found = {place: (stage.name, Method.of(stage, recipe.reward).sources) for place, stage in learning.items()}
    return {place: (stage, sources) for place, (stage, sources) in found.items() if sources}


def share_metrics(line: Mapping[str, Any], sources: Sequence[str]) -> dict[str, float]:
    """The shares that a step logged, by source."""
    return {name: line[f"credit/{name}/share"] for name in (*sources, "other") if f"credit/{name}/share" in line}


def wrong_shares(name: str, lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """Stages of several sources that do not log each one's share of the advantages' variance, or whose sum is not 1."""
    wrong: list[str] = []
    for stage, sources in mixed(name).values():
        of_stage = [line for line in lines if line["stage"] == stage]
        logged = [found for line in of_stage if (found := share_metrics(line, sources))]
        learns = any(line.get("grad_norm") and line.get("rows_without_gradient", 1) < 1 for line in of_stage)
        if learns and not logged:
            wrong.append(f"{stage}: logs no share of {', '.join(sources)}")
        # Of the reward's parts none, where no outcome of the step differs: a KL cost alone has a share then.
        told = set(sources) & {"kl", "process", "steps", "clarity", "shaping"}
        wrong += [
            f"{stage}: logs the shares {found}; expected: all of {', '.join(sources)}, 1 in sum"
            for found in logged
            if not (set(sources) <= found.keys() or told == found.keys()) or abs(sum(found.values()) - 1) > 1e-4
        ]
    return wrong


def keeps_state(left: Path) -> bool:
    """Whether a component has state of its own, which a plain ``grpo`` has not: all that the loop itself keeps there
    is what a curriculum that draws uniformly keeps."""
    newest = found_checkpoints(left / "checkpoints")[0]
    of_stage = load(newest)["state"]["of_stage"]
    if (sampler := of_stage.get("sampler")) is None:
        return True
    parts = [of_stage.get(name) for name in ("credit", "objective", "also")]
    parts += [of_stage.get("source", {}).get(name) for name in ("index", "under_way")]
    parts += [of_stage["ending"]["solved"], *(sampler[name] for name in ("guidance", "grader", "value"))]
    return any(parts) or not sampler["curriculum"].keys() <= {"seed", "position", "tasks"}


def other_end(name: str, proof: Proof, run: Path, left: Path) -> list[str]:
    """In what a run that was killed and resumed does not end as the whole one."""
    checkpoint = max(int(file.name.removeprefix("step-")) for file in (left / "checkpoints").glob("step-*"))
    for step in read_digests(left):
        if step > checkpoint:
            (left / FOLDER / f"step-{step:06d}.json").unlink()
    expected, found = outcome(run, checkpoint), outcome(trained(name, proof, left.parent, resume=True), checkpoint)
    return [f"killed and resumed: other {what}" for what in expected if found[what] != expected[what]]


def outcome(run: Path, after: int) -> dict[str, Any]:
    """What a run leaves of the steps after a checkpoint that is neither a time nor a label."""

    def untimed(line: Mapping[str, Any]) -> dict[str, Any]:
        return {k: v for k, v in line.items() if "seconds" not in k and k not in ("time", "tokens_per_second")}

    return {
        "digests": {step: parts for step, parts in read_digests(run).items() if step > after},
        "metrics": [untimed(line) for line in metrics(run)],
        "weights": {str(file.relative_to(run)): file.read_bytes() for file in run.glob("[mv]*/*.safetensors")},
    }
