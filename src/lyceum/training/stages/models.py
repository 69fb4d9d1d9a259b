"""A stage's models: the run's own, and copies of it that are trained beside it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lyceum.core.roles import Roles
from lyceum.core.types import Engine, Learner
from lyceum.engine.by_model import EngineByModel
from lyceum.learner.by_model import LearnerByModel
from lyceum.models.policy import Policy

if TYPE_CHECKING:
    from lyceum.training.stages.online import Online


def models_of(roles: Roles, policy: Policy) -> list[Policy]:
    """The policy, and a copy of it as it is now for each further model of a stage."""
    copies = [Policy(copy.deepcopy(policy.module), policy.tokenizer) for _ in roles.models[1:]]
    return [policy, *copies]


def learner_of(
    stage: Online, policies: Sequence[Policy], needs: frozenset[str], total_steps: int, stages: Path
) -> Learner:
    """What trains the stage's models, for so many steps.

    Args:
        stages: the run's folder of what its stages left.
    """
    reference = None if stage.reference is None else stage.reference.of_run(stages)
    learners = [
        stage.learner.build(
            policy,
            total_steps=total_steps,
            needs=needs,
            teacher=stage.teacher,
            average=stage.average,
            reference=reference,
        )
        for policy in policies
    ]
    return learners[0] if len(learners) == 1 else LearnerByModel(dict(zip(stage.roles.models, learners, strict=True)))


def engine_of(policies: Sequence[Policy], build: Callable[[Policy], Engine]) -> Engine:
    """What samples from the models."""
    engines = [build(policy) for policy in policies]
    return engines[0] if len(engines) == 1 else EngineByModel(engines, policies)
