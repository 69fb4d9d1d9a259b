"""verl's configuration of main_ppo, by its dotted keys.

verl counts in prompts: a step trains ``data.train_batch_size`` of them, in ``train_batch_size / ppo_mini_batch_size``
updates (times ``ppo_epochs``). Source: verl/trainer/config/ppo_trainer.yaml and actor/actor.yaml.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from lyceum.analysis.conversion.configuration import Configuration
from lyceum.analysis.conversion.rules import (
    TRUST,
    Converted,
    Rule,
    asked,
    epochs,
    every,
    is_so,
    never,
    none,
    of_generalised,
    only,
    shown,
    tabled,
    to,
    whole,
)

ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
CORRECTION = "algorithm.rollout_correction"
DEFAULTS: Mapping[str, Any] = {
    **{"data.train_batch_size": 1024, "data.max_response_length": 512, "data.max_prompt_length": 512},
    **{"algorithm.adv_estimator": "gae", f"{ROLLOUT}.n": 1, f"{ROLLOUT}.temperature": 1.0, "trainer.total_epochs": 30},
    **{f"{ACTOR}.optim.lr": 1e-6, f"{ACTOR}.optim.weight_decay": 0.01, f"{ACTOR}.optim.lr_warmup_steps": 0},
    **{f"{ACTOR}.optim.betas": [0.9, 0.999], f"{ACTOR}.ppo_mini_batch_size": 256, f"{ACTOR}.ppo_epochs": 1},
    **{f"{ACTOR}.clip_ratio": 0.2, f"{ACTOR}.clip_ratio_c": 3.0, f"{ACTOR}.loss_agg_mode": "token-mean"},
    **{f"{ACTOR}.grad_clip": 1.0, f"{ACTOR}.entropy_coeff": 0, "trainer.save_freq": -1, "trainer.test_freq": -1},
}
"""Of January 2026, where a file says nothing."""

EXTENDS, ROWS = "grpo", "tasks"

ALWAYS: Mapping[str, Any] = {}
OVERLONG = re.compile(
    r"(custom_reward_function|reward_model|reward)\.(reward_kwargs\.)?overlong_buffer(_cfg)?\."
    r"(?P<what>enable|len|penalty_factor)$"
)
_SAMPLED = "evaluate.sampling.max_completion_tokens"


def batch(of: Configuration, value: Any) -> Converted:
    tasks, mini = of.number("data.train_batch_size", 1024), of.number(f"{ACTOR}.ppo_mini_batch_size", 256)
    number = whole(tasks / mini) if mini <= tasks else 1
    return is_so(
        {"tasks_per_step": int(tasks), "learner.updates_per_step": number},
        f"{shown(tasks)} prompts a step / {shown(mini)} = {number} updates",
    )


def of_files(key: str) -> Rule:
    def rule(of: Configuration, value: Any) -> Converted:
        files = [value] if isinstance(value, str) else list(value or [])
        if not files:
            return none("none are named")
        kept = {key: files[0] if len(files) == 1 else files}
        return is_so({"evaluate.tasks.kind": "dataset", **kept} if key.startswith("evaluate") else kept)

    return rule


def unusable(of: Configuration, value: Any) -> Converted:
    if of["data.filter_overlong_prompts"]:
        return is_so({"tasks.bad_rows": "drop"})
    how = {"error": "refuse", "left": "cut"}.get(str(of["data.truncation"] or "error"))
    return is_so({"tasks.bad_rows": how}) if how else none("tasks.bad_rows: drop, refuse or cut (the beginning)")


def kl_in_loss(of: Configuration, value: Any) -> Converted:
    coefficient = of[f"{ACTOR}.kl_loss_coef"]
    used = of[f"{ACTOR}.use_kl_loss"]
    return is_so(
        {"objective.kl.coefficient": (0.001 if coefficient is None else coefficient) if used else 0.0},
        "" if used else "use_kl_loss is off",
    )


def kl_in_reward(of: Configuration, value: Any) -> Converted:
    coefficient, used = of["algorithm.kl_ctrl.kl_coef"], of["algorithm.use_kl_in_reward"]
    return is_so(
        {"credit.kl_in_reward.coefficient": (0.001 if coefficient is None else coefficient) if used else 0.0},
        "" if used else "use_kl_in_reward is off",
    )


def clip(of: Configuration, value: Any) -> Converted:
    low, high = of[f"{ACTOR}.clip_ratio_low"], of[f"{ACTOR}.clip_ratio_high"]
    both = {"objective.clip_low": value if low is None else low, "objective.clip_high": value if high is None else high}
    return is_so(both)


def aggregate(of: Configuration, value: Any) -> Converted:
    if value == "seq-mean-token-sum-norm":
        longest = int(of.number(f"{ACTOR}.loss_scale_factor", of.number("data.max_response_length", 512)))
        return is_so({"objective.aggregate": "constant", "objective.constant": longest})
    return tabled(f"{ACTOR}.loss_agg_mode")(of, value)


def importance(of: Configuration, value: Any) -> Converted:
    """The truncation of weights that correct for the engine's probabilities; LOW_HIGH masks what is outside."""
    level, bound = of[f"{CORRECTION}.rollout_is"], of[f"{CORRECTION}.rollout_is_threshold"]
    if not level:
        return none("rollout_is is off")
    if level not in ("token", "sequence"):
        return none("objective.importance.level: token or sequence")
    low, _, high = str(2.0 if bound is None else bound).rpartition("_")
    try:
        bounds = {"objective.importance.high": float(high), **({"objective.importance.low": float(low)} if low else {})}
    except ValueError:
        return none("objective.importance.high: a number")
    mode = "mask" if low else "truncate"
    return is_so({"objective.importance.mode": mode, "objective.importance.level": level, **bounds})


def importance_of_actor(of: Configuration, value: Any) -> Converted:
    """The same in earlier versions of verl: the largest weight of a token, -1 without a correction."""
    if not isinstance(value, (int, float)) or value <= 0:
        return none("off, as in a recipe without it")
    return is_so({"objective.importance.mode": "truncate", "objective.importance.high": float(value)})


def token_level(of: Configuration, value: Any) -> Converted:
    return is_so({"objective.aggregate": "token" if value else "sequence"})


def passes(of: Configuration, value: Any) -> Converted:
    if of.number("trainer.total_training_steps", 0):
        return is_so({"epochs": int(value)})
    return epochs(of, value)


def kept(of: Configuration, value: Any) -> Converted:
    """Which groups are trained; verl ends a run that finds too few, a step here trains on those it has."""
    if not of["algorithm.filter_groups.enable"]:
        return is_so({"collect.keep": "all"})
    metric = str(of["algorithm.filter_groups.metric"] or "acc")
    return is_so({"collect.keep": "partly-solved" if metric == "acc" else "with-gradient"})


def waves(of: Configuration, value: Any) -> Converted:
    return is_so({"collect.max_waves": int(value) if value and value > 0 else 1000})


def adapters(key: str) -> Rule:
    return only(lambda of: of.number("actor_rollout_ref.model.lora_rank", 0), to(key), "lora_rank 0: no adapters")


def evaluated(key: str) -> Rule:
    """Sampling of evaluations: what it says nothing of is as in training."""

    def rule(of: Configuration, value: Any) -> Converted:
        value = max(0, value) if key == "top_k" else value
        longest = int(of.number("data.max_response_length", 512))
        return is_so({_SAMPLED: longest, f"evaluate.sampling.{key}": value})

    return rule


def sampled(of: Configuration, value: Any) -> Converted:
    if value:
        return none("evaluations sample, and measure the greedy answer beside: evaluate.greedy")
    return is_so({_SAMPLED: int(of.number("data.max_response_length", 512)), "evaluate.sampling.temperature": 0.0})


def tracked(of: Configuration, value: Any) -> Converted:
    names = [value] if isinstance(value, str) else list(value or [])
    known = [name for name in names if name in ("tensorboard", "wandb", "trackio")]
    lost = [str(name) for name in names if name not in ("console", *known)]
    return Converted({"track": known}, f"there is no {', '.join(lost)}" if lost else "")


def reward_function(of: Configuration, value: Any) -> Converted:
    newer = "reward.custom_reward_function.path" in of.keys
    prefix = "reward.custom_reward_function" if newer else "custom_reward_function"
    path, name = of[f"{prefix}.path"], of[f"{prefix}.name"] or "compute_score"
    if path is None:
        return none("without a path: reward=FILE.py:NAME")
    arguments = {
        key.rpartition(".")[2]: each for key, each in of.keys.items() if key.startswith(f"{prefix}.reward_kwargs.")
    }
    part = {"kind": "verl", "function": f"{path}:{name}", **({"arguments": arguments} if arguments else {})}
    return is_so({"reward.function": part}, "Python that the recipe runs: trust_code=true, after a look")


def overlong(of: Configuration, value: Any) -> Converted:
    found = {m["what"]: of[key] for key in of.keys if (m := OVERLONG.match(key))}
    if not found.get("enable", True) or not found.get("len"):
        return none("off, as in a recipe without it")
    longest = int(of.number("data.max_response_length", 512))
    part = {"kind": "overlong", "max_tokens": longest, "buffer_tokens": int(found["len"])}
    return is_so({"reward.overlong": part | {"weight": float(found.get("penalty_factor") or 1.0)}})


RULES: Mapping[str, Rule] = {
    "data.train_files": of_files("tasks.path"),
    "data.val_files": of_files("evaluate.tasks.path"),
    "data.train_batch_size": batch,
    f"{ACTOR}.ppo_mini_batch_size": batch,
    "data.max_prompt_length": to("tasks.max_prompt_tokens"),
    "data.filter_overlong_prompts": unusable,
    "data.truncation": unusable,
    "actor_rollout_ref.model.path": to("model.path"),
    "actor_rollout_ref.model.trust_remote_code": asked(never(TRUST), "off, as in a recipe without it"),
    "actor_rollout_ref.model.lora_rank": adapters("model.lora.rank"),
    "actor_rollout_ref.model.lora_alpha": adapters("model.lora.alpha"),
    "actor_rollout_ref.model.target_modules": adapters("model.lora.target_modules"),
    f"{ACTOR}.use_kl_loss": kl_in_loss,
    f"{ACTOR}.kl_loss_coef": kl_in_loss,
    "algorithm.use_kl_in_reward": kl_in_reward,
    "algorithm.kl_ctrl.kl_coef": kl_in_reward,
    f"{ACTOR}.clip_ratio": clip,
    f"{ACTOR}.clip_ratio_c": to("objective.dual_clip"),
    f"{ACTOR}.loss_agg_mode": aggregate,
    f"{ACTOR}.use_token_level_loss": token_level,
    f"{ACTOR}.ppo_max_token_len_per_gpu": to("learner.micro_batch_tokens"),
    f"{ACTOR}.optim.lr_warmup_steps": every("learner.warmup_steps"),
    f"{ACTOR}.tis_imp_ratio_cap": importance_of_actor,
    **dict.fromkeys((f"{CORRECTION}.rollout_is", f"{CORRECTION}.rollout_is_threshold"), importance),
    "algorithm.gamma": of_generalised("gamma", "algorithm.adv_estimator"),
    "algorithm.lam": of_generalised("lam", "algorithm.adv_estimator"),
    f"{ROLLOUT}.top_k": lambda of, value: is_so({"rollout.sampling.top_k": max(0, value)}),
    f"{ROLLOUT}.val_kwargs.temperature": evaluated("temperature"),
    f"{ROLLOUT}.val_kwargs.top_p": evaluated("top_p"),
    f"{ROLLOUT}.val_kwargs.top_k": evaluated("top_k"),
    f"{ROLLOUT}.val_kwargs.do_sample": sampled,
    "trainer.total_epochs": passes,
    "trainer.save_freq": every("checkpoint_every"),
    "trainer.max_actor_ckpt_to_keep": to("keep_checkpoints"),
    "trainer.test_freq": every("evaluate.every"),
    "trainer.logger": tracked,
    "trainer.experiment_name": lambda of, value: is_so({"name": str(value)}),
    "trainer.default_local_dir": to("output"),
    "trainer.project_name": lambda of, value: none("a tracker's name; output is the folder of the runs"),
    "algorithm.filter_groups.enable": kept,
    "algorithm.filter_groups.metric": kept,
    "algorithm.filter_groups.max_num_gen_batches": waves,
    **dict.fromkeys(("custom_reward_function.path", "custom_reward_function.name"), reward_function),
    **dict.fromkeys(("reward.custom_reward_function.path", "reward.custom_reward_function.name"), reward_function),
}


def rule_of(key: str) -> Rule | None:
    """The rule of a key, also of those that stand below others."""
    if OVERLONG.match(key):
        return overlong
    if "custom_reward_function.reward_kwargs." in key:
        return reward_function
    return RULES.get(key)
