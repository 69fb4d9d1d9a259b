"""Steps of a learner on random trees, the same ones in each call."""

import torch
from random_trees import letters, random_trees

from lyceum.core.forest import build_forest
from lyceum.core.types import Credited
from lyceum.objective.ppo_clip import PPOClip


def trained(learner, steps):
    """The weights after these steps, each of which has its own trees and advantages."""
    for step in steps:
        forest = build_forest(random_trees(13 + step), decode=letters)
        advantage = torch.randn(forest.n_rows, generator=torch.Generator().manual_seed(step))
        learner.step(forest, Credited(advantage[:, None] * forest.trainable(forest.rows())), PPOClip().build())
    return [p.detach().clone() for p in learner.parameters]
