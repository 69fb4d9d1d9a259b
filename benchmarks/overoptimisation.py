"""Over-optimisation of preference losses: likelihoods, top-k mass and entropy, and held-out accuracy over many passes.

    python benchmarks/overoptimisation.py --out benchmarks/results/overoptimisation.json [--seeds 3] [--quick]

Each loss trains the small base on the same pairs, which it sampled itself, by the recipe ``over-optimisation``. Another
seed samples other pairs and is evaluated on other held-out tasks.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from common import arguments, machine, say, write

from lyceum.recipe.schema import load_recipe
from lyceum.training.train import train

LOSSES = {
    "dpo": "objective.loss=sigmoid",
    "ipo": "objective.loss=ipo",
    "hinge": "objective.loss=hinge",
    "orpo": "objective={kind: orpo, beta: 0.1, pairs: 1, top_k: 3}",
}
FOLLOWED = ("chosen_logprob", "rejected_logprob", "margin", "accuracy", "top_mass", "top_entropy")
SHARES = ("heldout", "accuracy", "top_mass")
DEFINITIONS = {
    "chosen_logprob, rejected_logprob": "nats per token of the pairs' better and worse samples, mean over the steps",
    "top_mass": "probability of the 3 likeliest tokens, mean over the pairs' tokens",
    "top_entropy": "what these 3 add to the entropy, nats per token",
    "accuracy": "share of pairs in the right order by the loss's own margin",
    "heldout": "share of correct samples on 200 held-out tasks, 4 samples each",
    "points": "one per evaluation; the other numbers are means over the steps since the one before",
    "over_seeds": "of each loss, mean over the seeds with its 95 % interval, at each evaluation; best: each seed's "
    "highest accuracy at an evaluation, which is optimistic",
}


def points(lines: Sequence[Mapping[str, Any]]) -> list[dict[str, float]]:
    """One per evaluation: held-out accuracy, and the means of the steps up to it."""
    found: list[dict[str, float]] = []
    since: list[Mapping[str, Any]] = []
    for line in lines:
        kind = "orpo" if "orpo/margin" in line else "dpo"
        since.append({name: line.get(f"{kind}/{name}") for name in FOLLOWED})
        if "heldout/overall" in line:
            known = {name: [step[name] for step in since if step[name] is not None] for name in FOLLOWED}
            means = {name: round(mean(values), 5) for name, values in known.items() if values}
            found.append({"step": line["step"], "heldout": round(line["heldout/overall"], 5), **means})
            since = []
    return found


def run(loss: str, seed: int, folder: Path, *, quick: bool) -> dict[str, Any]:
    brief = ["steps=20", "evaluate.n=50", "data.tasks=32"] if quick else []
    keys = [LOSSES[loss], f"seed={seed}", "track=[]", f"output={folder}", f"name={loss}-{seed}", *brief]
    path = train(load_recipe("over-optimisation", keys))
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    summary = json.loads((path / "summary.json").read_text())
    before, after = (summary[when]["overall"]["mean"] for when in ("before", "after"))
    return {"loss": loss, "seed": seed, "before": before, "after": after, "points": points(lines)}


def over_seeds(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Mean and interval over the seeds of one loss: before, best and after, and each number of each evaluation."""
    from lyceum.evaluation.intervals import mean_over_seeds

    def of(values: Sequence[float], *, share: bool = True) -> dict[str, float]:
        found = mean_over_seeds(values)
        low, high = (max(0.0, found.low), min(1.0, found.high)) if share else (found.low, found.high)
        return {name: round(value, 5) for name, value in (("mean", found.mean), ("low", low), ("high", high))}

    curve = [
        {"step": at[0]["step"]}
        | {name: of([point[name] for point in at], share=name in SHARES) for name in ("heldout", *FOLLOWED)}
        for at in zip(*(run["points"] for run in runs), strict=True)
    ]
    best = [max(point["heldout"] for point in run["points"]) for run in runs]
    ends = {when: of([run[when] for run in runs]) for when in ("before", "after")}
    return {"loss": runs[0]["loss"], "seeds": len(runs), **ends, "best": of(best), "curve": curve}


def show(result: Mapping[str, Any]) -> None:
    of = result["points"]
    best = max(of, key=lambda point: point["heldout"])
    print(
        f"{result['loss']:6} held-out {result['before']:.3f} -> best {best['heldout']:.3f} at step {best['step']} -> "
        f"{result['after']:.3f}"
    )
    for name in ("chosen_logprob", "rejected_logprob", "top_mass", "top_entropy"):
        print(f"       {name:16} {of[0][name]:9.4f} -> at the best {best[name]:9.4f} -> last {of[-1][name]:9.4f}")


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--seeds", type=int, default=3, help="runs of each loss")
    args = parser.parse_args()
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(args.seeds):
            for loss in LOSSES:
                say(f"{loss}, seed {seed}")
                results.append(run(loss, seed, Path(folder), quick=args.quick))
                show(results[-1])
            of_loss = [[of for of in results if of["loss"] == loss] for loss in LOSSES]
            summary = [over_seeds(runs) for runs in of_loss] if seed > 0 else []
            found = {"machine": machine(), "definitions": DEFINITIONS, "quick": args.quick}
            write(found | {"over_seeds": summary, "runs": results}, args.out)


if __name__ == "__main__":
    main()
