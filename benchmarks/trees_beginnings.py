"""The suite ``beginnings`` of benchmarks/trees.py: on which tasks a search finds more than direct samples do.

Without training: of each rollout the share of tasks with a correct answer, beside that of direct samples of as many
tokens, by the model from which training on these tasks would begin.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import trees_learn
from common import base_folder, say, table

DEFINITIONS = {
    "tokens": "sampled per task",
    "some": "share of tasks with a correct trajectory, and its 95 % interval (Wilson)",
    "direct": "the same of so many direct samples as have these tokens together: pass@k, unbiased, of all samples",
    "right": "share of correct trajectories",
}
TASKS = 60
SEED = 200
"""Of the tasks and of the draws; the settings were chosen on others."""


@dataclass(frozen=True)
class Candidate:
    """Tasks with a model, how a trajectory is cut into steps, and how long it may be."""

    name: str
    tasks: Mapping[str, Any]
    step: Mapping[str, Any]
    most: int
    samples: int = 64
    """Direct samples per task."""
    warm_start: tuple[str, ...] = ()

    def rollouts(self) -> dict[str, dict[str, Any]]:
        shared = {"sampling": {"max_completion_tokens": self.most}}
        search = {"depth": 12, "step": self.step, **shared}
        mcts = {"kind": "mcts", "trajectories": 8, "width": 6, **search}
        return {
            "flat": {"kind": "flat", "samples": self.samples, **shared},
            "mcts": mcts,
            "mcts, deepest first": mcts | {"depth_weight": 1.0},
            "best-first": {
                "kind": "best-first",
                "trajectories": None,
                "max_nodes": 72,
                "width": 6,
                "alpha": 0.0,
                **search,
            },
            "segments": {"kind": "segments", "samples": 16, "segment_tokens": max(4, self.most // 10), **shared},
        }


def signs(level: int, **more: Any) -> Candidate:
    wrong = "at the last operation" if more else "at once"
    tasks = {"kind": "signs", "levels": [level], **more}
    warm = tuple(
        setting.replace("kind: signs", "kind: signs, shows: last") if more else setting
        for setting in trees_learn.SIGNS.warm_start
    )
    lines = {"by": "lines", "tokens": 12}
    return Candidate(f"{level} signs, a wrong one shows {wrong}", tasks, lines, 50, 128 if more else 256, warm)


CANDIDATES = (
    Candidate("chains of 8 to 10", {"kind": "chain", "levels": [8, 9, 10]}, {"by": "tokens", "tokens": 20}, 80),
    Candidate(
        "countdown, 3 numbers",
        {"kind": "countdown", "levels": [3], "max_number": 9, "max_target": 60, "prompt": "{numbers}={target}:"},
        {"by": "marker", "markers": [",", "<answer>"], "tokens": 24},
        70,
        warm_start=(
            "tasks={kind: countdown, levels: [3], max_number: 9, max_target: 60, prompt: '{numbers}={target}:'}",
            "steps=200",
            *trees_learn.SIGNS.warm_start[2:],
        ),
    ),
    signs(8, shows="last"),
    *(signs(level) for level in (2, 4, 6, 8)),
)


def beginnings(args: Any, result: dict[str, Any]) -> None:
    rows: list[dict[str, Any]] = []
    result["beginnings"] = {"definitions": DEFINITIONS, "tasks": 8 if args.quick else TASKS, "rows": rows}
    for candidate in CANDIDATES:
        name = f"{candidate.tasks['kind']}{'-last' if 'shows' in candidate.tasks else ''}"
        model = trees_learn.fine_tuned(name, candidate.warm_start, args) if candidate.warm_start else args.base
        rows += found(candidate, str(base_folder(model)), result["beginnings"]["tasks"])
    show(rows)


def found(candidate: Candidate, folder: str, count: int) -> list[dict[str, Any]]:
    from lyceum.core.component import kinds
    from lyceum.engine.embedded import EmbeddedEngine
    from lyceum.evaluation.intervals import wilson
    from lyceum.evaluation.statistics import pass_at_k
    from lyceum.models.load import ModelSettings, load_policy
    from lyceum.runtime.in_process import InProcess
    from lyceum.utils.aio import run_async

    policy = load_policy(ModelSettings(path=folder, device="cpu"))
    source = kinds("tasks")[candidate.tasks["kind"]].model_validate(candidate.tasks).build("train", SEED)
    tasks = [source[place] for place in range(count)]
    direct: list[list[bool]] = []
    per_sample = 1.0
    rows: list[dict[str, Any]] = []
    for name, given in candidate.rollouts().items():
        rollout = kinds("rollout")[given["kind"]].model_validate(given).build()
        runtime = InProcess(policy, EmbeddedEngine(policy), source.grader(), seed=SEED)
        trees = run_async(runtime.run(tasks, rollout, key="bench"))
        right = [[bool(grade.verdict) for _, grade, _ in tree.graded_with_outcome()] for tree in trees]
        tokens = fmean(tree.sampled_tokens for tree in trees)
        if name == "flat":
            direct, per_sample = right, tokens / candidate.samples
        k = max(1, min(candidate.samples, round(tokens / per_sample)))
        some = wilson(fmean(map(any, right)), count)
        row: dict[str, Any] = {"candidate": candidate.name, "rollout": name, "tokens": round(tokens, 1)}
        row |= {"trajectories": round(fmean(map(len, right)), 1)}
        row |= {"right": round(sum(map(sum, right)) / max(1, sum(map(len, right))), 5)}
        row |= {"some": {"mean": some.mean, "low": some.low, "high": some.high}, "k": k}
        row |= {"direct": round(fmean(pass_at_k(len(of), sum(of), k) for of in direct), 4)}
        say(f"{candidate.name}, {name}: {row['some']['mean']:.2f}, direct {row['direct']:.2f}, {row['tokens']} tokens")
        rows.append(row)
    return rows


def show(rows: Sequence[Mapping[str, Any]]) -> None:
    table(
        "tasks with a correct answer, %, and with direct samples of as many tokens",
        ["tasks", "rollout", "tokens", "found", "direct", "correct, %"],
        [
            [
                row["candidate"], row["rollout"], row["tokens"],
                "{mean:.0f} [{low:.0f}, {high:.0f}]".format(**{name: 100 * row["some"][name] for name in row["some"]}),
                f"{100 * row['direct']:.0f}", f"{100 * row['right']:.2f}",
            ]
            for row in rows
        ],
    )  # fmt: skip
