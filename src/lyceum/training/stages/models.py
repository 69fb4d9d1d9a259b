"""A stage's models: the run's own, and copies of it that are trained beside it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lyceum.core.needs import FROZEN
from lyceum.core.roles import Roles
from lyceum.core.types import Engine, Learner
from lyceum.engine.by_model import EngineByModel
from lyceum.learner.by_model import LearnerByModel
from lyceum.models.frozen import FrozenSettings
from lyceum.models.policy import Policy

if TYPE_CHECKING:
    from lyceum.training.stages.offline import Offline
    from lyceum.training.stages.online import Online
    from lyceum.training.stages.reward_model import RewardModel
    from lyceum.training.stages.search_and_distil import SearchAndDistil

    SamplingStage = Online | RewardModel | SearchAndDistil | Offline
    """A stage that samples."""


def models_of(roles: Roles, policy: Policy) -> list[Policy]:
    """The policy, and a copy of it as it is now for each further model of a stage."""
    copies = [Policy(copy.deepcopy(policy.module), policy.tokenizer) for _ in roles.models[1:]]
    return [policy, *copies]


def learner_of(
    stage: SamplingStage, policies: Sequence[Policy], needs: frozenset[str], total_steps: int, stages: Path
) -> Learner:
    """What trains the stage's models, for so many steps.

    Args:
        stages: the run's folder of what its stages left.
    """
    of = stage.composition()
    reference = None if of.reference is None else of.reference.of_run(stages)
    frozen = FrozenSettings(of.teacher, of.average, reference)
    learners = [stage.learner.build(policy, total_steps=total_steps, needs=needs, frozen=frozen) for policy in policies]
    if of.roles is None or len(learners) == 1:
        return learners[0]
    return LearnerByModel(dict(zip(of.roles.models, learners, strict=True)))


def scored_under(stage: SamplingStage) -> frozenset[str]:
    """The frozen models under which the stage's own rewards score while trees grow."""
    return frozenset().union(*(part.needed & FROZEN for part in stage.reward or ()))


def engine_of(policies: Sequence[Policy], build: Callable[[Policy], Engine]) -> Engine:
    """What samples from the models."""
    engines = [build(policy) for policy in policies]
    return engines[0] if len(engines) == 1 else EngineByModel(engines, policies)
