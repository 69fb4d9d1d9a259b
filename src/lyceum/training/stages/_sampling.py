"""The sampling part of a stage: draws its tasks, grows and grades their trees, and keeps its token budget."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from numbers import Real
from typing import TYPE_CHECKING, Any

from lyceum.core.built import described, named, require_built
from lyceum.core.component import require_keys
from lyceum.core.needs import Gives, declared
from lyceum.core.roles import Roles
from lyceum.core.tallies import with_added
from lyceum.core.tree import Tree
from lyceum.core.types import Curriculum, EndingCurriculum, Learner, Task, ValueModel
from lyceum.core.waves import Grown, Runtime, Starts, Ticket, Wave
from lyceum.models.policy import Policy
from lyceum.reward.base import allow_code
from lyceum.runtime.in_process import counted
from lyceum.training.stages.growing import Growing
from lyceum.training.stages.session import Session
from lyceum.utils.errors import RunError
from lyceum.utils.seeds import SeedKey

if TYPE_CHECKING:
    from lyceum.training.stages.models import SamplingStage


class Sampler:
    """A stage's tasks in, their finished trees out, until its budget of tokens is spent.

    Args:
        settings: the stage's: its curriculum, guidance, rollout, reward, value model, engine, steps and limits.
        policies: the models that it samples from; None: the run's own alone.
        roles: that these play.
        learner: trains the stage's models.
        steps: with which the stage ends at the latest; None: the settings'.
        draws: tasks after which no further ones are drawn; None sets no end.
    """

    def __init__(
        self,
        settings: SamplingStage,
        session: Session,
        policies: Sequence[Policy] | None = None,
        roles: Roles | None = None,
        *,
        learner: Learner,
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
        value: ValueModel | None = None
        if settings.value is not None:
            value = settings.value.handed_on(lambda stage: session.folder(stage) / "value").build(policy, seed=seed)
        self.growing = Growing(
            settings,
            policy,
            self.engine,
            session.source,
            session.reward,
            seed=seed,
            folder=session.judgements,
            learner=learner,
            policies=policies,
            value=value,
            roles=roles,
        )
        runtime = settings.composition().runtime or settings.runtime
        self.runtime: Runtime = runtime.build(self.growing, session.for_workers)
        self.published: int | None = None
        """Version of the weights, and of all else, that the runtime was given last."""
        self.sampled_before = session.counts.tokens_sampled
        """Tokens that the run had sampled when the stage began."""
        self.started = False
        """Whether the runtime's workers are."""
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
        await self.start()
        wave = self.wave(tasks, key=key, step=step, under_way=under_way)
        done = self.session.counter(phase, len(wave.tickets))
        with self.session.run.timed("generate"):
            return self.finished(await self.runtime.grow(wave, done))

    async def begun(self, future: Future[Grown]) -> list[Tree]:
        """The trees of a wave that was begun before."""
        self.session.progress.phase("generating")
        with self.session.run.timed("generate"):
            return self.finished(await asyncio.wrap_future(future))

    async def start(self) -> None:
        """Wait until trees can grow, which is no part of the first step's time."""
        self.publish()
        if self.started or not isinstance(self.runtime, Starts):
            return
        self.started = True
        progress = self.session.progress
        with self.session.run.timed("start"), progress.apart("start"):
            await self.runtime.started(lambda ready, of: progress.phase("starting workers", ready, of))

    def publish(self) -> None:
        """Let trees grow under the weights that the engine has, wherever they do."""
        if self.published != self.engine.version:
            self.published = self.engine.version
            self.runtime.publish(self.published)

    def wave(self, tasks: int, *, key: SeedKey, step: int, under_way: Sequence[Tree] = ()) -> Wave:
        """Draw the tasks of :meth:`sample`."""
        self.publish()
        new = tasks - len(under_way) if self.draws is None else min(tasks - len(under_way), self.draws)
        drawn = self.draw(new)
        self.draws = None if self.draws is None else self.draws - new
        trees = [*under_way, *[None] * len(drawn)]
        of_tasks = [*(tree.task for tree in under_way), *drawn]
        tickets = map(Ticket, of_tasks, counted(of_tasks), trees)
        return Wave(key, step, self.progress(step), self.engine.version, tuple(tickets))

    def finished(self, grown: Grown) -> list[Tree]:
        """A wave's trees, whose cost, and what was counted for them, counts from now on."""
        self.computed += grown.computed
        grader = self.growing.grader
        if grown.counted:
            grader.load_state_dict(with_added(grader.state_dict(), grown.counted))
        for tree in grown.trees:
            if tree.unfinished:  # its tokens are of this step, whatever becomes of it
                self.session.counts.tokens_sampled += tree.sampled_tokens
                tree.sampled_tokens = 0
        return grown.trees

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
        growing = self.growing
        for each in (self.curriculum, *growing.guidance, growing.grader, *growing.observing):
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
        for settings, guide in zip(self.settings.guidance, self.growing.guidance, strict=True):
            metrics |= {f"guidance/{settings.kind}/{name}": value for name, value in guide.metrics().items()}
        rollout = self.settings.rollout
        metrics |= {f"rollout/{rollout.kind}/{name}": value for name, value in rollout.metrics(trees).items()}
        metrics |= {f"reward/{name}": value for name, value in self.growing.grader.metrics().items()}
        metrics |= {
            f"value/{name}": number for value in self.growing.observing for name, number in value.metrics().items()
        }
        metrics["tokens_computed/step"], self.computed = self.computed, 0
        return metrics

    @property
    def sampled(self) -> int:
        """Tokens that the stage has sampled."""
        return self.session.counts.tokens_sampled - self.sampled_before

    @property
    def spent(self) -> bool:
        return self.all_drawn or self.over_budget

    @property
    def over_budget(self) -> bool:
        """Whether its tokens are sampled."""
        limit = self.settings.max_tokens
        return limit is not None and self.sampled >= limit

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
        of_drawing = {"sampled_before": self.sampled_before, "curriculum": self.curriculum.state_dict()}
        return drawn | of_drawing | self.growing.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        require_keys("stage.sampler", given=state, needed=self.state_dict())
        self.sampled_before = state["sampled_before"]
        if self.draws is not None:
            self.draws = int(state["draws"])
        self.curriculum.load_state_dict(state["curriculum"])
        self.growing.load_state_dict({name: state[name] for name in self.growing.state_dict()})
