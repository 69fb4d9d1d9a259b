"""TRL's GRPOConfig, RLOOConfig, ModelConfig and LoraConfig.

TRL counts updates and completions, lyceum steps and tasks. Of one generation, which is a step here:

    completions = per_device_train_batch_size * processes * steps_per_generation  (or generation_batch_size)
    tasks       = completions / num_generations
    updates     = steps_per_generation / gradient_accumulation_steps * num_iterations

``steps_per_generation`` is by default ``gradient_accumulation_steps``. Source: trl/trainer/grpo_config.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from lyceum.analysis.conversion import rules
from lyceum.analysis.conversion.configuration import Configuration
from lyceum.analysis.conversion.rules import (
    TRUST,
    Converted,
    Rule,
    asked,
    is_so,
    never,
    none,
    only,
    shown,
    to,
    where,
    whole,
)

DEFAULTS: Mapping[str, Any] = {
    **{"learning_rate": 1e-6, "lr_scheduler_type": "linear", "adam_beta1": 0.9, "weight_decay": 0.0, "warmup_steps": 0},
    **{"max_completion_length": 512, "num_generations": 8, "loss_type": "dapo", "scale_rewards": "group"},
    **{"per_device_train_batch_size": 8, "gradient_accumulation_steps": 1, "num_train_epochs": 3, "beta": 0.0},
    **{"epsilon": 0.2, "max_grad_norm": 1.0, "temperature": 1.0, "num_iterations": 1, "save_steps": 500},
}
"""Of TRL 1.16, where a file says nothing."""

ALWAYS: Mapping[str, Any] = {"credit.kind": "group", "credit.ddof": 1, "credit.eps": 1e-4}
"""TRL's advantages: the sample's standard deviation, plus 1e-4."""

EXTENDS, ROWS = "grpo", "tasks"
"""The recipe that a converted one extends, and its key for the data set."""

TRACKERS = ("tensorboard", "wandb", "trackio")


def generated(of: Configuration) -> tuple[float, str]:
    """Completions of one generation, and how they are counted."""
    each, processes = of.number("per_device_train_batch_size", 8), of.number("num_processes", 1)
    if (size := of.number("generation_batch_size", 0)) > 0:
        return size, f"{shown(size)} completions"
    held = per_generation(of)
    return each * processes * held, f"{shown(each)} x {shown(held)} x {shown(processes)} processes"


def per_generation(of: Configuration) -> float:
    """Micro-batches of each process per generation."""
    accumulated = of.number("gradient_accumulation_steps", 1)
    if (size := of.number("generation_batch_size", 0)) > 0:
        of_all = of.number("per_device_train_batch_size", 8) * of.number("num_processes", 1)
        return max(1.0, size / of_all)
    return of.number("steps_per_generation", accumulated)


def updates_once(of: Configuration) -> int:
    """Updates of one pass over a generation."""
    return whole(per_generation(of) / of.number("gradient_accumulation_steps", 1))


def updates(of: Configuration) -> int:
    """Updates per generation, of all passes."""
    return updates_once(of) * whole(of.number("num_iterations", 1))


def batch(of: Configuration, value: Any) -> Converted:
    completions, how = generated(of)
    samples = of.number("num_generations", 8)
    tasks = completions / samples
    told = f"{how} / {shown(samples)} generations = {shown(tasks)} tasks a step"
    if not of.number("num_processes", 0):
        told += " (one process is assumed: num_processes=N)"
    return is_so({"tasks_per_step": max(1, int(tasks)), "learner.updates_per_step": updates_once(of)}, told)


def in_steps(key: str) -> Rule:
    """A number of updates, as one of steps."""

    def rule(of: Configuration, value: Any) -> Converted:
        if value is None or value <= 0:
            return none("off, as in a recipe without it")
        if value < 1:
            steps = of.number("max_steps", 0)
            share = none(f"{key}, in steps; a share there")
            return is_so({key: whole(value * steps / updates(of))}) if steps else share
        note = f"{shown(value)} updates, {updates(of)} a step" if updates(of) > 1 else ""
        return is_so({key: whole(value / updates(of))}, note)

    return rule


def epochs(of: Configuration, value: Any) -> Converted:
    if of.number("max_steps", 0):
        return none("max_steps ends the run")
    if value != int(value):
        return none("epochs, whole ones here")
    return rules.epochs(of, value)


def warm_up(of: Configuration, value: Any) -> Converted:
    if not value:
        return is_so({"learner.warmup_steps": 0})
    if not (steps := of.number("max_steps", 0)):
        return none("learner.warmup_steps, in steps and not as a share; how many there are follows from the data")
    return is_so({"learner.warmup_steps": whole(value * steps / updates(of))})


def every(key: str, steps: str, default: float) -> Rule:
    def rule(of: Configuration, value: Any) -> Converted:
        value = "no" if value is False else value
        if value == "no":
            return is_so({key: 0})
        if value != "steps":
            return none(f"{key}, in steps")
        return in_steps(key)(of, of[steps] or default)

    return rule


def paced(key: str, strategy: str) -> Rule:
    """Steps between, where the strategy does not say that there are none."""
    return only(lambda of: of[strategy] not in ("no", False), in_steps(key), f"{strategy} is no")


def clip(of: Configuration, value: Any) -> Converted:
    upper = {} if "epsilon_high" in of.keys else {"objective.clip_high": value}
    return is_so({"objective.clip_low": value, **upper})


def loss(of: Configuration, value: Any) -> Converted:
    longest = int(of.number("max_completion_length", 512))
    kinds = {
        **{name: {"objective.aggregate": "token"} for name in ("dapo", "bnpo")},
        "grpo": {"objective.aggregate": "sequence"},
        "dr_grpo": {"objective.aggregate": "constant", "objective.constant": longest},
    }
    return where(kinds, "objective; lyceum components objective lists the losses")(of, value)


def betas(of: Configuration, value: Any) -> Converted:
    first, second = of["adam_beta1"], of["adam_beta2"]
    return is_so({"learner.betas": [0.9 if first is None else first, 0.999 if second is None else second]})


def schedule(of: Configuration, value: Any) -> Converted:
    known = {"constant_with_warmup": "constant", "cosine_with_min_lr": "cosine"}
    name = known.get(value, value)
    if name not in ("constant", "cosine", "linear"):
        return none("learner.schedule: constant, cosine or linear")
    return is_so({"learner.schedule": name})


def schedule_arguments(of: Configuration, value: Any) -> Converted:
    if isinstance(value, Mapping) and set(value) == {"min_lr_rate"}:
        return is_so({"learner.final_lr_share": value["min_lr_rate"]})
    return none("learner.final_lr_share is min_lr_rate; there is nothing else")


def adapters(key: str) -> Rule:
    return only(lambda of: of["use_peft"], to(key), "without use_peft there are no adapters")


def use_peft(of: Configuration, value: Any) -> Converted:
    return is_so({"model.lora": True}) if value else none("off, as in a recipe without it")


def four_bits(of: Configuration, value: Any) -> Converted:
    """Of both keys: whether, and of which kind."""
    if not of["load_in_4bit"]:
        return none(OFF)
    kind = of["bnb_4bit_quant_type"] or "nf4"
    return is_so({"model.quantise": kind}) if kind in ("nf4", "fp4") else none("nf4 or fp4")


def dtype(of: Configuration, value: Any) -> Converted:
    name = str(value).removeprefix("torch.")
    if name not in ("float32", "bfloat16", "float16"):
        return none("model.dtype: float32, bfloat16 or float16")
    rounds = "half-precision weights round small updates away: model.dtype=float32 learner.autocast=bfloat16"
    return is_so({"model.dtype": name}, rounds if name != "float32" else "")


def of_model(of: Configuration, value: Any) -> Converted:
    """Keywords of ``from_pretrained``, of which the data type is a setting here."""
    if isinstance(value, Mapping) and len(value) == 1 and (name := value.get("torch_dtype") or value.get("dtype")):
        return dtype(of, name)
    return none("each by itself: model.dtype, model.device")


def output(of: Configuration, value: Any) -> Converted:
    path = PurePosixPath(str(value))
    if of["run_name"] is not None or not path.name:
        return is_so({"output": str(value)})
    return is_so({"output": str(path.parent) if str(path.parent) != "." else "runs", "name": path.name})


def trackers(of: Configuration, value: Any) -> Converted:
    names = [value] if isinstance(value, str) else list(value or [])
    kept = [name for name in names if name in TRACKERS]
    lost = [str(name) for name in names if name not in (*TRACKERS, "none")]
    if lost:
        return Converted({"track": kept} if kept else {}, f"there is no {', '.join(lost)}")
    return is_so({"track": kept})


def rewards(of: Configuration, value: Any) -> Converted:
    script, names = of.script, [value] if isinstance(value, str) else list(value)
    if script is None:
        return none(
            f"{', '.join(map(str, names))} are names within their script: reward=[FILE.py:NAME,...]; without it the "
            "tasks' own verifier grades (reward: task)"
        )
    if not all(isinstance(name, str) and name in script.sources for name in names):
        return none("objects that the script makes: reward=FILE.py:NAME of a function")
    own = [name for name in names if not script.modules[name]]
    if own and script.runs:
        return none(
            f"importing {script.path} would start its training: --out FILE.yaml writes its functions to a file beside "
            "it, and the reward names them"
        )
    specs = [f"{script.modules[name] or script.path}:{name}" for name in names]
    return is_so(
        functions(of, specs),
        "" if not own else "Python that the recipe runs, with all that its file imports: trust_code=true",
    )


def functions(of: Configuration, specs: list[str]) -> dict[str, Any]:
    """The reward of these functions, with their weights."""
    weights = of["reward_weights"]
    of_each = {"function_weights": weights} if isinstance(weights, list) and len(weights) == len(specs) else {}
    return {"reward": [{"kind": "trl", "function": specs, **of_each}]}


def weights(of: Configuration, value: Any) -> Converted:
    found = rewards(of, of["reward_funcs"]) if of["reward_funcs"] else none("")
    return found if found.ours else none("with the reward's functions: kind trl, function_weights")


def split(of: Configuration, value: Any) -> Converted:
    if isinstance(value, str) and "[" not in value:
        return is_so({"tasks.split": value})
    return none("tasks.split and tasks.heldout_split are whole splits; tasks.limit=N takes the first rows")


def configuration_name(of: Configuration, value: Any) -> Converted:
    names = [value] if isinstance(value, str) else list(value or [])
    return is_so({"tasks.subset": names[0]}) if len(names) == 1 else none("tasks.subset: one of them")


def top_k(of: Configuration, value: Any) -> Converted:
    return is_so({"rollout.sampling.top_k": value if isinstance(value, int) and value > 0 else 0})


def level(of: Configuration, value: Any) -> Converted:
    if value == "token":
        return is_so({"objective.kind": "ppo-clip"})
    if value == "sequence":
        return is_so({"objective.kind": "gspo"})
    return none("objective: ppo-clip (token) or gspo (sequence)")


def importance(of: Configuration, value: Any) -> Converted:
    """The correction for the engine's probabilities, of all its keys; TRL has it on with vLLM."""
    prefix, place = "vllm_importance_sampling", "objective.importance"
    on = of[f"{prefix}_correction"]
    if on is False or not (on or of["use_vllm"]):
        return none(f"without {prefix}_correction, or without use_vllm")
    level, _, mode = str(of[f"{prefix}_mode"] or "sequence_mask").partition("_")
    if level not in ("token", "sequence") or mode not in ("truncate", "mask"):
        return none(f"{place}.mode=truncate or mask, {place}.level=token or sequence")
    high = of.number(f"{prefix}_clip_max", of.number(f"{prefix}_cap", 3.0))
    low = of.number(f"{prefix}_clip_min", 0.0)
    earlier = f"{place}.mode=truncate {place}.level=token"
    told = "" if of[f"{prefix}_mode"] else f"TRL masks sequences where no mode is set; earlier versions: {earlier}"
    return is_so({f"{place}.mode": mode, f"{place}.level": level, f"{place}.high": high, f"{place}.low": low}, told)


def bound(of: Configuration, value: Any) -> Converted:
    return none("no number; where none is given the bounds are 0 and 3.0") if value is None else importance(of, value)


OFF = "off, as in a recipe without it"
_CHECKED = never("a dataset's rows as the script makes them: write them to a file, or tasks.template and tasks.system")

RULES: Mapping[str, Rule] = {
    **dict.fromkeys(("num_processes", "per_device_train_batch_size", "gradient_accumulation_steps"), batch),
    **dict.fromkeys(("steps_per_generation", "generation_batch_size"), batch),
    "num_iterations": to("learner.epochs"),
    "max_steps": in_steps("steps"),
    "num_train_epochs": epochs,
    "warmup_ratio": warm_up,
    "warmup_steps": lambda of, value: in_steps("learner.warmup_steps")(of, value) if value else warm_up(of, 0),
    "save_steps": paced("checkpoint_every", "save_strategy"),
    "save_total_limit": to("keep_checkpoints"),
    "save_strategy": every("checkpoint_every", "save_steps", 500),
    "eval_steps": paced("evaluate.every", "eval_strategy"),
    "eval_strategy": every("evaluate.every", "eval_steps", 500),
    "do_eval": where({False: {"evaluate.every": 0}}, "eval_steps says how often: evaluate.every"),
    "beta": to("objective.kl.coefficient"),
    "epsilon": clip,
    "loss_type": loss,
    "scale_rewards": where(
        {
            **{each: {"credit.scale": "std"} for each in (True, "group")},
            **{each: {"credit.scale": "none"} for each in (False, "none")},
            "batch": {"credit.scale": "batch"},
        },
        "credit.scale: std, none or batch",
    ),
    "adam_beta1": betas,
    "adam_beta2": betas,
    "lr_scheduler_type": schedule,
    "lr_scheduler_kwargs": schedule_arguments,
    "use_peft": use_peft,
    "lora_r": adapters("model.lora.rank"),
    "lora_alpha": adapters("model.lora.alpha"),
    "lora_target_modules": adapters("model.lora.target_modules"),
    "load_in_4bit": four_bits,
    "load_in_8bit": where({True: {"model.quantise": "int8"}}, OFF),
    "bnb_4bit_quant_type": four_bits,
    "model_name_or_path": to("model.path"),
    "trust_remote_code": asked(never(TRUST), OFF),
    "model_init_kwargs": of_model,
    "torch_dtype": dtype,
    "dtype": dtype,
    "bf16": rules.half_precision,
    "fp16": asked(never("there is no loss scaling: learner.autocast=bfloat16"), OFF),
    "chat_template": never("a file of its own: model.chat_template=FILE.jinja"),
    "use_vllm": where({True: {"engine.kind": "vllm"}, False: {"engine.kind": "embedded"}}, "engine"),
    "vllm_max_model_length": only(lambda of: of["use_vllm"], to("engine.max_model_len"), "of vLLM, which is off"),
    "vllm_importance_sampling_correction": lambda of, value: (
        importance(of, value) if value else is_so({"objective.importance.mode": "none"})
    ),
    "vllm_importance_sampling_mode": importance,
    **dict.fromkeys((f"vllm_importance_sampling_{name}" for name in ("cap", "clip_max", "clip_min")), bound),
    "sync_ref_model": asked(never("average.decay, with objective.kl.against=average"), OFF),
    "push_to_hub": asked(never("after the run: lyceum push runs/NAME owner/name"), OFF),
    "load_best_model_at_end": to("evaluate.save_best"),
    "log_completions": never("samples are always written, each rollouts_every steps"),
    "top_k": top_k,
    "run_name": to("name"),
    "output_dir": output,
    "report_to": trackers,
    "reward_funcs": rewards,
    "reward_weights": weights,
    "dataset_name": to("tasks.path"),
    "dataset_config": configuration_name,
    "dataset_configs": configuration_name,
    "dataset_train_split": split,
    "dataset_prompt_column": to("tasks.columns.prompt"),
    "system_prompt": to("tasks.system"),
    "max_prompt_length": lambda of, value: (
        none("no limit") if value is None else is_so({"tasks.max_prompt_tokens": value, "tasks.bad_rows": "cut"})
    ),
    **dict.fromkeys(("train_dataset", "dataset_mixture"), never("tasks: rows in a file, or a dataset's name")),
    "eval_dataset": never("evaluate.tasks: rows in a file, or a dataset's name"),
    "importance_sampling_level": level,
    "multi_objective_aggregation": where(
        {"sum_then_normalize": {"credit.kind": "group"}}, "standardise of each reward's part comes before its weight"
    ),
    "seed": to("seed"),
    "mask_truncated_completions": to("mask_truncated"),
    "model_revision": where({}, "a folder with that revision: model=FOLDER; main is what a name loads"),
}


def of_rows(key: str) -> Rule | None:
    """The rule of what a script does to its rows."""
    return _CHECKED if key.startswith("train_dataset.") else None


def rule_of(key: str) -> Rule | None:
    """The rule of a key, also of those that a script makes."""
    return of_rows(key) or RULES.get(key)
