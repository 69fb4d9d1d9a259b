"""The engine's side of checkouts.py: the same requests, a round each time it is told to, by one checkout's own code."""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main() -> None:
    spec = json.loads(sys.argv[1])
    sys.path.insert(0, str(Path(spec["checkout"]) / "benchmarks"))
    import torch
    from common import Gate
    from engine import Lyceum, Work, read_prompts

    gate = Gate()
    torch.set_num_threads(spec["threads"])
    folder = Path(spec["model"])
    batch, samples = spec["batch"], spec["samples"]
    prompts = read_prompts("small", folder, batch // samples)
    engine = Lyceum(folder)
    work = Work.of(prompts, samples, spec["short"], spec["long"], batch)
    gate.say(ready=True)
    sys.stdin.readline()
    while gate.step():
        engine(work)


if __name__ == "__main__":
    main()
