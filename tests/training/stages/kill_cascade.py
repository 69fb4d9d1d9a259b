"""A cascade killed by SIGKILL at random moments in each of its stages and between them, and resumed: the same bits.

    python tests/training/stages/kill_cascade.py --kills 20 --seed 0 --recipe cascade-rl --out kills.json

The cascade runs briefly, in processes of its own (``lyceum train``). One run is never killed. Another one is killed in
one place after the other, resumed each time, and compared with the first at its end; then the next one, until all kills
are done. After each kill the models that the stages before have left are opened. Exit code 1 where a bit differs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import yaml
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

from lyceum.run import checkpoint
from lyceum.run.versions import versions

BRIEF = {
    "cascade-rl": (
        *("stages.start.steps=6", "stages.start.tasks_per_step=16", "stages.offline.steps=6", "stages.online.steps=6"),
        *("stages.offline.data.tasks=32", "stages.offline.tasks_per_step=4", "stages.online.tasks_per_step=4"),
    )
}
"""Keys that make a recipe brief, sizes alone."""
USUAL = ("evaluate.n=16", "evaluate.samples=2", "evaluate.every=3", "checkpoint_every=3", "digests=true")
WRITTEN = ("rollouts_every=2", "trees_every=2", "track=[]")
LIMIT = 600
"""Seconds after which a process that neither ends nor gets anywhere is a fault."""


@dataclass(frozen=True)
class Place:
    """Where in a run a kill is to fall: after ``done`` of its steps, within ``seconds``.

    Attributes:
        name: of a stage; of two with an arrow, between them; else before the first or after the last step.
        writing: wait for the next checkpoint or model that is being written, within it.
    """

    name: str
    done: int
    seconds: float
    writing: bool = False


@dataclass(frozen=True)
class Run:
    """The folder of a run, and what started it."""

    path: Path
    recipe: str
    keys: tuple[str, ...]

    @property
    def finished(self) -> bool:
        return (self.path / "report.html").exists() and self.summary().get("finished", False)

    def summary(self) -> dict[str, Any]:
        file = self.path / "summary.json"
        return json.loads(file.read_text()) if file.exists() else {}

    def steps(self) -> list[dict[str, Any]]:
        """Metrics of the steps that were written whole."""
        file = self.path / "metrics.jsonl"
        lines = file.read_text().splitlines(keepends=True) if file.exists() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def start(self) -> subprocess.Popen[bytes]:
        """Begin, or resume where something is there."""
        resume = ["--resume"] if (self.path / "recipe.yaml").exists() else []
        keys = [*self.keys, f"output={self.path.parent}", f"name={self.path.name}", *resume]
        command = [sys.executable, "-m", "lyceum", "train", self.recipe, *keys]
        with open(self.path.parent / "log", "ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)

    def to_its_end(self) -> None:
        if not self.finished and self.start().wait(LIMIT):
            self.fail("did not come to its end")

    def fail(self, what: str) -> None:
        raise SystemExit(f"{self.path}: {what}\n{(self.path.parent / 'log').read_text()[-3000:]}")


def places(stages: list[dict[str, Any]], rng: Random, number: int) -> list[Place]:
    """So many, each stage and each hand-over in turn, at random moments of a run that took as long as this one.

    Args:
        stages: metrics of the steps of a whole run.
    """
    took = [now["time"] - before for now, before in zip(stages, [0, *(line["time"] for line in stages)], strict=False)]
    names = [line["stage"] for line in stages]
    found: list[Place] = []
    while len(found) < number:
        chain = [Place("before the first step", 0, took[0])]
        for name in dict.fromkeys(names):
            first, last = names.index(name), len(names) - 1 - names[::-1].index(name)
            step = rng.randint(first + 1, last)  # the wait for the first one is the hand-over
            chain.append(Place(name, step, took[step]))
            if last + 1 < len(names):
                chain.append(Place(f"{name} -> {names[last + 1]}", last + 1, took[last + 1]))
        chain.append(Place("after the last step", len(names), took[0]))
        found += [
            Place(place.name, place.done, rng.uniform(0, place.seconds), writing=place.done > 0 and rng.random() < 0.4)
            for place in chain
        ]
    return found[:number]


def kill(run: Run, place: Place, stages: list[str]) -> dict[str, Any] | None:
    """Begin the run or resume it, and kill it there; what was hit, or None where it had come to its end before."""
    began = time.time_ns()
    saved = checkpoint.latest(run.path / "checkpoints")
    at = checkpoint.step_of(saved) if saved is not None else 0
    process = run.start()
    limit = time.monotonic() + LIMIT

    def steps_done() -> int:
        """Of this process: files that a process before has left are older."""
        fresh = [int(file.stem[5:]) for file in new(run.path.glob("digests/step-*.json"), began)]
        return max(fresh, default=at if list(new([run.path / "summary.json"], began)) else -1)

    while process.poll() is None and steps_done() < place.done and time.monotonic() < limit:
        time.sleep(0.001)
    if place.writing:
        while process.poll() is None and not being_written(run.path) and time.monotonic() < limit:
            time.sleep(0.0002)
        time.sleep(place.seconds % 0.01)
    else:
        time.sleep(place.seconds)
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    code = process.wait()
    if code not in (0, -signal.SIGKILL):
        run.fail(f"ended with code {code}")
    if code == 0 or run.finished:
        return None
    done = steps_done()
    return {
        "aimed": place.name,
        "hit": where(stages, done),
        "steps_done": max(done, 0),
        "resumed_from": at,
        "left_half_written": sorted(being_written(run.path)),
        "models_opened": opened(run.path),
    }


def where(stages: list[str], done: int) -> str:
    """The stage that was running, or the two between which the run was."""
    if done < 0:
        return "starting"
    if done == 0:
        return "before the first step"
    if done == len(stages):
        return "after the last step"
    before, now = stages[done - 1], stages[done]
    return now if before == now else f"{before} -> {now}"


def new(files: Iterable[Path], began: int) -> Iterable[Path]:
    for file in files:
        try:
            if file.stat().st_mtime_ns >= began:
                yield file
        except FileNotFoundError:  # replaced while we looked
            continue


def being_written(run: Path) -> list[str]:
    """Checkpoints and models under the names that they have until they are whole."""
    partial = [*run.glob("checkpoints/.partial-*"), *run.glob("model.partial"), *run.glob("stages/*/model.partial")]
    return [str(path.relative_to(run)) for path in partial]


def opened(run: Path) -> list[str]:
    """Names of the models that are there; each is opened by itself and writes a few tokens."""
    folders = sorted([*run.glob("stages/*/model"), *run.glob("model")])
    for folder in folders:
        model = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True)
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        prompt = tokenizer("12+30=", return_tensors="pt")
        assert model.generate(**prompt, max_new_tokens=4, do_sample=False).shape[1] > prompt["input_ids"].shape[1]
    return [str(folder.relative_to(run)) for folder in folders]


def evaluated(run: Path) -> dict[str, float]:
    """Accuracy of each stage's model, measured by ``lyceum eval`` without the run around it."""
    found: dict[str, float] = {}
    for name in opened(run):
        with tempfile.TemporaryDirectory() as alone:
            folder = shutil.copytree(run / name, Path(alone) / "model")
            command = [sys.executable, "-m", "lyceum", "eval", str(folder), "--tasks", "chain", "--n", "16", "--k", "1"]
            said = subprocess.run([*command, "--json"], capture_output=True, check=True)
            found[name] = json.loads(said.stdout)["overall"]["mean"]
    return found


def left(run: Run) -> dict[str, Any]:
    """Everything that a run leaves and that is no time: metrics, summary, recipe, and what is in each other file."""

    def untimed(of: dict[str, Any]) -> dict[str, Any]:
        timed = ("time", "seconds", "tokens_per_second", "versions")
        return {key: value for key, value in of.items() if key not in timed and not key.startswith("seconds/")}

    files: dict[str, str] = {}
    for path in run.path.rglob("*"):
        name = path.relative_to(run.path).as_posix()
        if path.name in ("state.json", "manifest.json"):
            continue  # with times; their content is below
        if path.is_file() and name not in (".lock", "report.html", "summary.json", "metrics.jsonl", "recipe.yaml"):
            files[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    recipe = yaml.safe_load((run.path / "recipe.yaml").read_text())
    states = {path.parent.name: json.loads(path.read_text())["state"] for path in run.path.rglob("state.json")}
    return {
        **files,
        "metrics.jsonl": [untimed(line) for line in run.steps()],
        "summary.json": untimed(run.summary()),
        "recipe.yaml": {key: value for key, value in recipe.items() if key != "output"},
        **{f"checkpoints/{name}/state.json": state for name, state in states.items()},
    }


def differences(got: dict[str, Any], expected: dict[str, Any]) -> list[str]:
    """Names of what is not the same. Killed between a checkpoint and the removal of an older one, one more may stay."""
    return sorted(
        name for name in {*got, *expected} if got.get(name) != expected.get(name) and not is_one_more(name, expected)
    )


def is_one_more(name: str, expected: dict[str, Any]) -> bool:
    folder, _, _ = name.rpartition("/")
    return folder.startswith("checkpoints/") and not any(other.startswith(f"{folder}/") for other in expected)


def main() -> int:
    parser = argparse.ArgumentParser(description="Kill a cascade at random moments, resume it, compare bit for bit.")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--recipe", default="cascade-rl")
    parser.add_argument("--out", type=Path, help="JSON file for the result")
    parser.add_argument("keys", nargs="*", help="further settings of the recipe")
    chosen = parser.parse_args()
    keys = (*BRIEF.get(chosen.recipe, ()), *USUAL, *WRITTEN, *chosen.keys)
    logging.disable_progress_bar()
    began, machine = time.perf_counter(), versions()
    del machine["command"]
    with tempfile.TemporaryDirectory() as folder:
        result = killed_and_compared(Path(folder), chosen.recipe, keys, Random(chosen.seed), chosen.kills)
    took = {"seed": chosen.seed, "seconds": round(time.perf_counter() - began)}
    document = {"recipe": chosen.recipe, "keys": list(keys), "machine": machine, **took, **result}
    if chosen.out is not None:
        chosen.out.write_text(json.dumps(document, indent=1) + "\n")
    return 1 if any(run["differs"] for run in result["runs"]) else 0


def killed_and_compared(folder: Path, recipe: str, keys: tuple[str, ...], rng: Random, number: int) -> dict[str, Any]:
    def run(name: str) -> Run:
        (folder / name).mkdir()
        return Run(folder / name / "run", recipe, keys)

    whole = run("whole")
    whole.to_its_end()
    expected, steps, alone = left(whole), whole.steps(), evaluated(whole.path)
    stages = [line["stage"] for line in steps]
    plan = places(steps, rng, number)
    runs: list[dict[str, Any]] = []
    kills = 0
    while plan:
        one, hits = run(f"killed-{len(runs)}"), list[dict[str, Any]]()
        while plan and (not hits or plan[0].done >= hits[-1]["steps_done"]):
            hit = kill(one, plan[0], stages)
            if hit is None:  # it was faster than the whole one
                plan[0] = Place(plan[0].name, plan[0].done, plan[0].seconds / 2)
                break
            plan.pop(0)
            hits.append(hit)
            kills += 1
            print(f"{kills}: {hit}", flush=True)
        one.to_its_end()
        differs = differences(left(one), expected)
        runs.append({"kills": hits, "differs": differs})
        print(f"run {len(runs)}: {len(hits)} kills; differs: {', '.join(differs) or 'nothing'}", flush=True)
    return {
        "kills": kills,
        "steps": len(steps),
        "compared": len(expected),
        "stages": {name: stages.count(name) for name in dict.fromkeys(stages)},
        "evaluated_alone": alone,
        "runs": runs,
    }


if __name__ == "__main__":
    sys.exit(main())
