"""Which models fit on which cards, and how they are then trained: what `--dry-run --on CARD` tells, for usual models.

    python benchmarks/cards.py --out benchmarks/results/cards.json [--page]

Seconds. Figures are sums over counts and shapes (``analysis/sizes.py``): no weight is read and no card is used. The
configurations are those of Qwen2.5's text models. ``--page`` prints the table of docs/gpu.md.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import common

MODELS: dict[str, dict[str, Any]] = {
    "Qwen2.5-0.5B": {"hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "heads": (14, 2)},
    "Qwen2.5-1.5B": {"hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 28, "heads": (12, 2)},
    "Qwen2.5-3B": {"hidden_size": 2048, "intermediate_size": 11008, "num_hidden_layers": 36, "heads": (16, 2)},
    "Qwen2.5-7B": {"hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28, "heads": (28, 4)},
}
WORDS = {"Qwen2.5-7B": 152_064}
"""Vocabularies other than 151,936. The 7B model's embedding is not tied to its output."""
LESS = ("learner.gradient_checkpointing=true", "learner.micro_batch_tokens=4096")
WAYS = {
    "all weights": ("learner.autocast=bfloat16", *LESS),
    "all weights, 8-bit AdamW": ("learner.autocast=bfloat16", "learner.optimizer=adamw-8bit", *LESS),
    "LoRA": ("model.dtype=bfloat16", "model.lora=true", *LESS),
    "LoRA on 8 bits": ("model.dtype=bfloat16", "model.lora=true", "model.quantise=int8", *LESS),
    "LoRA on 4 bits": ("model.dtype=bfloat16", "model.lora=true", "model.quantise=nf4", *LESS),
}
SHARED = ("tasks_per_step=32", "rollout.samples=8", "engine.max_sequences=128")
PROMPT, COMPLETION = 256, 1024
DEFINITIONS = {
    "gib": "peak told, in GiB, of GRPO with the embedded engine on the same card: 32 tasks with 8 samples a step, 128 "
    f"at once, prompts of {PROMPT} tokens and completions of {COMPLETION}; told and not measured",
    "cards, smallest": "those whose memory is at least that",
}


def main() -> None:
    parser = common.arguments(__doc__ or "")
    parser.add_argument("--page", action="store_true", help="print the page's table")
    args = parser.parse_args()
    models = list(MODELS)[:1] if args.quick else list(MODELS)
    with tempfile.TemporaryDirectory() as folder:
        rows: list[dict[str, Any]] = [{"model": name} | told_of(name, Path(folder) / name) for name in models]
    result = {"benchmark": "cards", "definitions": DEFINITIONS, "machine": common.machine(), "rows": rows}
    common.write(result, args.out)
    if args.page:
        print("\n".join(page(rows)))
    else:
        cells = [[row["model"], *(f"{row[way]['gib']} on {row[way]['smallest']}" for way in WAYS)] for row in rows]
        common.table("cards, GiB", ["model", *WAYS], cells)


def told_of(name: str, folder: Path) -> dict[str, Any]:
    """Of a model, each way of training it: the peak, and which cards have as much."""
    from transformers import Qwen2Config

    from lyceum.analysis.sizes import CARDS, told
    from lyceum.models.scratch import character_tokenizer
    from lyceum.recipe.schema import load_recipe

    sizes = dict(MODELS[name])
    heads, key_heads = sizes.pop("heads")
    words = {"vocab_size": WORDS.get(name, 151_936), "tie_word_embeddings": name not in WORDS}
    config = Qwen2Config(num_attention_heads=heads, num_key_value_heads=key_heads, **words, **sizes)
    config.architectures = ["Qwen2ForCausalLM"]
    config.save_pretrained(folder)
    character_tokenizer().save_pretrained(folder)
    ways: dict[str, Any] = {}
    for way, keys in WAYS.items():
        lengths = (f"rollout.sampling.max_completion_tokens={COMPLETION}", "evaluate.n=0")
        recipe = load_recipe("grpo", [f"model.path={folder}", *SHARED, *lengths, *keys])
        peak = told(recipe, prompt=PROMPT, demonstration=0, evaluated=0, card="h100").peak
        fitting = [card for card, mib in CARDS.items() if peak <= mib << 20]
        smallest = min(fitting, key=lambda card: CARDS[card], default=None)
        ways[way] = {"gib": round(peak / 2**30, 1), "smallest": smallest, "cards": fitting}
        common.say(f"{name}, {way}: {ways[way]['gib']} GiB, from {smallest} on")
    return ways


def page(rows: list[dict[str, Any]]) -> list[str]:
    """The table as Markdown: a row for each model, a column for each way."""
    lines = ["| GiB | " + " | ".join(WAYS) + " |", "|---" * (len(WAYS) + 1) + "|"]
    for row in rows:
        cells = [f"{row[way]['gib']}: `{row[way]['smallest'] or 'none'}`" for way in WAYS]
        lines.append(f"| {row['model']} | " + " | ".join(cells) + " |")
    return lines


if __name__ == "__main__":
    main()
