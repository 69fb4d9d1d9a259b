"""Digests of each part of each step of a run: equal for two runs up to where they first differ.

With ``digests: true`` a run writes one file per step, ``digests/step-000003.json``::

    {"draw": {"tasks": "5f1c…"}, "generation": {…}, …, "weights": {"lm_head.weight": "08b4…", …}}

A part's values are digests of its bits or human-readable numbers; both are compared exactly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from hashlib import blake2b
from typing import Any

from lyceum.core.forest import Forest
from lyceum.core.tree import Tree
from lyceum.core.types import Credited, Grade
from lyceum.utils.lazy_imports import Tensor, torch
from lyceum.utils.numbers import plain, to_json

FOLDER = "digests"
PARTS = ("draw", "generation", "grades", "forest", "credit", "loss", "weights")
"""In the order of a step: the first that differs is where two runs diverge."""

_TIMES = ("seconds/", "tokens_per_second")
"""Name prefixes of metrics that differ each time."""


def step_digests(
    trees: Sequence[Tree],
    forest: Forest | None,
    credited: Credited | None,
    metrics: Mapping[str, Any],
    weights: torch.nn.Module,
    beside: Mapping[str, torch.nn.Module] | None = None,
) -> dict[str, dict[str, Any]]:
    """The digests of one step by part.

    Args:
        trees: all sampled trees, dropped ones last; or demonstrations.
        forest, credited: training data of the step; None where there was none.
        metrics: metrics of the learner's update.
        weights: weights after the update.
        beside: further models of the run, by name.
    """
    models = {"": weights} | {f"models/{name}/": module for name, module in (beside or {}).items()}
    leaves = [leaf for tree in trees for leaf in tree.trajectories]
    nodes = [node for tree in trees for node in tree.nodes()]
    grades = [leaf.grade for leaf in leaves]
    outcomes = [grade.outcome for grade in grades if grade is not None and grade.outcome is not None]
    return {
        "draw": {"tasks": digest([(tree.task.id, tree.task.samples) for tree in trees]), "count": len(trees)},
        "generation": {
            "prompts": digest([root.tokens for tree in trees for root in tree.roots]),
            "tokens": digest([node.tokens for node in nodes]),
            "behaviour_logprob": digest([node.behaviour_logprob for node in nodes]),
            "versions": digest([node.version for node in nodes]),
            "sampled": sum(tree.sampled_tokens for tree in trees),
            "trajectories": len(leaves),
        },
        "grades": {
            "outcomes": digest([None if grade is None else grade.outcome for grade in grades]),
            "parts": digest([None if grade is None else _parts(grade) for grade in grades]),
            "graded": len(outcomes),
            "sum": sum(outcomes),
        },
        # A constraint is the recipe's, and no numbers; the parts of the reward are among the grades.
        "forest": {}
        if forest is None
        else _of_fields(replace(forest, constraint=None, parts={}, truncated=None, untrained=None)),
        "credit": {} if credited is None else _of_fields(credited),
        "loss": plain({name: value for name, value in metrics.items() if not name.startswith(_TIMES)}),
        "weights": {
            model + name: digest(tensor)
            for model, module in models.items()
            for name, tensor in module.state_dict().items()
        },
    }


def _parts(grade: Grade) -> tuple[dict[str, float], list[tuple[int, float]]]:
    """Parts and steps; where a step begins shows in the forest's segments."""
    return dict(grade.parts), [(step.stop, step.reward) for step in grade.steps]


def _of_fields(value: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for each in fields(value):
        inner = getattr(value, each.name)
        if isinstance(inner, Mapping):
            found |= {f"{each.name}.{name}": digest(tensor) for name, tensor in inner.items()}
        elif inner is not None:
            found[each.name] = inner if isinstance(inner, bool | int | float) else digest(inner)
    return found


def digest(value: Any) -> str:
    """Sixteen hexadecimal digits, equal for equal bits: shape, type and bytes of tensors, JSON of all else."""
    hashed = blake2b(digest_size=8)
    if isinstance(value, Tensor):
        plain = value.detach().cpu().contiguous()
        hashed.update(f"{plain.dtype} {tuple(plain.shape)}".encode())
        # Not reshaped: an expanded tensor of one number keeps a stride of 0, which cannot be viewed as bytes.
        hashed.update(plain.as_strided((plain.numel(),), (1,)).view(torch.uint8).numpy().tobytes())
    else:
        hashed.update(to_json(value, other=str).encode())
    return hashed.hexdigest()
