"""The learner's two layouts: each unique token once (tree) or padded rows. Equal loss and gradients, time, memory.

    python benchmarks/layout.py --out layout.json [--quick] [--models small smollm2 long]

Forests of random tokens whose rows share a known part of their tokens: flat groups under prompts of growing length, and
deep trees that branch at every level. One step of the real learner in each layout, in turns, and the gradients that it
left. ``long`` is one random layer of twelve heads on two over long rows, in the tree layout: queries in blocks against
masks of whole rows.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, cast

from common import (
    alternate,
    arguments,
    base_folder,
    machine,
    peak_mib,
    reset_peak,
    resident_mib,
    say,
    smollm2,
    table,
    write,
)

DEFINITIONS = {
    "shared": "of the rows' tokens, those that the tree layout does not forward again: 1 - unique / all",
    "layout_time_ratio": "the tree's seconds over the rows', median over pairs (below 1: the tree is faster)",
    "memory_ratio": "the tree's peak memory in the step over the rows', each above what was resident before it",
    "grad_relative_error": "|gradient of tree - gradient of rows| / |gradient of rows|, over all weights, float32",
    "loss_relative_error": "|loss of tree - loss of rows| / |loss of rows|",
    "long": "one forward and backward pass: peak memory above what was resident before, CPU seconds, and how far the "
    "gradients of blocks and whole masks are apart, as in grad_relative_error",
    "cost_of_a_unique_token": "tree seconds a unique token over rows seconds a padded token: the tree is faster where "
    "unique tokens times this are fewer than padded ones",
}


@dataclass(frozen=True)
class Shape:
    """Trees of one kind: ``branches`` at each of ``levels`` below the prompt, each node ``run`` tokens long."""

    kind: str
    prompt: int
    run: int
    branches: int
    levels: int = 1

    @property
    def rows(self) -> int:
        return self.branches**self.levels

    @property
    def row_tokens(self) -> int:
        return self.rows * (self.prompt + self.levels * self.run)

    def __str__(self) -> str:
        if self.levels == 1:
            return f"{self.branches} x {self.run} tokens under {self.prompt}"
        return f"depth {self.levels}, {self.branches} branches of {self.run} tokens under {self.prompt}"


SHAPES = (
    Shape("flat", 4, 64, 1),
    Shape("flat", 6, 64, 8),
    Shape("flat", 24, 64, 8),
    Shape("flat", 48, 64, 8),
    Shape("flat", 86, 64, 8),
    Shape("flat", 200, 64, 8),
    Shape("flat", 512, 32, 8),
    Shape("flat", 480, 16, 32),
    Shape("deep", 24, 24, 2, 3),
    Shape("deep", 32, 32, 2, 4),
    Shape("deep", 32, 32, 3, 3),
    Shape("deep", 32, 24, 2, 6),
)


LONG = (Shape("flat", 64, 8128, 1), Shape("flat", 64, 2048, 8))


def main() -> None:
    parser = arguments(__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--models", nargs="+", choices=("small", "smollm2", "long"), default=["small", "smollm2"])
    parser.add_argument("--pairs", type=int, help="steps of each layout that count")
    parser.add_argument("--tokens", type=int, help="row tokens of a step, of one tree at least")
    options = parser.parse_args()
    import torch

    torch.set_num_threads(options.threads)
    result: dict[str, Any] = {"benchmark": "layout", "quick": options.quick, "definitions": DEFINITIONS}
    result |= {"machine": machine(), "rows": [], "crossover": {}}
    for name in options.models:
        if name == "long":
            result["long"] = [in_blocks(shape) for shape in (LONG[1:] if options.quick else LONG)]
            write(result, options.out)
            continue
        small = name == "small"
        folder = base_folder(options.base) if small else smollm2(options.smollm2)
        pairs = options.pairs or (2 if options.quick else 7 if small else 3)
        usual = (4096 if options.quick else 16384) if small else (600 if options.quick else 4096)
        shapes = SHAPES[::3] if options.quick else SHAPES
        measure(name, folder, shapes, options.tokens or usual, pairs, result)
        write(result, options.out)
    show(result)


def measure(name: str, folder: Path, shapes: Sequence[Shape], tokens: int, pairs: int, result: dict[str, Any]) -> None:
    """Every shape with about so many row tokens a step."""
    from lyceum.models.load import ModelSettings, load_policy

    policy = load_policy(ModelSettings(path=str(folder), device="cpu"))
    found: list[dict[str, Any]] = []
    for shape in shapes:
        forest = build(shape, max(1, tokens // shape.row_tokens), policy.output.weight.shape[0])
        row = {"model": name, "shape": str(shape), "kind": shape.kind} | compare(policy, forest, pairs)
        say(
            f"{name}, {row['shared']:.0%} shared ({shape}): tree takes {row['layout_time_ratio']:.2f} of the rows' "
            f"time, gradients differ by {row['grad_relative_error']:.1e}"
        )
        found.append(row)
    found.sort(key=lambda row: row["shared"])
    result["rows"] += found
    result["crossover"][name] = crossover(found)


def build(shape: Shape, trees: int, vocabulary: int) -> Any:
    """Random trees as a graded forest. Seeded: a shape is the same forest every time."""
    from lyceum.core.forest import build_forest
    from lyceum.core.tree import Node, Tree
    from lyceum.core.types import Continuation, Grade, Origin, Task

    rng = random.Random(str(shape))

    def tokens(count: int) -> list[int]:
        return [rng.randrange(3, vocabulary) for _ in range(count)]

    def grow(node: Node, level: int) -> None:
        if level == shape.levels:
            node.grade = Grade(rng.random())
            return
        for _ in range(shape.branches):
            drawn = tokens(shape.run)
            logprob = [-rng.random() for _ in drawn]
            grow(node.add_drawn(Continuation(drawn, logprob, logprob, [0] * len(drawn), "stop")), level + 1)

    def tree(number: int) -> Tree:
        root = Node(None, tokens(shape.prompt), Origin.PROMPT)
        grow(root, 0)
        return Tree(Task(str(number), ()), [root])

    return build_forest([tree(number) for number in range(trees)])


def compare(policy: Any, forest: Any, pairs: int) -> dict[str, Any]:
    """Time, memory, loss and gradients of one forest in both layouts."""
    import torch

    from lyceum.core.types import Credited

    # An advantage for every token of every row, unlike in neighbouring rows: nothing is skipped, and a value gathered
    # to the wrong row would show.
    generator = torch.Generator().manual_seed(0)
    rows = forest.rows()
    credited = Credited(torch.randn(rows.index.shape, generator=generator) * forest.trainable(rows))
    steps = {layout: stepper(policy, forest, credited, layout) for layout in ("tree", "rows")}
    gradients, losses, memory = {}, {}, {}
    for layout, step in steps.items():
        reset_peak()
        before = resident_mib()
        losses[layout] = step()["loss"]
        memory[layout] = peak_mib() - before
        gradients[layout] = [p.grad.clone() for p in policy.module.parameters()]
    apart = sum(float((a - b).double().square().sum()) for a, b in zip(*gradients.values(), strict=True)) ** 0.5
    size = sum(float(b.double().square().sum()) for b in gradients["rows"]) ** 0.5
    del gradients
    tree, padded = alternate(steps["tree"], steps["rows"], pairs=pairs)
    ratios = sorted(a / b for a, b in zip(tree, padded, strict=True))
    unique, laid_out = forest.n_tokens, rows.index.numel()
    return {
        "shared": round(forest.shared, 4),
        "unique_tokens": unique,
        "padded_tokens": laid_out,
        "layout_time_ratio": round(median(ratios), 4),
        "layout_time_ratio_range": [round(ratios[0], 4), round(ratios[-1], 4)],
        "memory_ratio": round(memory["tree"] / max(1.0, memory["rows"]), 4),
        "memory_mib": {layout: round(value, 1) for layout, value in memory.items()},
        "seconds": {"tree": round(median(tree), 4), "rows": round(median(padded), 4)},
        "grad_relative_error": apart / size,
        "loss_relative_error": abs(losses["tree"] - losses["rows"]) / abs(losses["rows"]),
        "cost_of_a_unique_token": round(median(ratios) * laid_out / unique, 4),
    }


def stepper(policy: Any, forest: Any, credited: Any, layout: str) -> Callable[[], dict[str, float]]:
    """One step of the learner. Its learning rate moves nothing: all steps start from the same weights."""
    from lyceum.learner.local import LocalConfig
    from lyceum.objective.ppo_clip import PPOClip

    settings = LocalConfig(lr=1e-30, max_grad_norm=1e9, layout=layout, micro_batch_tokens=10**9)  # pyright: ignore
    learner = settings.build(policy, total_steps=1 << 30, needs=frozenset())
    objective = PPOClip.model_validate({}).build()
    return lambda: learner.step(forest, credited, objective)


def in_blocks(shape: Shape) -> dict[str, Any]:
    """A long forest under whole masks and with queries in blocks."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from lyceum.core.types import Credited
    from lyceum.models import tree_attention
    from lyceum.models.policy import Policy
    from lyceum.models.scratch import character_tokenizer

    sizes = {"hidden_size": 768, "intermediate_size": 2048, "num_attention_heads": 12, "num_key_value_heads": 2}
    torch.manual_seed(0)
    limits = {"num_hidden_layers": 1, "vocab_size": 512, "max_position_embeddings": 16384}
    policy = Policy(LlamaForCausalLM(LlamaConfig(**cast(Any, sizes | limits))), character_tokenizer(context=16384))
    forest = build(shape, 1, 512)
    credited = Credited(torch.ones(forest.rows().index.shape) * forest.trainable(forest.rows()))
    found: dict[str, Any] = {"shape": str(shape)}
    gradients: list[torch.Tensor] = []
    usual = tree_attention.MASK_ELEMENTS
    for name, elements in (("blocks", usual), ("whole", 1 << 62)):
        tree_attention.MASK_ELEMENTS = elements
        step = stepper(policy, forest, credited, "tree")
        reset_peak()
        before, began = resident_mib(), time.process_time()
        step()
        found[name] = {"mib": round(peak_mib() - before, 1), "cpu_seconds": round(time.process_time() - began, 2)}
        gradients.append(torch.cat([p.grad.flatten() for p in policy.module.parameters() if p.grad is not None]))
        say(f"{shape}, {name}: {found[name]}")
    tree_attention.MASK_ELEMENTS = usual
    blocks, whole = gradients
    return found | {"grad_relative_error": float((blocks - whole).norm() / whole.norm())}


def crossover(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """From where on the tree is faster, by share of shared tokens and by what a unique token costs it."""
    slower = [row["shared"] for row in rows if row["layout_time_ratio"] > 1]
    faster = [row["shared"] for row in rows if row["layout_time_ratio"] <= 1]
    costs = sorted(row["cost_of_a_unique_token"] for row in rows)
    return {
        "slower_up_to_shared": max(slower, default=None),
        "faster_from_shared": min((s for s in faster if s > max(slower, default=-1.0)), default=None),
        "cost_of_a_unique_token": {"median": median(costs), "min": costs[0], "max": costs[-1]},
    }


def show(result: Mapping[str, Any]) -> None:
    columns = ("model, trees", "shared", "time, of rows'", "memory, of rows'", "seconds tree / rows")
    columns += ("gradients differ by", "cost of a unique token")
    table(
        "tree layout against padded rows",
        columns,
        [
            (
                f"{row['model']}: {row['shape']}",
                f"{row['shared']:.0%}",
                f"{row['layout_time_ratio']:.2f}",
                f"{row['memory_ratio']:.2f}",
                f"{row['seconds']['tree']:.3f} / {row['seconds']['rows']:.3f}",
                f"{row['grad_relative_error']:.1e}",
                f"{row['cost_of_a_unique_token']:.2f}",
            )
            for row in result["rows"]
        ],
    )
    for name, found in result["crossover"].items():
        cost = found["cost_of_a_unique_token"]
        print(
            f"{name}: the tree is faster from {found['faster_from_shared']} shared on; a unique token costs it "
            f"{cost['median']:.2f} ({cost['min']:.2f} to {cost['max']:.2f}) of a padded one"
        )


if __name__ == "__main__":
    main()
