"""TRL's DPOConfig and SFTConfig: training on completions that a data set gives.

TRL counts updates, lyceum steps of one update:

    rows = per_device_train_batch_size * gradient_accumulation_steps * processes

pairs of DPO, demonstrations of SFT. Source: trl/trainer/dpo_config.py and sft_config.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from lyceum.analysis.conversion import trl
from lyceum.analysis.conversion.configuration import Configuration
from lyceum.analysis.conversion.rules import Converted, Rule, asked, is_so, never, none, shown, to
from lyceum.objective.dpo import PairLossName

_USUAL: Mapping[str, Any] = {
    **{"lr_scheduler_type": "linear", "adam_beta1": 0.9, "weight_decay": 0.0, "warmup_steps": 0, "save_steps": 500},
    **{"per_device_train_batch_size": 8, "gradient_accumulation_steps": 1, "num_train_epochs": 3, "max_grad_norm": 1.0},
}
_SAMPLING = ("num_generations", "num_iterations", "steps_per_generation", "generation_batch_size", "epsilon")
_SAMPLING += (
    "scale_rewards",
    "reward_funcs",
    "reward_weights",
    "importance_sampling_level",
    "mask_truncated_completions",
)


def batch(of: Configuration, value: Any) -> Converted:
    sizes = ("per_device_train_batch_size", 8), ("gradient_accumulation_steps", 1), ("num_processes", 1)
    numbers = [of.number(key, usual) for key, usual in sizes]
    rows = numbers[0] * numbers[1] * numbers[2]
    told = f"{' x '.join(map(shown, numbers))} processes = {shown(rows)} rows a step"
    return is_so({"tasks_per_step": int(rows)}, told)


def pair_loss(of: Configuration, value: Any) -> Converted:
    name = value[0] if isinstance(value, list) and len(value) == 1 else value
    if name in get_args(PairLossName):
        return is_so({"objective.loss": name})
    return none(f"objective.loss: one of {', '.join(get_args(PairLossName))}")


def longest(of: Configuration, value: Any) -> Converted:
    if value is None:
        return none("off, as in a recipe without it")
    return is_so({"max_completion_tokens": int(value)}, "of a demonstration's completion; there with its prompt")


_SHARED: Mapping[str, Rule] = {
    **{key: rule for key, rule in trl.RULES.items() if key not in _SAMPLING},
    **dict.fromkeys(("num_processes", "per_device_train_batch_size", "gradient_accumulation_steps"), batch),
    "warmup_steps": lambda of, value: trl.in_steps("learner.warmup_steps")(of, value) if value else trl.warm_up(of, 0),
    "gradient_checkpointing": to("learner.gradient_checkpointing"),
    "learning_rate": to("learner.lr"),
    "packing": asked(never("rows are not packed: what a micro-batch holds is learner.micro_batch_tokens"), trl.OFF),
    "ref_model": asked(never("the reference is the initial model, or reference={average: [...]}"), trl.OFF),
    "formatting_func": never("rows as the script makes them: write them to a file, or tasks.template"),
    "processing_class": never("the model's own tokenizer is used"),
    "tokenizer": never("the model's own tokenizer is used"),
}

_PAIRS: Mapping[str, Rule] = {
    "beta": to("objective.beta"),
    "loss_type": pair_loss,
    "label_smoothing": to("objective.label_smoothing"),
    "dataset_name": to("data.path"),
    "dataset_train_split": lambda of, value: (
        none("data.split is a whole split") if "[" in str(value) else is_so({"data.split": value})
    ),
    **dict.fromkeys(
        ("dataset_config", "dataset_configs"),
        lambda of, value: (
            none("data.subset: one of them") if isinstance(value, list) else is_so({"data.subset": value})
        ),
    ),
    **dict.fromkeys(
        ("max_length", "max_prompt_length", "max_completion_length"),
        never("pairs are used whole; those that do not fit the model's context are left out: data.bad_rows=drop"),
    ),
    "precompute_ref_log_probs": asked(never("log-probabilities of the reference are computed in each step"), trl.OFF),
    "system_prompt": never("a message of each row's prompt"),
    **dict.fromkeys(("train_dataset", "dataset_mixture"), never("data: pairs in a file, or a dataset's name")),
    "dataset_test_split": never("evaluate.tasks: questions in a file, or a dataset's name; pairs are not held out"),
}

_IMITATED: Mapping[str, Rule] = {
    "max_length": longest,
    "max_seq_length": longest,
    "dataset_text_field": never("rows have a prompt and a completion, or messages: tasks.columns.demonstration"),
    **dict.fromkeys(
        ("assistant_only_loss", "completion_only_loss"),
        lambda of, value: is_so({"objective.kind": "sft"}) if value is not False else none("prompts are never trained"),
    ),
    "loss_type": lambda of, value: (
        is_so({"objective.kind": "sft"})
        if value in ("nll", "chunked_nll")
        else none("objective.kind=sft: cross-entropy")
    ),
    "neftune_noise_alpha": asked(never("no noise is added to embeddings"), trl.OFF),
}


class RulesOfRows:
    """What a trainer's keys become: as the modules of other libraries, of which one has several trainers."""

    def __init__(self, extends: str, rows: str, rules: Mapping[str, Rule], defaults: Mapping[str, Any]) -> None:
        self.EXTENDS, self.ROWS = extends, rows
        self.RULES = {**_SHARED, **rules}
        self.DEFAULTS = {**_USUAL, **defaults}
        self.ALWAYS: Mapping[str, Any] = {"evaluate.n": 0}

    def rule_of(self, key: str) -> Rule | None:
        return trl.of_rows(key) or self.RULES.get(key)


PAIRS = RulesOfRows("dpo", "data", _PAIRS, {"learning_rate": 1e-6, "beta": 0.1, "loss_type": "sigmoid"})
IMITATED = RulesOfRows("sft", "tasks", _IMITATED, {"learning_rate": 2e-5})
"""With the defaults of TRL 1.16."""
