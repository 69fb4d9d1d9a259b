"""Which steps are wrong: a trained process model, the tree's own Monte Carlo estimate and an implicit reward model.

    python benchmarks/process_models.py --out process_models.json [--quick]

The small model solves chains, whose rule judges every step. A step is called wrong where its score is below a
threshold, which is chosen on some of the held-out tasks and used on the others. No model is fitted to the rule: the
process model learns from Monte Carlo estimates, the implicit one from verdicts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from common import arguments, base_folder, machine, say, table, write

if TYPE_CHECKING:
    from lyceum.core.tree import Node, Tree
    from lyceum.core.types import JudgingValue

DEFINITIONS = {
    "f1": "of the steps called wrong, against the rule; precision and recall beside it",
    "threshold": "steps of a lower score are called wrong; chosen on half of the held-out tasks, used on the others",
    "auc": "share of (right, wrong) pairs of steps whose right one has the higher score, ties half; all held-out tasks",
    "outcome_auc": "the same of whole trajectories, right and wrong by the verifier",
    "monte_carlo": "the share of right completions among a few drawn from the end of each step",
    "process": "a value model fitted to such shares, of training tasks; its score is the probability at the step's end",
    "process_gain": "the same model's score minus the one at the end of the step before, or of the prompt",
    "implicit": "beta times the log-ratio of the step's tokens, of a model fitted to verdicts of training tasks",
    "f1_of_all_wrong": "what calling every step wrong would have: a score that says nothing has about this",
    "tokens": "sampled to train on; for monte_carlo to score the held-out steps",
}
LEVELS = (4, 5, 6, 7, 8)
WIDTH = 4
LONGEST = 80


def main() -> None:
    parser = arguments(__doc__ or "")
    args = parser.parse_args()
    tasks, held_out, epochs = (32, 16, 2) if args.quick else (128, 32, 2)
    result = measured(str(base_folder(args.base)), tasks, held_out, epochs, args.threads)
    columns = ("f1", "precision", "recall", "auc", "outcome_auc", "tokens")
    rows = [(name, *(row.get(column) for column in columns)) for name, row in result["scores"].items()]
    table("wrong steps found", ("scores", *columns), rows)
    write({"machine": machine(), "definitions": DEFINITIONS, **result}, args.out)


def measured(folder: str, tasks: int, held_out: int, epochs: int, threads: int) -> dict[str, Any]:
    """Train both models on some tasks and score the judged steps of others."""
    import torch

    from lyceum.engine.embedded import EmbeddedEngine
    from lyceum.models.load import ModelSettings, load_policy
    from lyceum.papers.implicit_prm.value_implicit import Implicit
    from lyceum.runtime.in_process import InProcess
    from lyceum.tasks.chain import Chain
    from lyceum.utils.aio import run_async
    from lyceum.value.labels import examples_for, outcome_of
    from lyceum.value.measures import auc
    from lyceum.value.model import PathModel

    torch.set_num_threads(threads)
    policy = load_policy(ModelSettings(path=folder, device="cpu"))
    source = Chain.model_validate({"levels": LEVELS}).build("train", 0)
    runtime = InProcess(policy, EmbeddedEngine(policy), source.grader(), seed=0)

    def grown(first: int, n: int, rollout: Callable[..., Any]) -> list[Tree]:
        return run_async(runtime.run([source[first + i] for i in range(n)], rollout, key=str(first)))

    began = time.perf_counter()
    branched = grown(0, tasks, next_steps())
    plain = grown(tasks, tasks, samples())
    say(f"sampled {tasks} tasks twice")
    by_steps = [one for tree in branched for one in examples_for(tree, "mean-outcome", policy.decode, steps())]
    by_verdict = [one for tree in plain for one in examples_for(tree, "outcome", policy.decode, steps())]
    process = PathModel(loss="bce", lr=5e-4, epochs=epochs, batch=32).build(policy, seed=0)
    implicit = Implicit(loss="bce", lr=1e-4, epochs=epochs, batch=32).build(policy, seed=0)
    fitted = {"process": process.fit(by_steps), "implicit": implicit.fit(by_verdict)}
    say("trained both")
    tests = grown(2 * tasks, held_out, samples())
    known = Judged([leaf for tree in tests for leaf in tree.graded], policy.decode)
    estimate, spent = monte_carlo(runtime, known, tests)
    say(f"estimated {sum(map(len, estimate))} steps")
    scores = {
        "monte_carlo": estimate,
        "process": known.said(process),
        "process_gain": known.gains(process),
        "implicit": known.said(implicit),
    }
    right = [outcome_of(leaf) > 0.5 for leaf in known.leaves]
    models: dict[str, JudgingValue] = {"process": process, "implicit": implicit}
    areas = {name: auc([one.outcome for one in model.judge(known.paths)], right) for name, model in models.items()}
    outcomes = {name: None if area is None else round(area, 4) for name, area in areas.items()}
    tokens = {"process": sum(tree.sampled_tokens for tree in branched)}
    tokens |= {"process_gain": tokens["process"], "implicit": sum(tree.sampled_tokens for tree in plain)}
    return {
        "tasks": {"trained_on": tasks, "held_out": held_out, "trajectories": len(known.leaves), "steps": known.steps},
        "wrong_steps": known.wrong,
        "f1_of_all_wrong": round(2 * known.wrong / (known.steps + known.wrong), 4),
        "seconds": round(time.perf_counter() - began, 1),
        "fitted": {name: {k: round(v, 4) for k, v in of.items()} for name, of in fitted.items()},
        "scores": {
            name: {**known.detection(of), "outcome_auc": outcomes.get(name), "tokens": tokens.get(name, spent)}
            for name, of in scores.items()
        },
    }


class Judged:
    """Trajectories whose steps a rule judged, each once, and scores of these steps."""

    def __init__(self, leaves: Sequence[Node], decode: Callable[[Sequence[int]], str]) -> None:
        from lyceum.core.spans import TokenEnds
        from lyceum.core.types import MarkedPath
        from lyceum.value.labels import judged_ends

        ends = TokenEnds(decode)
        once = {tuple(leaf.path_tokens()): leaf for leaf in leaves if leaf.grade is not None and leaf.grade.steps}
        self.leaves = list(once.values())
        grades = [leaf.grade for leaf in self.leaves if leaf.grade is not None]
        self.right = [[step.reward > 0.5 for step in grade.steps] for grade in grades]
        self.paths = [
            MarkedPath(leaf.path_tokens(), len(leaf.root.tokens), judged_ends(leaf, grade.steps, ends))
            for leaf, grade in zip(self.leaves, grades, strict=True)
        ]

    @property
    def steps(self) -> int:
        return sum(map(len, self.right))

    @property
    def wrong(self) -> int:
        return sum(not good for of in self.right for good in of)

    def said(self, model: JudgingValue) -> list[list[float]]:
        return [list(judged.steps) for judged in model.judge(self.paths)]

    def gains(self, model: JudgingValue) -> list[list[float]]:
        """Each step's score minus that of the state before it, the prompt at first."""
        from lyceum.core.types import MarkedPath

        before = model.judge([MarkedPath(p.tokens, p.prompt, [p.prompt, *p.ends]) for p in self.paths])
        return [[b - a for a, b in zip(of.steps, of.steps[1:], strict=False)] for of in before]

    def detection(self, scores: Sequence[Sequence[float]]) -> dict[str, Any]:
        """Of the steps of every second task, at the threshold that is best for those of the others."""
        from lyceum.value.measures import auc, best_threshold, detected

        tasks = list(dict.fromkeys(tuple(path.tokens[: path.prompt]) for path in self.paths))
        side = [tasks.index(tuple(path.tokens[: path.prompt])) % 2 for path in self.paths]
        chosen, used = (
            (
                [x for of, part in zip(scores, side, strict=True) if part == half for x in of],
                [x for of, part in zip(self.right, side, strict=True) if part == half for x in of],
            )
            for half in (0, 1)
        )
        found = detected(*used, best_threshold(*chosen))
        area = auc([*chosen[0], *used[0]], [*chosen[1], *used[1]])
        of_steps = {} if found is None else {name: round(number, 4) for name, number in asdict(found).items()}
        return of_steps | {"auc": None if area is None else round(area, 4)}


def monte_carlo(runtime: Any, known: Judged, trees: Sequence[Tree]) -> tuple[list[list[float]], int]:
    """The share of right completions among ``WIDTH`` from the end of each judged step, and the tokens of all."""
    from lyceum.core.tree import is_correct
    from lyceum.core.types import Context, Origin, Sampling
    from lyceum.utils.aio import run_async
    from lyceum.utils.numbers import mean

    of_task: dict[tuple[int, ...], set[tuple[int, ...]]] = {}
    finished = {tuple(path.tokens): leaf for path, leaf in zip(known.paths, known.leaves, strict=True)}
    for path in known.paths:
        prompt = tuple(path.tokens[: path.prompt])
        of_task.setdefault(prompt, set()).update(tuple(path.tokens[:end]) for end in path.ends)
    value: dict[tuple[int, ...], float] = {}

    async def complete(context: Context, start: Node, n: int | None) -> list[Node]:
        drawn: list[Node] = []
        for prefix in sorted(of_task.get(tuple(start.tokens), ())):
            if prefix in finished:
                value[prefix] = float(is_correct(finished[prefix]))
                continue
            below = list(prefix[len(start.tokens) :])
            node = start.add(below, Origin.PREFIX, context.decode(below))
            leaves = await context.extend(node, WIDTH, Sampling(max_completion_tokens=LONGEST))
            await context.grade(leaves)
            value[prefix] = mean([float(is_correct(leaf)) for leaf in leaves])
            drawn += leaves
        return drawn

    grown = run_async(runtime.run([tree.task for tree in trees], complete, key="estimates"))
    found = [[value[tuple(path.tokens[:end])] for end in path.ends] for path in known.paths]
    return found, sum(tree.sampled_tokens for tree in grown)


def steps() -> Any:
    from lyceum.core.steps import Steps

    return Steps(by="marker", markers=("=",), tokens=16)


def next_steps() -> Any:
    from lyceum.core.types import Sampling
    from lyceum.papers.direct_advantage.rollout_next_steps import NextSteps

    sampling = Sampling(max_completion_tokens=LONGEST)
    return NextSteps(trajectories=1, width=WIDTH, others="finish", step=steps(), sampling=sampling).build()


def samples() -> Any:
    from lyceum.core.types import Sampling
    from lyceum.rollout.flat import Flat

    return Flat(samples=8, sampling=Sampling(max_completion_tokens=LONGEST)).build()


if __name__ == "__main__":
    main()
