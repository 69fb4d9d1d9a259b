"""TRL's side of a comparison: its GRPOTrainer, one optimiser step at a time.

Set up as a user who wants speed on this machine would: no logging, no saving, no progress bar, no gradient
checkpointing, no reference model; how it generates and in which micro-batches is chosen by what is measured to be
fastest (see vs_trl.py). Steps take turns in a callback at their end, so that a turn holds everything that a step does.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import rewards
from common import Gate, peak_mib, resident_mib


def main() -> None:
    spec = json.loads(sys.argv[1])
    gate = Gate()
    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
    from trl.trainer.grpo_config import GRPOConfig  # pyright: ignore[reportMissingImports]  (requirements-vs_trl.txt)
    from trl.trainer.grpo_trainer import GRPOTrainer  # pyright: ignore[reportMissingImports]  (requirements-vs_trl.txt)

    torch.set_num_threads(spec["threads"])
    gate.say(ready=True, loaded_mib=resident_mib())
    sys.stdin.readline()
    model = AutoModelForCausalLM.from_pretrained(spec["model"], dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(spec["model"], padding_side="left")
    samples, batch, rows = spec["samples"], spec["batch"], spec["prompts"] * spec["samples"]
    extra: dict[str, Any] = {}
    if spec["generation"] == "static":
        extra["cache_implementation"] = "static"
    if spec["generation"] == "continuous":
        # By default half of the machine's memory would be reserved, and filled, for every step's cache.
        longest = spec["prompt_tokens"] + spec["max_tokens"]
        blocks = rows * -(-longest // 32)
        extra["use_transformers_continuous_batching"] = True
        extra["transformers_continuous_batching_config"] = {
            "page_size": 32, "num_blocks": blocks, "max_batch_tokens": max(512, rows),
        }  # fmt: skip
    config = GRPOConfig(
        output_dir=spec["output"],
        use_cpu=True,
        bf16=False,
        seed=spec["seed"],
        max_steps=spec["steps"],
        per_device_train_batch_size=batch,
        gradient_accumulation_steps=rows // batch,
        num_generations=samples,
        max_completion_length=spec["max_tokens"],
        shuffle_dataset=False,
        temperature=1.0,
        top_k=0,
        top_p=1.0,
        beta=0.0,
        num_iterations=1,
        epsilon=0.2,
        loss_type="grpo",
        scale_rewards="group",
        optim="adamw_torch_fused",
        learning_rate=spec["lr"],
        lr_scheduler_type="constant",
        adam_beta1=spec["betas"][0],
        adam_beta2=spec["betas"][1],
        adam_epsilon=spec["eps"],
        weight_decay=spec["weight_decay"],
        max_grad_norm=spec["max_grad_norm"],
        gradient_checkpointing=False,
        dataloader_pin_memory=False,
        logging_strategy="no",
        save_strategy="no",
        eval_strategy="no",
        report_to="none",
        disable_tqdm=True,
        **extra,
    )
    steps: list[dict[str, float]] = []

    class Turn(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            metrics = trainer._metrics["train"]
            steps.append({name: float(metrics[key][-1]) for name, key in KEPT.items() if metrics.get(key)})
            if not gate.step(peak_mib=peak_mib()):
                control.should_training_stop = True

    trainer = GRPOTrainer(
        model=model,
        reward_funcs=[getattr(rewards, spec["reward"])],
        args=config,
        train_dataset=Dataset.from_list(_rows(spec["rows"])),
        processing_class=tokenizer,
        callbacks=[Turn()],
    )
    trainer.train()
    if spec["save"]:
        trainer.save_model(spec["save"])
        tokenizer.save_pretrained(spec["save"])
    gate.say(finished=True, steps=steps, model=spec["save"])


KEPT = {
    "completion_tokens": "completions/mean_length",
    "reward": "reward",
    "share_without_gradient": "frac_reward_zero_std",
}


def _rows(file: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(file).read_text().splitlines()]


if __name__ == "__main__":
    main()
