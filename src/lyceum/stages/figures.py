"""Figures of one step's rollouts, as they stand in metrics.jsonl."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from lyceum.forest import Forest
from lyceum.tree import Tree
from lyceum.types import CountingEngine, Credited, Engine, Origin
from lyceum.utils.levels import level_order
from lyceum.utils.numbers import mean


def rollout_figures(trees: Sequence[Tree], dropped: Sequence[Tree], forest: Forest) -> dict[str, Any]:
    """Means over what was sampled: the step's trees, and those that dynamic sampling dropped."""
    everything = [*trees, *dropped]
    outcomes = [outcome for tree in everything for _, _, outcome in tree.graded_with_outcome()]
    leaves = [leaf for tree in everything for leaf in tree.trajectories]
    lengths = [len(leaf.completion_tokens) for leaf in leaves]
    solved = [
        (tree.task.columns.get("level"), share) for tree in everything if (share := tree.solved_unaided) is not None
    ]
    mixed = [len({outcome for _, _, outcome in tree.graded_with_outcome()}) > 1 for tree in everything]
    ungraded = [leaf for leaf in leaves if leaf.grade is None or leaf.grade.outcome is None]
    figures: dict[str, Any] = {
        "reward/mean": mean(outcomes) if outcomes else None,
        "correct/mean": mean_solved(everything),
        "share_with_gradient": mean(mixed) if mixed else None,
        "groups": len(trees),
        "groups_dropped": len(dropped),
        "completion_tokens/mean": mean(lengths) if lengths else None,
        "truncated": mean(leaf.finish == "length" for leaf in leaves) if leaves else None,
        "ungraded": len(ungraded),
        "shared_tokens": forest.shared,
        "entropy": _entropy(forest),
    }
    for level in sorted({str(level) for level, _ in solved if level is not None}, key=level_order):
        figures[f"level/{level}/correct"] = mean(share for at, share in solved if str(at) == level)
    parts: dict[str, list[float]] = {}
    for leaf in leaves:
        for name, value in (leaf.grade.parts if leaf.grade else {}).items():
            parts.setdefault(name, []).append(value)
    return figures | {f"reward/part/{name}": mean(values) for name, values in parts.items()}


def tokens_computed(engine: Engine) -> int:
    """Tokens that went through the model since the engine was built: what is shared once, and what was kept not at all.

    0 of an engine that does not say.
    """
    return engine.tokens_computed if isinstance(engine, CountingEngine) else 0


def mean_solved(trees: Sequence[Tree]) -> float | None:
    """Mean share of answers that the policy got right unaided; None where no grader says, or all were helped."""
    solved = [share for tree in trees if (share := tree.solved_unaided) is not None]
    return mean(solved) if solved else None


def mean_abs_advantage(forest: Forest, credited: Credited | None, trees: int) -> list[float]:
    """Each tree's |advantage|: the mean over a rollout's tokens that the policy wrote, then over the tree's rollouts.

        m = mean_i mean_t |A_(i, t)|

    A long rollout counts no more than a short one. Rows without a token of the policy's are left out; a tree without
    any other row has 0.

    Args:
        trees: how many trees the forest was made of; those without a graded trajectory have no rows in it.
    Source:
        The released codes of SEC (arXiv:2505.14970; auto_curriculum/priority.py) and DUMP (arXiv:2504.09710). DUMP's
        takes the absolute value of each rollout's mean, which is another number only where its signs are mixed.
    """
    if credited is None:
        return [0.0] * trees
    mask = forest.trainable(forest.rows())
    tokens = mask.sum(1)
    written = (tokens > 0).float()
    of_row = (credited.advantage.abs() * mask).sum(1) / tokens.clamp(min=1)
    rollouts = torch.zeros(trees).index_add(0, forest.group, written)
    total = torch.zeros(trees).index_add(0, forest.group, of_row)
    return (total / rollouts.clamp(min=1)).tolist()


def _entropy(forest: Forest) -> float | None:
    """Nats a token: the mean of -log p of what was sampled, an unbiased estimate that costs nothing."""
    rows = forest.rows()
    drawn = rows.gather(forest.origin, fill=int(Origin.PROMPT)) == int(Origin.POLICY)
    return -float(rows.gather(forest.behaviour_logprob)[drawn].mean()) if bool(drawn.any()) else None
