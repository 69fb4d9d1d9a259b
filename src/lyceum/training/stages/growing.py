"""The growing part of a stage: drawn tasks and a version of the weights in, finished trees out, in any process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from lyceum.core.built import require_built
from lyceum.core.component import require_keys
from lyceum.core.needs import Gift
from lyceum.core.roles import Roles
from lyceum.core.settings import RewardSettings
from lyceum.core.types import (
    Engine,
    Guidance,
    JudgingValue,
    Kept,
    Learner,
    ObservingValue,
    RecordsRouting,
    State,
    TaskSource,
    ValueModel,
)
from lyceum.core.waves import Done, Grown, Wave
from lyceum.models.policy import Policy
from lyceum.models.weights import load_trained, trained_weights
from lyceum.reward.base import allow_code, combine
from lyceum.runtime.in_process import InProcess
from lyceum.training.stages.models import engine_of, learner_of, models_of, scored_under

if TYPE_CHECKING:
    from lyceum.training.stages.models import SamplingStage

Told = Mapping[str, Any]
"""What ``Session.for_workers`` says."""


class Growing:
    """Grows and grades a stage's trees over one engine.

    Args:
        settings: the stage's: its guidance, rollout, reward, value model and limits.
        engine: that serves the policy.
        reward: the recipe's, for a stage without one of its own.
        seed: of the stage.
        folder: where graders keep what they paid for.
        learner: trains the stage's models, and has the frozen ones.
        policies: the models that it samples from; None: the policy alone.
        value: the stage's value model.
        roles: that its models play.
    """

    def __init__(
        self,
        settings: SamplingStage,
        policy: Policy,
        engine: Engine,
        source: TaskSource,
        reward: tuple[RewardSettings, ...],
        *,
        seed: int,
        folder: Path,
        learner: Learner,
        policies: Sequence[Policy] | None = None,
        value: ValueModel | None = None,
        roles: Roles | None = None,
    ) -> None:
        self.policy, self.engine, self.learner, self.value = policy, engine, learner, value
        self.policies = policies or [policy]
        if "routing" in settings.learner.needed:
            cast(RecordsRouting, engine).record_routing()
        self.scored_under = scored_under(settings)
        with allow_code():  # the user allowed the recipe's code when it was loaded
            self.guidance: list[Guidance] = [
                require_built(guide, guide.build(source, seed=seed), Guidance) for guide in settings.guidance
            ]
            self.rollout = reduce(lambda rollout, guide: guide(rollout), self.guidance, settings.rollout.build())
            self.grader = combine(reward if settings.reward is None else settings.reward, source)
            tools = settings.rollout.tools
        offered = frozenset[Gift]() if settings.value is None else settings.value.offers
        self.observing = [cast(ObservingValue, value)] if "value-online" in offered else []
        """The value model, where it learns from each step."""
        learns = self.observing or "value" in settings.leaves
        self.constant = frozenset({"reference"} if learns else {"reference", "value"})
        judges = "judgements" in offered
        self.grades_apart = not (self.grader.asks_model or "average" in self.scored_under or (judges and learns))
        """Whether grading needs no model that changes, so that a wave may be graded while the next one is drawn."""
        self.samples = settings.composition().trajectories
        self.here = InProcess(
            policy,
            engine,
            self.grader,
            seed=seed,
            max_tokens_per_task=settings.max_tokens_per_task,
            value=value,
            grader_asks=self.grader.asks_model,
            tools=tools,
            score_under=learner.score_under,
            judge=cast(JudgingValue, value) if judges else None,
            roles=roles,
            folder=folder,
        )

    @classmethod
    def elsewhere(
        cls, settings: SamplingStage, policy: Policy, source: TaskSource, reward: tuple[RewardSettings, ...], told: Told
    ) -> Growing:
        """In another process than the run's, from what it is told: its models have the weights of no snapshot yet."""
        of = settings.composition()
        policies = [policy] if of.roles is None else models_of(of.roles, policy)
        learner = learner_of(settings, policies, scored_under(settings), 1, Path(told["stages"]))
        value: ValueModel | None = None
        if of.value is not None:
            left: Mapping[str, str] = told["left"]
            value = of.value.handed_on(lambda stage: Path(left[stage]) / "value").build(policy, seed=told["seed"])
        return cls(
            settings,
            policy,
            engine_of(policies, settings.engine.build),
            source,
            reward,
            seed=told["seed"],
            folder=Path(told["judgements"]),
            learner=learner,
            policies=policies,
            value=value,
            roles=of.roles,
        )

    async def grow(self, wave: Wave, done: Done, drawn: Done | None = None) -> Grown:
        """
        Args:
            drawn: called when all rollouts have ended, so that only grading is left.
        """
        before, computed = self.engine.tokens_computed, 0

        def ended() -> None:
            nonlocal computed
            computed = self.engine.tokens_computed - before
            if drawn is not None:
                drawn()

        under_way = [ticket for ticket in wave.tickets if ticket.tree is not None]
        new = [ticket for ticket in wave.tickets if ticket.tree is None]
        trees = await self.here.run(
            [ticket.task for ticket in new],
            self.rollout,
            key=wave.key,
            samples=self.samples,
            under_way=[ticket.tree for ticket in under_way if ticket.tree is not None],
            numbers=[ticket.number for ticket in (*under_way, *new)],
            step=wave.step,
            progress=wave.progress,
            done=lambda _: done(),
            drawn=ended,
        )
        return Grown(trees, computed if self.grades_apart else self.engine.tokens_computed - before)

    async def beside(self, wave: Wave, place: int, drawing: AbstractAsyncContextManager[object]) -> Grown:
        """The tree of a wave of one ticket, beside others; what it costs is not known alone, and is 0 here."""
        (ticket,) = wave.tickets
        tree = await self.here.beside(
            ticket.task,
            self.rollout,
            key=wave.key,
            place=place,
            samples=self.samples,
            step=wave.step,
            progress=wave.progress,
            drawing=drawing,
        )
        return Grown([tree], 0)

    def publish(self, version: int) -> None:
        """Its engine has the weights that the stage has loaded."""

    def close(self) -> None:
        """Nothing of it runs elsewhere."""

    def models(self) -> dict[str, State]:
        frozen: dict[Kept, State] = {
            name: self.learner.models((name,)) for name in ("average", "reference") if name in self.scored_under
        }
        value = {} if self.value is None else {"value": self.value.state_dict()}
        return {"policies": {"of": [trained_weights(policy.module) for policy in self.policies]}, **frozen, **value}

    def load_model(self, name: str, state: State) -> None:
        """One of ``models``, as another process has it."""
        if name == "policies":
            for policy, weights in zip(self.policies, state["of"], strict=True):
                load_trained(policy.module, weights)
        elif name == "value":
            assert self.value is not None
            self.value.load_state_dict(state)
        else:
            self.learner.load_weights(state)

    def states(self) -> dict[str, Any]:
        return {
            "guidance": [guide.state_dict() for guide in self.guidance],
            "grader": self.grader.state_dict(),
        }

    def load_states(self, state: Mapping[str, Any]) -> None:
        saved: Sequence[dict[str, Any]] = state["guidance"]
        for guide, of_guide in zip(self.guidance, saved, strict=True):
            guide.load_state_dict(of_guide)
        self.grader.load_state_dict(state["grader"])

    def state_dict(self) -> dict[str, Any]:
        return {**self.states(), "value": None if self.value is None else self.value.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        require_keys("stage.sampler.growing", given=state, needed=self.state_dict())
        self.load_states(state)
        if self.value is not None:
            self.value.load_state_dict(state["value"])
