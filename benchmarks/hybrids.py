"""Hybrids over token trees, their states branching, against rows: equal gradients and samples, CPU time, memory.

    python benchmarks/hybrids.py --out hybrids.json [--quick]

Eight samples of a prompt, forward and backward, by small models with random weights in float32. Rows are forwarded as a
model is trained whose states cannot branch: whole, by transformers. Then eight samples are drawn, and continued: from
states that are kept by node, and by transformers' own cache of rows, even where a trial does not find that exact. Each
is measured in a process of its own.
"""

from __future__ import annotations

import copy
import multiprocessing
import random
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from statistics import median
from typing import Any

from common import arguments, machine, peak_mib, reset_peak, resident_mib, say, table, write

SAMPLES, PROMPT, LEAST, MOST = 8, 500, 60, 140
"""Samples of a prompt, its tokens, and those of a completion: fewest and most."""
DRAWN, TURN = 100, 20
"""Tokens that are drawn of each sample, and of each answer to it; and those of the turn between."""
DEFINITIONS = {
    "cpu_seconds_ratio": "CPU seconds of a forward and backward over the tree over those over rows",
    "memory_ratio": "peak memory above what was resident before it, over the tree over that over rows",
    "grad_relative_error": "|gradient of tree - gradient of rows| / |gradient of rows|, over all weights, float32",
    "logprob_difference": "largest |difference| of a completion's token's log-probability, nats",
    "sampling_cpu_ratio": "CPU seconds of drawing the samples, from states over from rows",
    "turn_cpu_ratio": "CPU seconds of drawing the answers to the turns that continue them, from states over from rows",
    "sampling_memory_ratio": "peak memory of both above what was resident before, from states over from rows",
    "same_draws": "share of the tokens up to which samples are the same; seeds are, rounding is not",
}


def models() -> dict[str, Callable[[], Any]]:
    """Configurations of small models by what they are like."""
    from transformers import BambaConfig, Lfm2Config, Qwen3_5TextConfig

    small: dict[str, Any] = {
        "vocab_size": 512, "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 4,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 2048, "bos_token_id": None,
        "eos_token_id": 1, "pad_token_id": 0,
    }  # fmt: skip
    return {
        "Qwen3.5": lambda: Qwen3_5TextConfig(
            **small, head_dim=64, layer_types=[*["linear_attention"] * 3, "full_attention"], linear_num_key_heads=4,
            linear_num_value_heads=8, linear_key_head_dim=32, linear_value_head_dim=32,
        ),
        "LFM2": lambda: Lfm2Config(**small, layer_types=["conv", "conv", "full_attention", "conv"]),
        "Bamba": lambda: BambaConfig(
            **small, attn_layer_indices=[3], mamba_n_heads=8, mamba_d_head=64, mamba_d_state=32, mamba_chunk_size=64
        ),
    }  # fmt: skip


def policies(config: Any) -> dict[str, Any]:
    """One model, trained over token trees and over rows."""
    import torch
    from transformers import AutoModelForCausalLM

    from lyceum.models.policy import Policy
    from lyceum.models.rows import ByRows
    from lyceum.models.scratch import character_tokenizer
    from lyceum.models.trial import logits_alone, policy_of

    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    tokenizer = character_tokenizer(context=2048)
    rows = Policy(copy.deepcopy(model), tokenizer, by_rows=ByRows("it is compared with", caches=True))
    trees = policy_of(model, tokenizer, logits_alone(model))
    if trees.states is None:
        raise SystemExit(f"{type(model).__name__} does not run over token trees")
    return {"tree": trees, "rows": rows}


def forest_of(prompt: int) -> Any:
    """A prompt and its completions, of random tokens."""
    from lyceum.core.forest import build_forest
    from lyceum.core.tree import Node, Tree
    from lyceum.core.types import Continuation, Grade, Origin, Task

    draw = random.Random(0)

    def some(count: int) -> list[int]:
        return [draw.randrange(3, 512) for _ in range(count)]

    root = Node(None, some(prompt), Origin.PROMPT)
    for _ in range(SAMPLES):
        tokens = some(draw.randint(LEAST, MOST))
        nats = [-1.0] * len(tokens)
        drawn = Continuation(tokens, nats, nats, [0] * len(tokens), "stop")
        root.add_drawn(drawn).grade = Grade(0.0)
    return build_forest([Tree(Task("prompt", ()), [root])])


def measured(policy: Any, forest: Any, layout: Any, repeats: int) -> dict[str, Any]:
    """CPU seconds and peak memory of a forward and backward, and what it computes."""
    import torch

    from lyceum.core.types import Origin
    from lyceum.learner._forward import row_outputs

    torch.set_num_threads(1)
    rows = forest.rows()
    wanted = rows.present & (rows.gather(forest.origin) == int(Origin.POLICY))
    seconds: list[float] = []
    memory: list[float] = []
    logprob = torch.zeros(0)
    for _ in range(repeats):
        policy.module.zero_grad()
        reset_peak()
        before, began = resident_mib(), time.process_time()
        logprob = row_outputs(policy, forest, wanted, layout=layout).logprob
        (-logprob.sum() / int(wanted.sum())).backward()
        seconds.append(time.process_time() - began)
        memory.append(peak_mib() - before)
    gradient = {name: p.grad.numpy() for name, p in policy.causal.named_parameters() if p.grad is not None}
    return {
        "seconds": median(seconds), "mib": median(memory), "logprob": logprob.detach().numpy(), "gradient": gradient,
    }  # fmt: skip


def sampled(policy: Any, prompt: int, repeats: int) -> dict[str, Any]:
    """CPU seconds and peak memory of samples and of what continues them, and what is drawn."""
    import asyncio

    import torch

    from lyceum.core.types import Request, Sampling
    from lyceum.engine.embedded import EmbeddedConfig
    from lyceum.utils.aio import run_async

    torch.set_num_threads(1)
    policy.stop_ids = frozenset()  # all are of one length
    engine = EmbeddedConfig.model_validate({}).build(policy)
    draw, sampling = random.Random(0), Sampling(max_completion_tokens=DRAWN)
    root, turn = ([draw.randrange(3, 512) for _ in range(count)] for count in (prompt, TURN))
    seconds: dict[str, list[float]] = {"samples": [], "turns": []}
    memory: list[float] = []
    drawn: list[Any] = []

    async def extended(prefixes: list[list[int]], seeds: tuple[int, ...]) -> list[Any]:
        asked = (engine.extend(Request(prefix, seeds, sampling, keep=True)) for prefix in prefixes)
        return [one for samples in await asyncio.gather(*asked) for one in samples]

    for version in range(repeats):
        run_async(engine.load(policy.module, version))  # what was kept is forgotten
        reset_peak()
        before, began = resident_mib(), time.process_time()
        drawn = run_async(extended([root], tuple(range(SAMPLES))))
        between = time.process_time()
        drawn += run_async(extended([[*root, *one.tokens, *turn] for one in drawn], (0,)))
        seconds["samples"].append(between - began)
        seconds["turns"].append(time.process_time() - between)
        memory.append(peak_mib() - before)
    tokens = [one.tokens for one in drawn]
    return {"seconds": {name: median(of) for name, of in seconds.items()}, "mib": median(memory), "tokens": tokens}


def _trained(config: Any, layout: str, prompt: int, repeats: int) -> dict[str, Any]:
    return measured(policies(config)[layout], forest_of(prompt), layout, repeats)


def _sampled(config: Any, layout: str, prompt: int, repeats: int) -> dict[str, Any]:
    return sampled(policies(config)[layout], prompt, repeats)


def _child(what: Callable[..., Any], given: tuple[Any, ...], out: Connection) -> None:
    out.send(what(*given))


def of_each_layout(what: Callable[..., Any], make: Callable[[], Any], prompt: int, repeats: int) -> tuple[Any, Any]:
    """What is measured over trees and over rows, each in a process of its own."""
    found: list[Any] = []
    context = multiprocessing.get_context("fork")
    for layout in ("tree", "rows"):
        here, there = context.Pipe(duplex=False)
        process = context.Process(target=_child, args=(what, (make(), layout, prompt, repeats), there))
        process.start()
        there.close()
        found.append(here.recv())
        process.join()
    return found[0], found[1]


def compared(make: Callable[[], Any], prompt: int, repeats: int) -> dict[str, Any]:
    """A row of the result."""
    import numpy as np

    tree, rows = of_each_layout(_trained, make, prompt, repeats)
    states, cache = of_each_layout(_sampled, make, prompt, repeats)
    same = [_same(*pair) for pair in zip(states["tokens"][:SAMPLES], cache["tokens"][:SAMPLES], strict=True)]
    apart = sum(float(np.square(tree["gradient"][name] - g).sum()) for name, g in rows["gradient"].items())
    whole = sum(float(np.square(g).sum()) for g in rows["gradient"].values())
    return {
        "cpu_seconds": {"tree": round(tree["seconds"], 3), "rows": round(rows["seconds"], 3)},
        "mib": {"tree": round(tree["mib"], 1), "rows": round(rows["mib"], 1)},
        "cpu_seconds_ratio": round(tree["seconds"] / rows["seconds"], 3),
        "memory_ratio": round(tree["mib"] / rows["mib"], 3),
        "grad_relative_error": (apart / whole) ** 0.5,
        "logprob_difference": float(np.abs(tree["logprob"] - rows["logprob"]).max()),
        "sampling_cpu_seconds": {"states": states["seconds"], "rows": cache["seconds"]},
        "sampling_mib": {"states": round(states["mib"], 1), "rows": round(cache["mib"], 1)},
        "sampling_cpu_ratio": round(states["seconds"]["samples"] / cache["seconds"]["samples"], 3),
        "turn_cpu_ratio": round(states["seconds"]["turns"] / cache["seconds"]["turns"], 3),
        "sampling_memory_ratio": round(states["mib"] / cache["mib"], 3),
        "same_draws": sum(same) / SAMPLES / DRAWN,
    }


def _same(one: list[int], other: list[int]) -> int:
    """Tokens that two completions begin with both."""
    return next((n for n, (a, b) in enumerate(zip(one, other, strict=True)) if a != b), len(one))


def main() -> None:
    options = arguments(__doc__.splitlines()[0] if __doc__ else "").parse_args()
    prompt, repeats = (60, 1) if options.quick else (PROMPT, 3)
    result: dict[str, Any] = {"benchmark": "hybrids", "quick": options.quick, "definitions": DEFINITIONS}
    result |= {"machine": machine(), "samples": SAMPLES, "prompt": prompt, "completion": [LEAST, MOST], "models": {}}
    for name, make in models().items():
        if options.quick and name != "LFM2":
            continue
        row = result["models"][name] = compared(make, prompt, repeats)
        say(
            f"{name}-like: the tree takes {row['cpu_seconds_ratio']:.2f} of the rows' CPU time and "
            f"{row['memory_ratio']:.2f} of their memory, gradients differ by {row['grad_relative_error']:.1e}; samples "
            f"{row['sampling_cpu_ratio']:.2f}, their turns {row['turn_cpu_ratio']:.2f} of the time, both "
            f"{row['sampling_memory_ratio']:.2f} of the memory"
        )
        write(result, options.out)
    columns = ["like", "time", "memory", "gradient", "samples", "their turns", "their memory"]
    lines = [
        [
            name,
            row["cpu_seconds_ratio"],
            row["memory_ratio"],
            f"{row['grad_relative_error']:.1e}",
            row["sampling_cpu_ratio"],
            row["turn_cpu_ratio"],
            row["sampling_memory_ratio"],
        ]
        for name, row in result["models"].items()
    ]
    table(f"{SAMPLES} samples of a prompt of {prompt} tokens: tree over rows", columns, lines)


if __name__ == "__main__":
    main()
