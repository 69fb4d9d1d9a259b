"""What a run is told to take, in memory and on disk, against what it took: ten recipes on three random models.

    python benchmarks/sizes.py --out benchmarks/results/sizes.json

About half an hour. Each run is a process of its own, of two steps with a checkpoint between them. The models are random
(Qwen3's architecture), so that nearly every completion is as long as it may be, which is what is told. What is in
``--out`` already is not measured again.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import common

MODELS: dict[str, dict[str, Any]] = {
    "5M": {
        "hidden_size": 256,
        "intermediate_size": 704,
        "num_hidden_layers": 6,
        "num_attention_heads": 8,
        "head_dim": 32,
    },
    "32M": {
        "hidden_size": 512,
        "intermediate_size": 1408,
        "num_hidden_layers": 8,
        "num_attention_heads": 8,
        "head_dim": 64,
    },
    "101M": {
        "hidden_size": 768,
        "intermediate_size": 2304,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "head_dim": 64,
    },
}
WORDS = {"5M": 1024, "32M": 8192, "101M": 24_576}
"""Vocabularies. The second model's embedding is not tied to its output."""
RECIPES = (
    *(
        "grpo",
        "dapo collect.keep=with-gradient",
        "dr-grpo",
        "rloo",
        "gspo",
        "ppo",
        "dpo",
        "reinforce-plus-plus",
        "sft",
        "treerl",
    ),
    *("grpo model.lora=true", "grpo learner.gradient_checkpointing=true"),
)
TASKS, COMPLETION = 4, 64
DEFINITIONS = {
    "told_mib, measured_mib": "peak resident memory of the process: told before a model is loaded, and its VmHWM",
    "told_bytes, measured_bytes": "disk: told, and the sum of the sizes of the files in the finished run's folder",
    "memory, disk": "told / measured",
    "phase": "the phase that was told to take most",
    "above_libraries": "told / measured, both without what the process held before it loaded a model",
}


def make_model(name: str, folder: Path) -> Path:
    """A random model of these sizes and a tokenizer of as many words, in a folder."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    from lyceum.models.scratch import character_tokenizer

    place = folder / name
    if place.exists():
        return place
    tokenizer = character_tokenizer()
    tokenizer.add_tokens([f"<{n}>" for n in range(WORDS[name] - len(tokenizer))])
    tied = {"num_key_value_heads": 4, "vocab_size": WORDS[name], "tie_word_embeddings": name != "32M"}
    end = {"eos_token_id": 1, "pad_token_id": 0, "bos_token_id": None, "max_position_embeddings": 2048}
    torch.manual_seed(0)
    Qwen3ForCausalLM(Qwen3Config(**MODELS[name], **tied, **end)).save_pretrained(place)
    tokenizer.save_pretrained(place)
    return place


def odd(completion: str) -> float:
    """The share of characters with an odd code: every group has a gradient."""
    return sum(ord(letter) % 2 for letter in completion) / max(1, len(completion))


def trained(arm: str, model: str, output: str) -> dict[str, Any]:
    """What was told of a run, and what was measured of it and of this process."""
    import torch

    import lyceum

    torch.set_num_threads(1)
    recipe, *keys = arm.split()
    found: dict[str, Any] = {}

    def began(threads: int, evaluated: int, sizes: Any) -> None:
        found.update(
            told_mib=sizes.peak / common.MIB,
            phase=sizes.peak_phase,
            told_bytes=sum(sizes.disk.values()),
            libraries_mib=sizes.memory["load"]["libraries"] / common.MIB,
            parts={phase: dict(parts) for phase, parts in sizes.memory.items()},
        )

    keys += [f"model.path={model}", "steps=2", f"tasks_per_step={TASKS}", "checkpoint_every=1", "evaluate.n=4"]
    keys += ["evaluate.samples=2", "rollouts_every=1"]
    if recipe != "sft":
        keys.append(f"rollout.sampling.max_completion_tokens={COMPLETION}")
    keys.append(f"evaluate.sampling.max_completion_tokens={COMPLETION}")
    run = lyceum.train(recipe, keys, reward=odd, output=output, name="run", progress="silent", began=began, threads=1)
    found["measured_mib"] = common.peak_mib()
    found["measured_bytes"] = sum(file.stat().st_size for file in run.path.rglob("*") if file.is_file())
    return found


def compared(found: dict[str, Any]) -> dict[str, Any]:
    apart = found["told_mib"] - found["libraries_mib"], found["measured_mib"] - found["libraries_mib"]
    return found | {
        "memory": round(found["told_mib"] / found["measured_mib"], 3),
        "above_libraries": round(apart[0] / apart[1], 3),
        "disk": round(found["told_bytes"] / found["measured_bytes"], 3),
    }


def main() -> None:
    parser = common.arguments(__doc__ or "")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--arms", nargs="+", default=list(RECIPES), help="a recipe, and keys after it")
    args = parser.parse_args()
    models, arms = (args.models[:1], args.arms[:1]) if args.quick else (args.models, args.arms)
    result: dict[str, Any] = {"machine": common.machine(), "definitions": DEFINITIONS, "runs": []}
    if args.out and args.out.exists():
        result["runs"] = json.loads(args.out.read_text())["runs"]
    with tempfile.TemporaryDirectory() as folder:
        for name in models:
            model = make_model(name, Path(folder))
            for arm in arms:
                if any((run["model"], run["recipe"]) == (name, arm) for run in result["runs"]):
                    continue
                try:
                    with tempfile.TemporaryDirectory() as output:
                        found = common.in_own_process(common.processes(args), trained, arm, str(model), output)
                except Exception as error:
                    common.say(f"{name} {arm}: failed\n{error}")
                    continue
                found = {"model": name, "recipe": arm} | compared(found)
                result["runs"].append(found)
                common.say(f"{name} {arm}: memory told / measured {found['memory']}, disk {found['disk']}")
                if args.out:
                    args.out.write_text(json.dumps(result | {"summary": summary(result["runs"])}, indent=1) + "\n")


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """How often memory was told within 15 %, and disk within 10 %, and the ratios' range."""

    def of(name: str, within: float) -> dict[str, Any]:
        ratios = [run[name] for run in runs]
        fine = sum(abs(ratio - 1) <= within for ratio in ratios)
        return {"within": fine, "of": len(ratios), "least": min(ratios), "most": max(ratios), "median": median(ratios)}

    return {"memory": of("memory", 0.15), "above_libraries": of("above_libraries", 0.15), "disk": of("disk", 0.1)}


if __name__ == "__main__":
    main()
