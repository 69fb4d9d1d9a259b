"""The sampling part of a stage: draws its tasks, grows and grades their trees, and keeps its token budget."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import reduce
from numbers import Real
from typing import TYPE_CHECKING, Any, cast

from lyceum.core.built import described, named, require_built
from lyceum.core.component import require_keys
from lyceum.core.needs import Gift, Gives, declared
from lyceum.core.roles import Roles
from lyceum.core.tree import Tree
from lyceum.core.types import (
    Curriculum,
    EndingCurriculum,
    Guidance,
    JudgingValue,
    ObservingValue,
    Task,
    ValueModel,
)
from lyceum.models.policy import Policy
from lyceum.reward.base import allow_code, combine
from lyceum.runtime.in_process import InProcess, ScoreUnder
from lyceum.training.stages.session import Session
from lyceum.utils.errors import RunError
from lyceum.utils.seeds import SeedKey

if TYPE_CHECKING:
    from lyceum.training.stages.offline import Offline
    from lyceum.training.stages.online import Online
    from lyceum.training.stages.reward_model import RewardModel
    from lyceum.training.stages.search_and_distil import SearchAndDistil


class Sampler:
    """A stage's tasks in, their finished trees out, until its budget of tokens is spent.

    Args:
        settings: the stage's: its curriculum, guidance, rollout, reward, value model, engine, steps and limits.
        policies: the models that it samples from; None: the run's own alone.
        roles: that these play.
        score_under: the learner's, where it may have frozen models.
        steps: with which the stage ends at the latest; None: the settings'.
        draws: tasks after which no further ones are drawn; None sets no end.
    """

    def __init__(
        self,
        settings: Online | RewardModel | SearchAndDistil | Offline,
        session: Session,
        policies: Sequence[Policy] | None = None,
        roles: Roles | None = None,
        *,
        score_under: ScoreUnder | None = None,
        steps: int | None = None,
        draws: int | None = None,
    ) -> None:
        self.settings, self.session = settings, session
        seed, policy = session.stage_seed, session.policy
        self.engine = session.build_engine(settings.engine, policies)
        curriculum = settings.curriculum.handed_on(session.run.path)
        drawing = EndingCurriculum if Gives("end") in declared(type(curriculum), "gives") else Curriculum
        self.curriculum: Curriculum = require_built(
            curriculum, curriculum.build(session.source, seed=seed, policy=policy), drawing
        )
        with allow_code():  # the user allowed the recipe's code when it was loaded
            self.guidance: list[Guidance] = [
                require_built(guide, guide.build(session.source, seed=seed), Guidance) for guide in settings.guidance
            ]
            self.rollout = reduce(lambda rollout, guide: guide(rollout), self.guidance, settings.rollout.build())
            self.grader = combine(session.reward if settings.reward is None else settings.reward, session.source)
            tools = settings.rollout.tools
        self.value: ValueModel | None = None
        if settings.value is not None:
            value = settings.value.handed_on(lambda stage: session.folder(stage) / "value")
            self.value = value.build(policy, seed=seed)
        offered = frozenset[Gift]() if settings.value is None else settings.value.offers
        online = "value-online" in offered
        self.observing = [cast(ObservingValue, self.value)] if online else []
        """The value model, where it learns from each step."""
        self.runtime = InProcess(
            policy,
            self.engine,
            self.grader,
            seed=seed,
            max_tokens_per_task=settings.max_tokens_per_task,
            value=self.value,
            grader_asks=self.grader.asks_model,
            tools=tools,
            score_under=score_under,
            judge=cast(JudgingValue, self.value) if "judgements" in offered else None,
            roles=roles,
            folder=session.run.path / "judgements",
        )
        self.samples = settings.composition().trajectories
        self.sampled_before = session.counts.tokens_sampled
        """Tokens that the run had sampled when the stage began."""
        self.computed = 0
        """Tokens computed by the model for the current step."""
        self.steps = settings.steps if steps is None else steps
        self.draws = draws
        """Tasks that may still be drawn; None: any number."""

    async def sample(
        self, tasks: int, *, key: SeedKey, step: int, phase: str = "generating", under_way: Sequence[Tree] = ()
    ) -> list[Tree]:
        """The trees of so many tasks: those under way, which go on, and those of the tasks drawn next.

        Args:
            key: part of the seeds, different for each call of the stage.
            step: steps of the stage that are done.
            phase: what the terminal shows.
        """
        new = tasks - len(under_way) if self.draws is None else min(tasks - len(under_way), self.draws)
        drawn = self.draw(new)
        self.draws = None if self.draws is None else self.draws - new
        before = self.engine.tokens_computed
        done, progress = self.session.counter(phase, len(under_way) + new), self.progress(step)
        with self.session.run.timed("generate"):
            trees = await self.runtime.run(
                drawn,
                self.rollout,
                key=key,
                samples=self.samples,
                under_way=under_way,
                step=step,
                progress=progress,
                done=done,
            )
        self.computed += self.engine.tokens_computed - before
        for tree in trees:
            if tree.unfinished:  # its tokens are of this step, whatever becomes of it
                self.session.counts.tokens_sampled += tree.sampled_tokens
                tree.sampled_tokens = 0
        return trees

    def draw(self, tasks: int) -> list[Task]:
        """So many tasks of the curriculum.

        Raises:
            RunError: it drew something else.
        """
        drawn: Any = self.curriculum.draw(tasks)
        if isinstance(drawn, list) and len(drawn) == tasks and all(isinstance(task, Task) for task in drawn):
            return drawn
        got = f"{len(drawn)} of {type(drawn[0]).__name__}" if isinstance(drawn, list) and drawn else described(drawn)
        got = "an empty list" if drawn == [] else got
        raise RunError(
            f"{named(self.settings.curriculum)}: draw({tasks}) returned {got}; allowed: a list of {tasks} tasks of the "
            "source, some of them again where it has fewer"
        )

    def weight(self, tree: Tree) -> float:
        """The curriculum's factor on the tree's advantages.

        Raises:
            RunError: it is no finite number.
        """
        weight: Any = self.curriculum.weight(tree)
        if not isinstance(weight, Real) or not math.isfinite(weight):
            raise RunError(
                f"{named(self.settings.curriculum)}: the weight of task {tree.task.id!r} is {weight!r:.100}; allowed: "
                "a finite number, 1.0 where it does not weight"
            )
        return float(weight)

    def observe(self, trees: Sequence[Tree]) -> None:
        """Give a step's results to those that learn from them."""
        for each in (self.curriculum, *self.guidance, self.grader, *self.observing):
            each.observe(trees)

    def count(self, trees: Sequence[Tree]) -> dict[str, float]:
        """Add a step's trees to the run's counts; returns their cost and what curriculum, guides and grader measured.

        At the first step the user is told if a search's steps never ended.
        """
        if not self.sampled:
            with allow_code():  # whether there are tools is told by the functions themselves
                note = self.settings.rollout.note(trees)
            if note:
                self.session.progress.say(f"rollout.step: {note}")
        self.session.count(trees)
        metrics = {f"curriculum/{name}": value for name, value in self.curriculum.metrics().items()}
        for settings, guide in zip(self.settings.guidance, self.guidance, strict=True):
            metrics |= {f"guidance/{settings.kind}/{name}": value for name, value in guide.metrics().items()}
        rollout = self.settings.rollout
        metrics |= {f"rollout/{rollout.kind}/{name}": value for name, value in rollout.metrics(trees).items()}
        metrics |= {f"reward/{name}": value for name, value in self.grader.metrics().items()}
        metrics |= {f"value/{name}": number for value in self.observing for name, number in value.metrics().items()}
        metrics["tokens_computed/step"], self.computed = self.computed, 0
        return metrics

    @property
    def sampled(self) -> int:
        """Tokens that the stage has sampled."""
        return self.session.counts.tokens_sampled - self.sampled_before

    @property
    def spent(self) -> bool:
        limit = self.settings.max_tokens
        return self.all_drawn or (limit is not None and self.sampled >= limit)

    @property
    def spent_by(self) -> str:
        """What ended the stage where something is spent, as a clause; else empty."""
        if self.all_drawn:
            return "its epochs are over"
        return f"{self.sampled} tokens are sampled (max_tokens={self.settings.max_tokens})" if self.spent else ""

    @property
    def all_drawn(self) -> bool:
        """Whether the epochs are over."""
        return self.draws == 0

    def progress(self, step: int) -> float:
        """Share of the stage that is done, by steps or by tokens, whichever is further."""
        limit = self.settings.max_tokens
        return min(1.0, max(step / self.steps, 0.0 if limit is None else self.sampled / limit))

    def expected_steps(self, step: int) -> int | None:
        """Number of steps that the epochs, or the budget at the mean cost so far, will last; None without either."""
        if self.settings.max_tokens is None:
            return None if self.draws is None else self.steps
        return min(self.steps, max(step, math.ceil(step * self.settings.max_tokens / max(1, self.sampled))))

    def state_dict(self) -> dict[str, Any]:
        drawn = {} if self.draws is None else {"draws": self.draws}
        return drawn | {
            "sampled_before": self.sampled_before,
            "curriculum": self.curriculum.state_dict(),
            "guidance": [guide.state_dict() for guide in self.guidance],
            "grader": self.grader.state_dict(),
            "value": None if self.value is None else self.value.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        require_keys("stage.sampler", given=state, needed=self.state_dict())
        self.sampled_before = state["sampled_before"]
        if self.draws is not None:
            self.draws = int(state["draws"])
        self.curriculum.load_state_dict(state["curriculum"])
        for guide, saved in zip(self.guidance, state["guidance"], strict=True):
            guide.load_state_dict(saved)
        self.grader.load_state_dict(state["grader"])
        if self.value is not None:
            self.value.load_state_dict(state["value"])
