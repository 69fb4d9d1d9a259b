"""What lyceum and TRL are compared on."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from common import say
from controlled_lengths import ASK, controlled_lengths

FROZEN = 1e-12
"""A learning rate at which a step does all its work and float32 weights stay as they are. AdamW moves every weight by
the learning rate whatever its gradient, and already 1e-6 changed the lengths that controlled_lengths.py
builds in a few steps."""


@dataclass(frozen=True)
class Case:
    """One comparison.

    Attributes:
        about: what it stands for, in a sentence.
        model: Hugging Face folder.
        tasks, reward: lyceum's recipe keys; ``trl_reward`` names the same function for TRL.
        prompts, samples: of a step; ``max_tokens`` of a completion.
        steps: of each run, the ``warm_up`` among them; a run for each of ``seeds``.
        lr: learning rate; where lengths are a property of the weights, too small to change them.
        micro_batch_tokens: lyceum's, in unique tokens; None for its default.
        candidates: TRL's ways to generate and rows in a micro-batch, of which the fastest is compared with.
        evaluation: held-out accuracy of both after training.
    """

    name: str
    about: str
    model: Path
    tasks: Mapping[str, Any]
    reward: Any
    trl_reward: str
    max_tokens: int
    steps: int
    prompts: int = 32
    samples: int = 8
    warm_up: int = 3
    lr: float = FROZEN
    seeds: tuple[int, ...] = (0,)
    micro_batch_tokens: int | None = None
    candidates: tuple[tuple[str, int], ...] = (("dynamic", 256),)
    evaluation: Mapping[str, int] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return self.prompts * self.samples

    def recipe(self, output: Path, seed: int) -> dict[str, Any]:
        """What lyceum runs. Everything that is not named is lyceum's default."""
        sampling = {"temperature": 1.0, "max_completion_tokens": self.max_tokens}
        budget = {} if self.micro_batch_tokens is None else {"micro_batch_tokens": self.micro_batch_tokens}
        return {
            "name": f"{self.name}-{seed}",
            "output": str(output),
            "seed": seed,
            "model": {"path": str(self.model), "device": "cpu"},
            "tasks": dict(self.tasks),
            "reward": self.reward,
            "evaluate": {"n": 0},
            "checkpoint_every": 0,
            "rollouts_every": max(1, min(10, self.steps // 4)),
            "stages": [
                {
                    "kind": "online",
                    "steps": self.steps,
                    "tasks_per_step": self.prompts,
                    "rollout": {"kind": "flat", "samples": self.samples, "sampling": sampling},
                    "credit": {"kind": "group", "scale": "std", "ddof": 1, "eps": 1e-4},
                    "objective": {"kind": "ppo-clip", "clip_low": 0.2, "clip_high": 0.2, "aggregate": "sequence"},
                    "learner": {"lr": self.lr, **budget, **OPTIMISER},
                }
            ],
        }


OPTIMISER = {"betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.01, "max_grad_norm": 1.0}
"""Of both systems: AdamW with a constant learning rate."""


def all_cases(quick: bool, base: Path, smollm2: Path | None, work: Path) -> list[Case]:
    """Every case; SmolLM2's only where its folder is given.

    The candidates are ways in which TRL can generate without vLLM (transformers' generate with either cache, or its
    continuous batching) and rows in a micro-batch.
    """
    small = (("dynamic", 256), ("dynamic", 32), ("static", 32), ("continuous", 32))
    found = [
        Case(
            "short",
            "the small base on chained arithmetic: completions of some 28 tokens, rewards of the verifier",
            base,
            {"kind": "chain"},
            "task",
            "chain",
            max_tokens=64,
            steps=8 if quick else 40,
            lr=1e-4,
            seeds=(0,) if quick else (0, 1),
            candidates=(("dynamic", 256),) if quick else small,
            evaluation={"tasks": 64, "samples": 4} if quick else {"tasks": 400, "samples": 8},
        ),
        Case(
            "mixed",
            "three of four completions have 8 tokens, the others 256 (the limit), at random in each group",
            controlled_lengths(work / "mixed-model", short=8, share_long=0.25),
            _lines(work / "mixed.jsonl", prompt_tokens=24),
            _reward("even_characters"),
            "even_characters",
            max_tokens=256,
            steps=4 if quick else 8,
            warm_up=2,
            candidates=(("dynamic", 32),) if quick else small,
        ),
        Case(
            "long_prompt",
            "512 tokens of prompt, every completion 32 tokens (the limit)",
            controlled_lengths(work / "long-model", short=8, share_long=1.0),
            _lines(work / "long.jsonl", prompt_tokens=512),
            _reward("even_characters"),
            "even_characters",
            max_tokens=32,
            steps=4 if quick else 7,
            warm_up=2,
            candidates=(("dynamic", 32),),  # 256 rows at once took 39 s a step, 32 take 23
        ),
    ]
    if smollm2 is not None:
        prompts = 2 if quick else 8
        found.append(
            Case(
                "smollm2",
                f"SmolLM2-135M-Instruct on sums, {prompts} prompts x 8: 32 x 8 would take minutes a step here",
                smollm2,
                _sums(work / "sums.jsonl"),
                _reward("last_number"),
                "last_number",
                prompts=prompts,
                max_tokens=24 if quick else 64,
                steps=3 if quick else 6,
                warm_up=2,
                lr=1e-6,
                micro_batch_tokens=2048,
                candidates=(("dynamic", 8 if quick else 32),),
            )
        )
    say(f"cases: {', '.join(case.name for case in found)}")
    return found


def _reward(function: str) -> dict[str, Any]:
    """The function that TRL calls, in the run's own process as TRL calls it."""
    return {"kind": "trl", "function": f"{Path(__file__).with_name('rewards.py')}:{function}", "processes": 0}


def _lines(file: Path, *, prompt_tokens: int, count: int = 2048) -> dict[str, Any]:
    """Prompts of random characters of exactly so many tokens (a character is one), all different."""
    rng = random.Random(prompt_tokens)
    letters = "".join(chr(code) for code in range(33, 127) if chr(code) != ASK)
    rows = [{"prompt": "".join(rng.choices(letters, k=prompt_tokens - 1)) + ASK, "answer": ""} for _ in range(count)]
    return _dataset(file, rows)


def _sums(file: Path, count: int = 2048) -> dict[str, Any]:
    rng = random.Random(0)
    pairs = [(rng.randint(1, 99), rng.randint(1, 9)) for _ in range(count)]
    return _dataset(
        file, [{"prompt": f"What is {a} + {b}? Answer with one number.", "answer": str(a + b)} for a, b in pairs]
    )


def _dataset(file: Path, rows: list[dict[str, str]]) -> dict[str, Any]:
    unique = list({row["prompt"]: row for row in rows}.values())
    file.write_text("".join(json.dumps(row) + "\n" for row in unique))
    # All rows, as TRL trains on them: two checkouts may hold different ones out, and then draw others.
    return {"kind": "dataset", "path": str(file), "verifier": "exact", "heldout_share": 0}
