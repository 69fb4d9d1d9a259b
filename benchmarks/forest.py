"""How long it takes to lay finished trees flat: processor time of ``build_forest`` and of ``Forest.rows`` per token.

    python benchmarks/forest.py --out forest.json [--quick]

Half a minute on one core. Trees of random tokens, the same every time, in the shapes that rollouts make.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from common import arguments, machine, say, table, write

from lyceum.core.forest import build_forest
from lyceum.core.tree import Node, Tree, graft
from lyceum.core.types import Continuation, Grade, Origin, Task

DEFINITIONS = {
    "tokens": "of all nodes that a graded trajectory goes through, each node once: what build_forest reads",
    "unique": "tokens of the forest: where samples begin alike these are fewer",
    "build_us": "microseconds of processor time per token (see tokens) of build_forest, the best of the repetitions",
    "rows_us": "the same of Forest.rows, which lays trajectories out as padded rows",
}


def main() -> None:
    options = arguments(__doc__ or "").parse_args()
    torch.set_num_threads(1)
    size, repetitions = (1, 3) if options.quick else (4, 7)
    result: dict[str, Any] = {"benchmark": "forest", "quick": options.quick, "definitions": DEFINITIONS}
    result |= {"machine": machine(), "rows": []}
    for name, shape in SHAPES.items():
        trees = shape(random.Random(name), size)
        result["rows"].append({"shape": name} | measure(trees, repetitions))
        say(f"{name}: {result['rows'][-1]['build_us']} us per token")
    write(result, options.out)
    columns = ("shape", "nodes", "tokens", "unique", "build_us", "rows_us")
    table("microseconds per token", columns, [[row[column] for column in columns] for row in result["rows"]])


def measure(trees: Sequence[Tree], repetitions: int) -> dict[str, Any]:
    """What one set of trees takes, in processor time: the machine may have other work."""
    forest = build_forest(trees)
    read = {id(node): len(node.tokens) for tree in trees for leaf in tree.graded for node in leaf.path()}
    tokens = sum(read.values())

    def microseconds(call: Callable[[], Any]) -> float:
        return round(min(processor_seconds(call) for _ in range(repetitions)) / tokens * 1e6, 3)

    built = microseconds(lambda: build_forest(trees))
    # ``select`` gives a new forest, whose rows nobody has asked for yet.
    whole = torch.arange(forest.n_rows)
    fresh = [forest.select(whole) for _ in range(repetitions)]
    rows = microseconds(lambda: fresh.pop().rows())
    return {
        "nodes": len(read),
        "tokens": tokens,
        "unique": forest.n_tokens,
        "rows": forest.n_rows,
        "build_us": built,
        "rows_us": rows,
    }


def processor_seconds(call: Callable[[], Any]) -> float:
    began = time.process_time()
    call()
    return time.process_time() - began


# Trees --------------------------------------------------------------------------------------------------------------


def drawn(rng: random.Random, tokens: int) -> Continuation:
    """What an engine gives: lists, log-probabilities that went through float32."""
    logprob = [-rng.randrange(1 << 20) / (1 << 16) for _ in range(tokens)]
    return Continuation(random_tokens(rng, tokens), logprob, list(logprob), [3] * tokens, "stop")


def random_tokens(rng: random.Random, count: int) -> list[int]:
    return [rng.randrange(100_000) for _ in range(count)]


def prompted(rng: random.Random, tokens: int = 100) -> Tree:
    return Tree(Task(str(rng.random()), ()), [Node(None, random_tokens(rng, tokens), Origin.PROMPT)])


def continued(node: Node, rng: random.Random, tokens: int) -> Node:
    """A child that is a graded trajectory for as long as nothing is drawn below it."""
    child = node.add_drawn(drawn(rng, tokens))
    child.grade = Grade(float(rng.random() < 0.5))
    return child


def group(rng: random.Random, samples: int, tokens: int) -> Tree:
    """Independent samples of one prompt, of ``tokens`` tokens in the mean, which part at their first tokens."""
    tree = prompted(rng)
    for _ in range(samples):
        continued(tree.root, rng, rng.randint(tokens // 2, tokens * 3 // 2))
    return tree


def segments(rng: random.Random, depth: int, tokens: int = 30) -> Tree:
    """Segments of 30 tokens: the path branches in two at every eighth."""
    tree = prompted(rng)
    open_nodes = [tree.root]
    for level in range(depth):
        branches = 2 if level % 8 == 0 else 1
        open_nodes = [continued(node, rng, tokens) for node in open_nodes for _ in range(branches)]
    return tree


def search(rng: random.Random, nodes: int) -> Tree:
    """Many short nodes, each below a random one."""
    tree = prompted(rng)
    grown = [tree.root]
    for _ in range(nodes):
        grown.append(continued(rng.choice(grown), rng, rng.randint(1, 20)))
    return tree


def alike(rng: random.Random, samples: int, tokens: int) -> Tree:
    """Samples that are another one up to a random place: a model that is sure of itself."""
    tree = prompted(rng)
    made = [drawn(rng, tokens)]
    while len(made) < samples:
        made.append(parted(rng.choice(made), drawn(rng, tokens), rng.randrange(tokens)))
    for continuation in made:
        tree.root.add_drawn(continuation).grade = Grade(1.0)
    return tree


def staircase(rng: random.Random, samples: int, tokens: int) -> Tree:
    """Each sample parts from the one before a little later than that one did: every path goes through all before."""
    tree = prompted(rng)
    last = drawn(rng, tokens)
    for place in range(samples):
        tree.root.add_drawn(last).grade = Grade(1.0)
        last = parted(last, drawn(rng, tokens), (place + 1) * tokens // samples)
    return tree


def parted(first: Continuation, second: Continuation, at: int) -> Continuation:
    """``first`` up to a place and ``second`` from there."""
    return Continuation(
        tokens=[*first.tokens[:at], *second.tokens[at:]],
        behaviour_logprob=[*first.behaviour_logprob[:at], *second.behaviour_logprob[at:]],
        model_logprob=[*first.model_logprob[:at], *second.model_logprob[at:]],
        version=[*first.version[:at], *second.version[at:]],
        finish="stop",
    )


def hinted(rng: random.Random, samples: int, tokens: int) -> Tree:
    """Half of the samples under the task's own prompt, a quarter under a hint, and a quarter grafted from there."""
    tree = prompted(rng)
    hint = tree.add_prompt(tree.root.tokens[:50] + random_tokens(rng, 100))
    for place in range(samples):
        leaf = continued(tree.root if place % 2 else hint, rng, tokens)
        if place % 4 == 0:
            graft(leaf, tree.root).finish = "stop"
    return tree


def many(tree: Callable[..., Tree], trees: int, *shape: int) -> Callable[[random.Random, int], list[Tree]]:
    return lambda rng, size: [tree(rng, *shape) for _ in range(trees * size)]


SHAPES: dict[str, Callable[[random.Random, int], list[Tree]]] = {
    "groups of 8, 200 tokens": many(group, 16, 8, 200),
    "groups of 8, 1000 tokens": many(group, 4, 8, 1000),
    "groups of 8, 4000 tokens": many(group, 1, 8, 4000),
    "segments of 30, depth 32": many(segments, 3, 32),
    "search, 1000 nodes of 1 to 20": many(search, 3, 1000),
    "alike, 8 of 2000": many(alike, 2, 8, 2000),
    "alike, 64 of 500": many(alike, 1, 64, 500),
    "alike, 512 of 500": lambda rng, size: [alike(rng, 128 * size, 500)],
    "staircase, 512 of 1000": lambda rng, size: [staircase(rng, 128 * size, 1000)],
    "hinted and grafted, 8 of 400": many(hinted, 8, 8, 400),
}


if __name__ == "__main__":
    main()
