"""OpenRLHF's command train_ppo_ray, by its options of before and after they had dots.

A step samples ``rollout_batch_size`` prompts and trains on their completions in
``rollout_batch_size * n_samples_per_prompt / train_batch_size`` updates. Source: openrlhf/cli/train_ppo_ray.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lyceum.analysis.conversion.configuration import Configuration
from lyceum.analysis.conversion.rules import (
    Converted,
    Rule,
    epochs,
    every,
    half_precision,
    is_so,
    none,
    of_generalised,
    only,
    shown,
    tabled,
    to,
)

DEFAULTS: Mapping[str, Any] = {
    **{"n_samples_per_prompt": 1, "rollout_batch_size": 1024, "train_batch_size": 128, "generate_max_len": 1024},
    **{"advantage_estimator": "gae", "actor_learning_rate": 1e-6, "init_kl_coef": 0.01, "eps_clip": 0.2, "l2": 0.0},
    **{"lr_scheduler": "cosine_with_min_lr", "adam_betas": [0.9, 0.95], "max_norm": 1.0, "max_epochs": 1},
    **{"num_episodes": 1, "save_steps": -1, "eval_steps": -1},
}
"""Where a command says nothing."""

EXTENDS, ROWS = "grpo", "tasks"

ALWAYS: Mapping[str, Any] = {}

NEWER = {
    **{"rollout.n_samples_per_prompt": "n_samples_per_prompt", "rollout.batch_size": "rollout_batch_size"},
    **{"train.batch_size": "train_batch_size", "rollout.max_new_tokens": "generate_max_len"},
    **{"max_new_tokens": "generate_max_len", "algo.advantage.estimator": "advantage_estimator"},
    **{"actor.adam.lr": "actor_learning_rate", "algo.kl.init_coef": "init_kl_coef", "algo.kl.use_loss": "use_kl_loss"},
    **{"algo.kl.estimator": "kl_estimator", "actor.eps_clip": "eps_clip", "actor.adam.weight_decay": "l2"},
    **{"actor.eps_clip_low_high": "eps_clip_low_high", "actor.lr_scheduler": "lr_scheduler"},
    **{"actor.adam.betas": "adam_betas", "actor.max_norm": "max_norm", "train.max_epochs": "max_epochs"},
    **{"train.num_episodes": "num_episodes", "ckpt.save_steps": "save_steps", "eval.steps": "eval_steps"},
    **{"algo.dynamic_filtering_enable": "dynamic_filtering"},
    **{"actor.gradient_checkpointing_enable": "gradient_checkpointing"},
    **{"algo.dynamic_filtering_range": "dynamic_filtering_reward_range", "data.max_samples": "max_samples"},
    **{"data.prompt_dataset": "prompt_data", "data.prompt_split": "prompt_split", "reward.remote_url": "remote_rm_url"},
    **{"ds.lora.rank": "lora_rank", "ds.lora.alpha": "lora_alpha", "actor.model_name_or_path": "pretrain"},
    **{"algo.advantage.gamma": "gamma", "algo.advantage.lambd": "lambd", "data.input_key": "input_key"},
    **{"data.label_key": "label_key", "ckpt.output_dir": "save_path", "ckpt.path": "ckpt_path"},
    "eval.dataset": "eval_dataset",
    **{"algo.advantage.is_correction_enable": "enable_vllm_is_correction"},
    **{"algo.advantage.is_correction_threshold": "vllm_is_truncated_threshold"},
    **{"algo.advantage.is_correction_type": "vllm_is_correction_type"},
    **{"logger.wandb.key": "use_wandb", "fsdp.param_dtype": "param_dtype", "data.max_len": "max_len"},
}
"""Names of 2026 -> those of before."""


def older(of: Configuration) -> Configuration:
    """The same with its keys' older names, by which rules are written; a name of no rule stays."""
    return Configuration(of.library, {NEWER.get(key, key): value for key, value in of.keys.items()}, of.script)


def batch(of: Configuration, value: Any) -> Converted:
    tasks, samples = of.number("rollout_batch_size", 1024), of.number("n_samples_per_prompt", 1)
    trained = of.number("train_batch_size", 128)
    number = max(1, int(tasks * samples / trained))
    told = f"{shown(tasks)} prompts x {shown(samples)} samples / {shown(trained)} = {number} updates a step"
    updates = {"learner.updates_per_step": min(number, int(tasks))}
    more = "; here at most one for each prompt" if number > tasks else ""
    return is_so({"tasks_per_step": int(tasks), **updates}, told + more)


def each_prompt(of: Configuration, value: Any) -> Converted:
    """Samples of a prompt, which a batch is counted by: the sizes stand where a recipe refuses the samples."""
    sizes = batch(of, value)
    return is_so({"rollout.samples": int(of.number("n_samples_per_prompt", 1)), **sizes.ours}, sizes.note)


def divergence(of: Configuration, value: Any) -> Converted:
    coefficient = of["init_kl_coef"]
    coefficient = 0.01 if coefficient is None else coefficient
    estimator = of["kl_estimator"] or "k1"
    place = "objective.kl" if of["use_kl_loss"] else "credit.kl_in_reward"
    return is_so({f"{place}.coefficient": coefficient, f"{place}.estimator": estimator})


def clip(of: Configuration, value: Any) -> Converted:
    both = of["eps_clip_low_high"]
    low, high = both if isinstance(both, list) and len(both) == 2 else (of["eps_clip"] or 0.2,) * 2
    return is_so({"objective.clip_low": low, "objective.clip_high": high})


def schedule(of: Configuration, value: Any) -> Converted:
    kinds = {
        "cosine_with_min_lr": {"learner.schedule": "cosine", "learner.final_lr_share": 0.1},
        **{name: {"learner.schedule": name} for name in ("constant", "linear", "cosine")},
        "constant_with_warmup": {"learner.schedule": "constant"},
    }
    return is_so(kinds[value]) if value in kinds else none("learner.schedule: constant, cosine or linear")


def kept(of: Configuration, value: Any) -> Converted:
    """Groups by their mean reward, ends excluded."""
    if not of["dynamic_filtering"]:
        return none("dynamic_filtering is off")
    bounds = of["dynamic_filtering_reward_range"]
    if bounds in (None, [0, 1]):
        return is_so({"collect.keep": "partly-solved"}, "by verdicts; of rewards that are none, with-gradient")
    return none("collect.keep=solved-between collect.solved_low=LOW collect.solved_high=HIGH, of verdicts")


def adapters(key: str) -> Rule:
    return only(lambda of: of.number("lora_rank", 0), to(key), "lora_rank 0: no adapters")


def importance(of: Configuration, value: Any) -> Converted:
    """The correction for the engine's probabilities; its threshold is the largest weight, or both bounds."""
    if not (of["enable_vllm_is_correction"] or of["vllm_enable_is_correction"]):
        return none("off, as in a recipe without it")
    mode = {"tis": "truncate", "icepop": "mask"}.get(of["vllm_is_correction_type"] or "tis")
    if mode is None:
        return none("objective.importance: no weights by a sequence's geometric mean")
    bounds = of["vllm_is_truncated_threshold"]
    bounds = [] if bounds is None else bounds if isinstance(bounds, list) else [bounds]
    names = [f"objective.importance.{name}" for name in ("low", "high")][-len(bounds) :] if bounds else []
    return is_so({"objective.importance.mode": mode, **dict(zip(names, bounds, strict=False))})


def evaluated(of: Configuration, value: Any) -> Converted:
    """The data set of evaluations, whose columns are named as those of training."""
    if not value:
        return none("none is named")
    columns = {ours: of[theirs] for ours, theirs in (("prompt", "input_key"), ("answer", "label_key")) if of[theirs]}
    named = {f"evaluate.tasks.columns.{ours}": theirs for ours, theirs in columns.items()}
    return is_so({"evaluate.tasks.kind": "dataset", "evaluate.tasks.path": value, **named})


def output(of: Configuration, value: Any) -> Converted:
    folder, _, name = str(value).rstrip("/").rpartition("/")
    return is_so({"output": folder or "runs", "name": name})


FUNCTION = "reward_func"
"""The name by which OpenRLHF calls the function of a reward's file."""

WRAPPER = '''"""The reward of {file}, which OpenRLHF calls with queries, prompts and labels."""

import importlib.util

_spec = importlib.util.spec_from_file_location("openrlhf_reward", {file!r})
_theirs = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_theirs)


def _text(of):
    return of if isinstance(of, str) else "\\n".join(message["content"] for message in of)


def {function}(prompts, completions, answer=None, **columns):
    prompts, completions = [_text(each) for each in prompts], [_text(each) for each in completions]
    queries = [prompt + completion for prompt, completion in zip(prompts, completions)]
    found = _theirs.{function}(queries, prompts, answer or [None] * len(prompts))
    rewards = found["rewards"] if isinstance(found, dict) else found
    return [float(reward) for reward in rewards]
'''
"""Source of a function as TRL has them around one of OpenRLHF's (``openrlhf/utils/remote_rm_utils.py``)."""


def wrapper(of: Configuration) -> str:
    """Source of a file that calls a local file's own reward; empty where there is none."""
    file = older(of)["remote_rm_url"]
    if not isinstance(file, str) or not file.endswith(".py") or not Path(file).is_file():
        return ""
    return WRAPPER.format(file=str(Path(file).absolute()), function=FUNCTION)


def own_reward(of: Configuration, value: Any) -> Converted:
    if not str(value).endswith(".py"):
        return none("a server of rewards: a function that asks it, reward=FILE.py:NAME")
    if not Path(str(value)).is_file():
        return none(f"{value} is not here: where it is, --out FILE.yaml writes a function that calls it")
    if of.script is None:
        return none(f"{value}: --out FILE.yaml writes a file beside it that calls its {FUNCTION}")
    reward = {"reward": [{"kind": "trl", "function": [f"{of.script.path}:{FUNCTION}"]}]}
    return is_so(reward, f"{of.script.path} calls {FUNCTION} of {value}: Python that the recipe runs, trust_code=true")


RULES: Mapping[str, Rule] = {
    **dict.fromkeys(("rollout_batch_size", "train_batch_size"), batch),
    "n_samples_per_prompt": each_prompt,
    **dict.fromkeys(("init_kl_coef", "use_kl_loss", "kl_estimator"), divergence),
    **dict.fromkeys(("eps_clip", "eps_clip_low_high"), clip),
    "pretrain": to("model.path"),
    "prompt_data": to("tasks.path"),
    "prompt_split": to("tasks.split"),
    "eval_dataset": evaluated,
    "eval_split": only(lambda of: of["eval_dataset"], to("evaluate.tasks.split"), "without eval_dataset"),
    "prompt_max_len": to("tasks.max_prompt_tokens"),
    "input_key": to("tasks.columns.prompt"),
    "label_key": to("tasks.columns.answer"),
    "max_samples": to("tasks.limit"),
    "generate_max_len": to("rollout.sampling.max_completion_tokens"),
    "temperature": to("rollout.sampling.temperature"),
    "top_p": to("rollout.sampling.top_p"),
    "advantage_estimator": tabled("advantage_estimator"),
    "gamma": of_generalised("gamma", "advantage_estimator"),
    "lambd": of_generalised("lam", "advantage_estimator"),
    "lr_scheduler": schedule,
    "adam_betas": to("learner.betas"),
    "dynamic_filtering": kept,
    "dynamic_filtering_reward_range": kept,
    "num_episodes": epochs,
    "save_steps": every("checkpoint_every"),
    "eval_steps": every("evaluate.every"),
    "bf16": half_precision,
    "param_dtype": lambda of, value: (
        is_so({"learner.autocast": "bfloat16"}) if value in ("bf16", "bfloat16") else none("learner.autocast")
    ),
    "gradient_checkpointing": lambda of, value: is_so({"learner.gradient_checkpointing": bool(value)}),
    "save_path": output,
    **dict.fromkeys(("enable_vllm_is_correction", "vllm_enable_is_correction"), importance),
    **dict.fromkeys(("vllm_is_truncated_threshold", "vllm_is_correction_type"), importance),
    "lora_rank": adapters("model.lora.rank"),
    "lora_alpha": adapters("model.lora.alpha"),
    "use_wandb": lambda of, value: is_so({"track": ["wandb"]}) if value else none("off"),
    "seed": to("seed"),
    "remote_rm_url": own_reward,
}


def rule_of(key: str) -> Rule | None:
    return RULES.get(key)
