"""Memory and time to the first step on one's own JSON lines: lyceum beside TRL's trainer on ``datasets.load_dataset``.

    python benchmarks/data.py --python /path/to/trl/bin/python --out benchmarks/results/data.json

Some minutes. Each side is a process of its own that trains a random small model for one step on the same rows, a second
time on the same file (``datasets`` then finds what it has written to its cache), and with the rows passed in otherwise.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import common

ROWS, QUICK_ROWS = 1_000_000, 20_000
TASKS, SAMPLES, TOKENS = 4, 4, 8
DEFINITIONS = {
    "seconds_to_first_step": "wall seconds from the start of the process to the end of its first training step",
    "processor_seconds": "processor seconds, user and system, of the process up to there: what else runs counts less",
    "peak_mib": "maximum resident memory of the process (MiB)",
    "cache_mib": "rows that the process has written: to the folder of datasets' cache, or to the run's (MiB)",
    "rows": "rows of the file, and 'few' for the first 1000: the difference is what rows cost",
    "again": "a second process on the same file and cache",
    "streamed": "an IterableDataset of the file: datasets.load_dataset(streaming=True)",
    "listed": "a list of dicts, all in memory",
    "load": "processes that waited for a processor in the last minute, before and after",
}

END = """
lines = open("/proc/self/status").read().splitlines()
peak = next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:"))
print(time.time() - began, peak)
"""
"""VmHWM and not ru_maxrss: the latter begins at what the process that started this one had."""

LYCEUM = (
    """
import json, sys, time
began = float(sys.argv[3])
import lyceum
rows = %(rows)s
lyceum.train(
    "grpo", model=sys.argv[2], tasks=rows, steps=1, tasks_per_step=%(TASKS)d, output=sys.argv[4],
    progress="silent", reward=lambda completion: len(completion) %% 3,
    **{"rollout.samples": %(SAMPLES)d, "rollout.sampling.max_completion_tokens": %(TOKENS)d, "evaluate.n": 0,
       "checkpoint_every": 0, "track": []},
)
"""
    + END
)

TRL = (
    """
import sys, time
began = float(sys.argv[3])
import datasets, torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

def reward(completions, **columns):
    return [float(len(completion) %% 3) for completion in completions]

rows = %(rows)s
config = GRPOConfig(
    output_dir=sys.argv[4], use_cpu=True, bf16=False, max_steps=1, per_device_train_batch_size=%(TASKS)d * %(SAMPLES)d,
    num_generations=%(SAMPLES)d, max_completion_length=%(TOKENS)d, beta=0.0, gradient_checkpointing=False,
    logging_strategy="no", save_strategy="no", report_to="none", disable_tqdm=True, dataloader_pin_memory=False,
)
trainer = GRPOTrainer(
    model=AutoModelForCausalLM.from_pretrained(sys.argv[2], dtype=torch.float32), reward_funcs=reward, args=config,
    train_dataset=rows, processing_class=AutoTokenizer.from_pretrained(sys.argv[2], padding_side="left"),
)
trainer.train()
"""
    + END
)

CACHED = 'datasets.load_dataset("json", data_files=sys.argv[1], split="train", cache_dir=sys.argv[4] + "/cache")'
STREAMED = '__import__("datasets").load_dataset("json", data_files=sys.argv[1], split="train", streaming=True)'
LISTED = "[json.loads(line) for line in open(sys.argv[1])]"
CASES = (
    (
        "lyceum",
        LYCEUM,
        {"few": "sys.argv[1]", "many": "sys.argv[1]", "again": "sys.argv[1]", "streamed": STREAMED, "listed": LISTED},
    ),
    ("trl", TRL, {"few": CACHED, "many": CACHED, "again": CACHED, "streamed": STREAMED}),
)
"""How the rows are passed in, by system and case."""
SIZES = {"TASKS": TASKS, "SAMPLES": SAMPLES, "TOKENS": TOKENS}


def main() -> None:
    parser = common.arguments(__doc__ or "")
    parser.add_argument("--python", default=sys.executable, help="interpreter of an environment that has TRL")
    options = parser.parse_args()
    number = QUICK_ROWS if options.quick else ROWS
    with tempfile.TemporaryDirectory() as folder:
        many, few = Path(folder) / "many.jsonl", Path(folder) / "few.jsonl"
        write_rows(many, number)
        write_rows(few, 1000)
        model = str(common.base_folder(options.base))
        result: dict[str, Any] = {"definitions": DEFINITIONS, "machine": common.machine("datasets")}
        result |= {"rows": number, "file_mib": round(many.stat().st_size / common.MIB, 1), "load": [os.getloadavg()[0]]}
        table: list[list[Any]] = []
        for name, program, cases in CASES:
            python = sys.executable if name == "lyceum" else options.python
            for what, rows in cases.items():
                file = few if what == "few" else many
                place = Path(folder) / f"{name}-{file.stem if what == 'again' else what}"
                found = measured(python, program % (SIZES | {"rows": rows}), file, model, place, options.threads)
                result.setdefault(name, {})[what] = found
                table.append([f"{name} {what}", *found.values()])
                common.say(f"{name} {what}: {found}")
        result["load"].append(os.getloadavg()[0])
    common.table(f"one step on {number} rows", ["", *result["lyceum"]["few"]], table)
    common.write(result, options.out)


def write_rows(file: Path, number: int) -> None:
    draw = random.Random(0)
    with file.open("w") as lines:
        for _ in range(number):
            terms = [draw.randint(0, 99) for _ in range(4)]
            row = {"prompt": "+".join(map(str, terms)) + "=", "answer": str(sum(terms)), "source": "sums"}
            row["solution"] = " ".join(f"{term} is added to the sum." for term in terms)
            lines.write(json.dumps(row) + "\n")


def measured(python: str, program: str, file: Path, model: str, place: Path, threads: int) -> dict[str, float]:
    """One process's cost, up to the end of its step."""
    place.mkdir(exist_ok=True)
    output = place / f"run-{time.time_ns()}"
    output.mkdir()
    environment = os.environ | {"OMP_NUM_THREADS": str(threads), "HF_HUB_OFFLINE": "1", "HF_HOME": str(place)}
    if "trl" in place.name:
        (place / "cache").mkdir(exist_ok=True)
        output = place
    began = time.time()
    process = subprocess.Popen(
        [python, "-c", program, str(file), model, repr(began), str(output)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    said, complaint = process.stdout.read(), process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{place.name} ended with {process.returncode}:\n{complaint[-3000:]}")
    written = [*place.rglob("*.arrow"), *place.rglob("tasks/*")]
    cache = sum(found.stat().st_size for found in written)
    seconds, peak = map(float, said.splitlines()[-1].split())
    return {
        "seconds_to_first_step": round(seconds, 1),
        "processor_seconds": round(usage.ru_utime + usage.ru_stime, 1),
        "peak_mib": round(peak, 1),
        "cache_mib": round(cache / common.MIB, 1),
    }


if __name__ == "__main__":
    main()
