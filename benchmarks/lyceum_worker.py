"""lyceum's side of a comparison: a whole run of its online recipe, one step at a time.

Nothing is stripped: tasks are drawn, sampled, graded, credited and learnt, and metrics, TensorBoard and rollouts are
written as in any run. Between two steps the run asks whether it was interrupted; there it waits for its turn.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from common import Gate, machine, matmul_gflops, model_shapes, peak_mib, resident_mib


def main() -> None:
    spec = json.loads(sys.argv[1])
    gate = Gate()
    import torch

    from lyceum.recipe.schema import parse
    from lyceum.training.train import train
    from lyceum.utils.errors import Interrupted

    torch.set_num_threads(spec["threads"])
    config = json.loads((Path(spec["recipe"]["model"]["path"]) / "config.json").read_text())
    rates = matmul_gflops(model_shapes(config, spec["decoded"], spec["trained"]))
    gate.say(ready=True, matmul_gflops=rates, machine=machine("trl", "accelerate"), loaded_mib=resident_mib())
    sys.stdin.readline()
    recipe = parse(spec["recipe"])
    folder = Path(recipe.output) / recipe.name
    stopped = False

    def turn() -> bool:
        return not gate.step(peak_mib=peak_mib())

    try:
        train(recipe, interrupted=turn)
    except Interrupted:
        stopped = True
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    model = None if stopped else str(folder / "model")
    gate.say(finished=True, steps=[json.loads(line) for line in lines], run=str(folder), model=model)


if __name__ == "__main__":
    main()
