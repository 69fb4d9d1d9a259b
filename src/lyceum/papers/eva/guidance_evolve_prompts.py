"""eva: a creator rewrites the prompts that tell the solver most, and the solver learns on the new ones too."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from jaxtyping import Float
from pydantic import Field

from lyceum.core.component import require_keys
from lyceum.core.notes import Note
from lyceum.core.settings import GuidanceSettings
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Context, Message, ProposedSource, Rollout, Sampling, Task, TaskSource
from lyceum.guidance.base import TaskGuide, answers_to, notes_of, writable
from lyceum.utils.numbers import mean

Informativeness = Literal["gap", "best-to-mean", "uniform"]


class EvolvePrompts(GuidanceSettings):
    """A share of the drawn tasks give way to prompts that the run's model rewrites from informative earlier ones.

    What was answered in earlier steps, drawn or rewritten, waits in a pool with the spread of its rewards, by which it
    is chosen to be rewritten. A rule reads what is written and computes its answer; where it is no task, the drawn one
    is answered. Rewriting is not trained.

    Source:
        eva, arXiv:2411.00062; authors' code ZIYU-DEEP/eva (``src/evolve_prompt.py: adaptive_sample``,
        ``src/reward_hf.py: save_temp_results``).
    """

    kind: Literal["evolve-prompts"] = "evolve-prompts"
    share: float = Field(default=0.5, ge=0, le=1)
    """Share of the drawn tasks that rewritten prompts take the place of (no unit)."""
    by: Informativeness = "gap"
    """What a prompt's weight in the pool is: the ``gap`` between its best and its worst reward, that between its best
    and its mean one (``best-to-mean``), or the same for all (``uniform``)."""
    pool: int = Field(default=256, ge=1)
    """Prompts that may be rewritten, the last ones answered."""
    sampling: Sampling = Sampling(max_completion_tokens=48)
    """How a rewritten prompt is sampled."""

    def check_tasks(self, source: TaskSource) -> None:
        writable(self.kind, source)

    def build(self, source: TaskSource, *, seed: int) -> EvolvePromptsGuide:
        return EvolvePromptsGuide(self, writable(self.kind, source))


@dataclass(frozen=True)
class EvolvedPrompt:
    """A prompt of the pool.

    Attributes:
        spread: of its rewards when it was last answered, in the reward's unit.
        generation: how often it was rewritten since it was drawn.
    """

    id: str
    messages: tuple[Message, ...]
    spread: float
    generation: int


@dataclass
class Evolution(Note):
    """What became of a drawn task.

    Attributes:
        id, messages, generation: of the prompt that was answered.
        parent: spread of the prompt that was to be rewritten; None where none was.
        rejected: why what was written is no task; empty where it is one, and where nothing was written.
    """

    kind: ClassVar[str] = "evolve-prompts"
    id: str
    messages: tuple[Message, ...]
    generation: int = 0
    parent: float | None = None
    rejected: str = ""


class EvolvePromptsGuide(TaskGuide):
    """Its state: the pool, the prompts answered last at the end."""

    def __init__(self, settings: EvolvePrompts, source: ProposedSource) -> None:
        self.settings, self.source = settings, source
        self.pool: dict[str, EvolvedPrompt] = {}

    async def roll(self, rollout: Rollout, context: Context, start: Node, n: int | None) -> list[Node]:
        note = Evolution(context.task.id, context.task.messages)
        context.tree.add_note(note)
        parent = self.parent(np.random.default_rng(context.seed(self.settings.kind)))
        if parent is not None:
            note.parent = parent.spread
            child = await self.rewrite(parent, context)
            if isinstance(child, Task) and (leaves := await self.solve(rollout, context, child, n)):
                note.id, note.messages, note.generation = child.id, child.messages, parent.generation + 1
                return leaves
            note.rejected = "no tokens left" if isinstance(child, Task) else child
        return await rollout(context, start, n)

    def parent(self, rng: np.random.Generator) -> EvolvedPrompt | None:
        """The prompt to be rewritten in the place of a drawn task; None leaves the task."""
        replaced = rng.random() < self.settings.share
        weight = weights(np.array([prompt.spread for prompt in self.pool.values()]), self.settings.by)
        if not replaced or not weight.any():
            return None
        return list(self.pool.values())[int(rng.choice(len(weight), p=weight))]

    async def rewrite(self, parent: EvolvedPrompt, context: Context) -> Task | str:
        """What the model makes of a prompt; or why it is no task."""
        like = Task(parent.id, parent.messages)
        prompt = context.render(self.source.to_propose(like))
        left = context.tokens_left(Node.prompt(prompt))
        most = min(self.settings.sampling.max_completion_tokens, left, context.budget_left)
        if most < 1:
            return "no tokens left"
        sampling = self.settings.sampling.model_copy(update={"max_completion_tokens": most})
        [drawn] = await context.ask(prompt, 1, sampling, key=(self.settings.kind,))
        return "truncated" if drawn.finish == "length" else self.source.proposed(context.decode(drawn.tokens), like)

    async def solve(self, rollout: Rollout, context: Context, task: Task, n: int | None) -> list[Node]:
        """The graded answers to a rewritten prompt; none where no token is left for them."""
        return await answers_to(rollout, context.acting("", task), task.messages, task.id, n)

    def observe(self, trees: Sequence[Tree]) -> None:
        notes = notes_of(trees, Evolution)
        for tree, note in notes:
            outcomes = [outcome for _, _, outcome in tree.graded_with_outcome()]
            if outcomes:
                self.pool.pop(note.id, None)
                found = spread(outcomes, self.settings.by)
                self.pool[note.id] = EvolvedPrompt(note.id, note.messages, found, note.generation)
        self.pool = dict(list(self.pool.items())[-self.settings.pool :])
        rejected = Counter(note.rejected for _, note in notes if note.rejected)
        informative = {prompt.id for prompt in self.pool.values() if prompt.spread > 0}
        evolved = [note for _, note in notes if note.generation]
        parents = [note.parent for _, note in notes if note.parent is not None]
        self._metrics = {
            "prompts/evolved": len(evolved),
            "prompts/evolved_informative": sum(note.id in informative for note in evolved),
            "prompts/rejected": rejected.total(),
            "prompts/generation": max((note.generation for note in evolved), default=0),
            "pool/prompts": len(self.pool),
            "pool/informative": len(informative),
            **({"spread/parents": mean(parents)} if parents else {}),
            **{f"rejected/{reason}": times for reason, times in sorted(rejected.items())},
        }

    def state_dict(self) -> dict[str, Any]:
        return {"pool": [asdict(prompt) for prompt in self.pool.values()]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        require_keys("guidance.evolve-prompts", given=state, needed=self.state_dict())
        prompts = [EvolvedPrompt(**{**saved, "messages": tuple(saved["messages"])}) for saved in state["pool"]]
        self.pool = {prompt.id: prompt for prompt in prompts}


def spread(rewards: Sequence[float], by: Informativeness) -> float:
    """How much the solver can still gain on a prompt, by the rewards of its samples: max r - min r, or max r - mean r.

    In the rewards' unit; for ``uniform`` the gap, which is then only counted.
    """
    return max(rewards) - (mean(rewards) if by == "best-to-mean" else min(rewards))


def weights(spreads: Float[np.ndarray, " prompt"], by: Informativeness) -> Float[np.ndarray, " prompt"]:
    """The probability with which each prompt is rewritten.

        w_i = (s_i - min s) / (max s - min s), over their sum

    ``uniform`` is 1 / n. Where all spreads are equal they say nothing: all alike if they are above 0, else 0 for all.

    Source:
        Authors' code of eva, ``src/evolve_prompt.py: adaptive_sample``, where equal spreads divide by zero.
    """
    if not len(spreads):
        return spreads
    low, high = spreads.min(), spreads.max()
    if by == "uniform" or low == high:
        return np.full(len(spreads), 1 / len(spreads) if by == "uniform" or high > 0 else 0.0)
    above = spreads - low
    return above / above.sum()
