"""Every recipe as shipped, only briefer: its mechanism acts, without it the run differs, and killed it goes on alike.

What a recipe has to show is its line in ``proofs.py``.
"""

import contextlib
import json
import shutil
from itertools import islice
from pathlib import Path

import pytest
from proofs import DIFFERS, PROOFS, Proof

from lyceum.recipe.files import recipe_names
from lyceum.recipe.schema import load_recipe
from lyceum.run.checkpoint import latest, load
from lyceum.run.digests import first_difference, read_digests
from lyceum.stages.method import Method
from lyceum.stages.offline import Offline
from lyceum.stages.online import Online
from lyceum.training.train import train
from lyceum.utils.errors import Interrupted

Off = str | tuple[str, ...]
USUAL = ["evaluate.n=0", "track=[]", "digests=true", "checkpoint_every=1"]


def trained(name: str, folder: Path, *keys: str, **how) -> Path:
    own = [key.replace("{beside}", str(folder.parent / "beside" / name)) for key in PROOFS[name].keys]
    return train(load_recipe(name, [*USUAL, *own, *keys, f"output={folder}"]), **how)


def whole(name: str, folder: Path) -> tuple[Path, Path]:
    """A run, and the last of its folders that a kill would have left: steps after its checkpoint are in its records."""
    run, left = folder / "whole" / name, folder / "killed" / name

    def killed() -> bool:
        if any((run / "checkpoints").glob("step-*")):
            shutil.rmtree(left, ignore_errors=True)
            shutil.copytree(run, left)
        return False

    return trained(name, folder / "whole", interrupted=killed), left


def metrics(run: Path) -> list[dict]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def acted(metric: str, lines: list[dict]) -> bool:
    """Whether a metric is above 0 in some step; ``NAME < 1`` and ``NAME > 8`` set another bound."""
    name, sign, bound = metric.split(" ") if " " in metric else (metric, ">", "0")
    found = [line[name] for line in lines if line.get(name) is not None]
    return any(value > float(bound) if sign == ">" else value < float(bound) for value in found)


def first_part_that_differs(name: str, run: Path, folder: Path, off: tuple[str, ...]) -> str | None:
    """Where the run without the mechanism first differs from the other; it is not trained any further."""
    expected = without_metrics(read_digests(run))

    def found():
        so_far = without_metrics(read_digests(folder / name))
        return first_difference({step: expected[step] for step in so_far if step in expected}, so_far)

    with contextlib.suppress(Interrupted):
        # An offline stage asks while it gathers its data too, before the first digest.
        trained(name, folder, *off, interrupted=lambda: (folder / name / "digests").exists() and found() is not None)
    difference = found()
    return None if difference is None else difference.part


def without_metrics(digests):
    """Tokens, grades, advantages and weights: another metric alone is no other run."""
    return {
        step: {part: {k: v for k, v in parts[part].items() if not k.startswith("metrics.")} for part in DIFFERS}
        for step, parts in digests.items()
    }


def mixed(name: str) -> dict[int, tuple[str, tuple[str, ...]]]:
    """The stages whose advantages have several sources, by their settings: place -> (name, sources)."""
    recipe = load_recipe(name, USUAL)
    learning = {place: stage for place, stage in enumerate(recipe.stages) if isinstance(stage, (Online, Offline))}
    found = {place: (stage.name, Method.of(stage, recipe.reward).sources) for place, stage in learning.items()}
    return {place: (stage, sources) for place, (stage, sources) in found.items() if sources}


def share_metrics(line: dict, sources: tuple[str, ...]) -> dict[str, float]:
    """The shares that a step logged, by source."""
    return {name: line[f"credit/{name}/share"] for name in (*sources, "other") if f"credit/{name}/share" in line}


def assert_shares_are_logged(name: str, lines: list[dict]) -> None:
    for stage, sources in mixed(name).values():
        of_stage = [line for line in lines if line["stage"] == stage]
        logged = [found for line in of_stage if (found := share_metrics(line, sources))]
        learns = any(line.get("grad_norm") and line.get("rows_without_gradient", 1) < 1 for line in of_stage)
        assert logged or not learns, f"{stage}: no share of {sources} in {of_stage}"
        for found in logged:
            # Of the reward's parts none, where no outcome of the step differs: a KL cost alone has a share then.
            told = set(sources) & {"kl", "process", "steps", "clarity", "shaping"}
            assert set(sources) <= found.keys() or told == found.keys()
            assert sum(found.values()) == pytest.approx(1, abs=1e-4), found


def outcome(run: Path, after: int) -> dict:
    """What a run leaves of the steps after a checkpoint that is neither a time nor a label."""

    def untimed(line):
        return {k: v for k, v in line.items() if "seconds" not in k and k not in ("time", "tokens_per_second")}

    return {
        "digests": {step: parts for step, parts in read_digests(run).items() if step > after},
        "metrics": [untimed(line) for line in metrics(run)],
        "weights": {str(file.relative_to(run)): file.read_bytes() for file in run.glob("[mv]*/*.safetensors")},
    }


def prepared(name: str, folder: Path) -> Proof:
    """What the recipe has to show; runs what goes before it."""
    assert name in PROOFS, f"{name}: tests/recipe/proofs.py has no line that says what shows that its mechanism acted"
    proof = PROOFS[name]
    if proof.needs is not None and not Path(proof.needs).exists():
        pytest.skip(f"there is no {proof.needs}")
    if proof.beside is not None:
        train(load_recipe(name, [*USUAL, *proof.beside, f"output={folder / 'beside'}"]))
    return proof


def assert_differs(name: str, run: Path, folder: Path, off: Off, part: str) -> None:
    assert first_part_that_differs(name, run, folder, (off,) if isinstance(off, str) else off) == part, off


def keeps_state(left: Path) -> bool:
    """Whether a component has state of its own, which a plain ``grpo`` has not: all that the loop itself keeps there
    is what a curriculum that draws uniformly keeps."""
    checkpoint = latest(left / "checkpoints")
    assert checkpoint is not None
    of_stage = load(checkpoint)["state"]["of_stage"]
    if (sampler := of_stage.get("sampler")) is None:
        return True
    parts = [of_stage.get(name) for name in ("credit", "objective", "also")]
    parts += [of_stage.get("source", {}).get(name) for name in ("index", "under_way")]
    parts += [of_stage["ending"]["solved"], *(sampler[name] for name in ("guidance", "grader", "value"))]
    return any(parts) or not sampler["curriculum"].keys() <= {"seed", "position", "tasks"}


def assert_ends_in_the_same_bits(name: str, run: Path, left: Path) -> None:
    checkpoint = max(int(file.name.removeprefix("step-")) for file in (left / "checkpoints").glob("step-*"))
    shutil.rmtree(left / "digests")
    assert outcome(trained(name, left.parent, resume=True), checkpoint) == outcome(run, checkpoint)


@pytest.mark.parametrize("name", recipe_names())
def test_its_mechanism_acts_and_killed_it_ends_in_the_same_bits(name, tmp_path):
    proof = prepared(name, tmp_path)
    run, left = whole(name, tmp_path)
    lines = metrics(run)
    idle = [metric for metric in (*proof.acted, *proof.late) if not acted(metric, lines)]
    assert idle == list(proof.late), f"never acted in {lines}; a metric of `late` that acts now goes to `acted`"
    assert_shares_are_logged(name, lines)
    for off, part in islice(proof.off.items(), 1):
        assert_differs(name, run, tmp_path / "off", off, part)
    if keeps_state(left) or name == "grpo":
        assert_ends_in_the_same_bits(name, run, left)


@pytest.mark.engines
@pytest.mark.parametrize("name", recipe_names())
def test_killed_it_ends_in_the_same_bits_with_no_state_of_its_own_too(name, tmp_path):
    prepared(name, tmp_path)
    run, left = whole(name, tmp_path)
    if not keeps_state(left):
        assert_ends_in_the_same_bits(name, run, left)


@pytest.mark.engines
@pytest.mark.parametrize("name", [name for name, proof in PROOFS.items() if len(proof.off) > 1])
def test_it_differs_without_each_other_part_of_its_mechanism(name, tmp_path):
    proof = prepared(name, tmp_path)
    run = trained(name, tmp_path / "whole")
    for number, (off, part) in enumerate(islice(proof.off.items(), 1, None)):
        assert_differs(name, run, tmp_path / str(number), off, part)


def test_every_line_is_of_a_recipe():
    assert PROOFS.keys() <= set(recipe_names())
