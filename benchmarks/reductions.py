"""Peak memory of a training step with whole-vocabulary reductions against GRPO's, at SmolLM2's vocabulary.

    python benchmarks/reductions.py --out reductions.json [--quick]

Each method in a process of its own: random completions, one step to make the optimiser's state, then the peak of a
second one, above what was resident before any model was made. The model has SmolLM2's vocabulary, tied
embeddings, and few layers; the teacher is another of the same size, whose weights count.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from typing import Any

from common import arguments, machine, peak_mib, reset_peak, resident_mib, say, table, write

DEFINITIONS = {
    "peak_mib": "greatest resident memory in a step (weights, optimiser, activations, frozen models), above what was "
    "resident before any model was made",
    "ratio": "that over GRPO's",
    "seconds": "of that step, with the threads given",
    "without_teacher": "the ratio without the teacher's own weights",
    "whole_logits_mib": "float32 logits of one micro-batch, which no method holds",
}
VOCABULARY, WIDTH, TOKENS = 49_152, 192, 1024
METHODS = {
    "grpo": {"kind": "ppo-clip"},
    "gkd, reverse": {"kind": "gkd", "divergence": "reverse"},
    "rover": {"kind": "rover"},
    "gkd, top 64": {"kind": "gkd", "divergence": "forward", "top_k": 64},
}
"""Settings of each method's objective."""


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--method", choices=METHODS, help="measure this one alone, here (for the benchmark itself)")
    parser.add_argument("--layers", type=int, default=4)
    options = parser.parse_args()
    if options.method:
        print(json.dumps(measure(options.method, options.layers, options.threads)))
        return
    result: dict[str, Any] = {"machine": machine(), "definitions": DEFINITIONS, "rows": []}
    result |= {"vocabulary": VOCABULARY, "width": WIDTH, "tokens": TOKENS, "layers": options.layers}
    result["whole_logits_mib"] = VOCABULARY * TOKENS * 4 / 2**20
    for method in METHODS:
        command = [sys.executable, __file__, "--method", method, "--threads", str(options.threads)]
        done = subprocess.run([*command, "--layers", str(options.layers)], check=True, capture_output=True, text=True)
        row = json.loads(done.stdout.splitlines()[-1])
        grpo = (result["rows"] or [row])[0]["peak_mib"]
        row["ratio"] = round(row["peak_mib"] / grpo, 3)
        row["without_teacher"] = round((row["peak_mib"] - row["teacher_mib"]) / grpo, 3)
        result["rows"].append(row)
        say(f"{method}: {row['peak_mib']:.0f} MiB, {row['ratio']:.2f} of GRPO's")
        write(result, options.out)
    show(result)


def measure(method: str, layers: int, threads: int) -> dict[str, Any]:
    """Peak memory and seconds of one step."""
    import time

    import torch
    from layout import Shape, build

    from lyceum.core.component import kinds
    from lyceum.core.types import Credited
    from lyceum.learner.local import LocalConfig
    from lyceum.models.frozen import TeacherSettings
    from lyceum.models.policy import Policy

    torch.set_num_threads(threads)
    settings: Any = kinds("objective")[METHODS[method]["kind"]]
    objective = settings.model_validate(METHODS[method]).build()
    forest = build(Shape("flat", 32, 96, 8), TOKENS // (8 * 128), VOCABULARY)
    rows = forest.rows()
    generator = torch.Generator().manual_seed(0)
    credited = Credited(torch.randn(rows.index.shape, generator=generator) * forest.trainable(rows))
    with tempfile.TemporaryDirectory() as folder:
        model, tokenizer = build_model(layers, seed=1)
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        del model
        reset_peak()
        before = resident_mib()
        policy = Policy(*build_model(layers, seed=0))
        frozen = frozenset(name for reduction in objective.reductions for name in reduction.models)
        config: Any = LocalConfig(lr=1e-6, updates_per_step=1)
        size = resident_mib()
        teacher = TeacherSettings(path=folder)
        learner = config.build(policy, total_steps=9, needs=objective.needs | frozen, teacher=teacher)
        reset_peak()
        size = resident_mib() - size if frozen else 0.0
        learner.step(forest, credited, objective)
        reset_peak()
        began = time.perf_counter()
        learner.step(forest, credited, objective)
        seconds = time.perf_counter() - began
    peak = round(peak_mib() - before, 1)
    return {"method": method, "peak_mib": peak, "teacher_mib": round(size, 1), "seconds": round(seconds, 2)}


def build_model(layers: int, seed: int) -> Any:
    """An untrained Llama with SmolLM2's vocabulary, and a tokenizer that is not used."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from lyceum.models.scratch import character_tokenizer

    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        intermediate_size=512,
        num_hidden_layers=layers,
        num_attention_heads=3,
        num_key_value_heads=3,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=1,
        pad_token_id=0,
    )
    return LlamaForCausalLM(config).eval(), character_tokenizer()


def show(result: dict[str, Any]) -> None:
    columns = ("method", "peak MiB", "of GRPO's", "without the teacher's weights", "seconds")
    table(
        f"a step of {TOKENS} tokens at {VOCABULARY} words (whole logits: {result['whole_logits_mib']:.0f} MiB)",
        columns,
        [
            (
                row["method"],
                f"{row['peak_mib']:.0f}",
                f"{row['ratio']:.2f}",
                f"{row['without_teacher']:.2f}",
                f"{row['seconds']:.1f}",
            )
            for row in result["rows"]
        ],
    )


if __name__ == "__main__":
    main()
