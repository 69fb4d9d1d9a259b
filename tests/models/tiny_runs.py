"""Brief runs of tiny models with random weights: what they train, and what they leave."""

import json

from transformers import AutoModelForCausalLM

from lyceum.models.load import save_policy
from lyceum.recipe.schema import parse
from lyceum.training.train import train


def ran(folder, made, stage, name, *, settings=None, **how):
    """A run of one stage in a folder, of the model that is made there by the first one."""
    model = folder / "model"
    if not model.exists():
        save_policy(made(), model)
    recipe = {
        "model": {"path": str(model)} | (settings or {}),
        "tasks": {"kind": "chain", "size": 4},
        "reward": {"kind": "function", "function": f"{__file__}:digits"},
        "trust_code": True,
        "stages": [stage],
        "evaluate": {"n": 0},
        "checkpoint_every": 1,
        "output": str(folder),
        "name": name,
    }
    return train(parse(recipe), **how)


def digits(completion, **_):
    return sum(map(str.isdigit, completion)) / (1 + len(completion))


def metrics(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def mismatch(run):
    """The largest of the run's steps; one in which no row has an advantage has none."""
    return max(step["importance/mismatch"] for step in metrics(run) if "importance/mismatch" in step)


def weights(folder):
    """Of the model in a run's folder."""
    return AutoModelForCausalLM.from_pretrained(folder / "model").state_dict()
