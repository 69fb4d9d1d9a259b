"""Coherence: whether each step follows from the text before it, by a small model fitted on the demonstrations."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Annotated, Literal

from jaxtyping import Float, Int
from pydantic import Field

from lyceum.core.component import Seed, slot
from lyceum.core.settings import ScorerSettings, TasksSettings
from lyceum.core.sources import checked_tasks
from lyceum.core.types import Grade, GradingContext, Reasoned, Scorer, Task, TaskSource
from lyceum.reward.scorer.base import BaseScorer
from lyceum.utils.errors import RecipeError
from lyceum.utils.lazy_imports import F, Tensor, nn, torch
from lyceum.utils.numbers import mean
from lyceum.utils.terminal import quoted

CONCLUSION = 16
"""Maximum characters of a conclusion."""
Step = tuple[str, str]
"""(premise, conclusion)"""

NOTHING = "\0"
"""Stands where a text is shorter than what is read."""
CHECKED = 64
"""Number of tasks whose demonstrations are looked for steps before a model is loaded."""


class StepConsistency(ScorerSettings):
    """The probability of each step's conclusion, among those of other chains, given the characters before it.

    A step is a conclusion (a number or a word) after a mark, ``45`` in ``37+8=45``; its premise are the characters up
    to the mark. Two small networks, one of premises and one of conclusions, are fitted at the first question so that a
    demonstration's conclusion is closer to its own premise than those of other demonstrations are. They learn from the
    tasks' demonstrations alone: never from the policy's completions, the tasks' answers, or the rule that judges steps.
    """

    kind: Literal["step-consistency"] = "step-consistency"
    mark: str = Field("=", min_length=1, max_length=16)
    """What stands between a premise and its conclusion."""
    window: int = Field(8, ge=2, le=256)
    """Characters of the premise that are read, the mark included."""
    demonstrations: Annotated[TasksSettings, slot("tasks")] | None = None
    """Tasks whose demonstrations are learned from; null: the run's own."""
    tasks: int = Field(4000, ge=8, le=100_000)
    """Number of tasks whose demonstrations are learned from."""
    updates: int = Field(1500, ge=1, le=100_000)
    """Updates of the networks (a few ms each)."""
    aggregate: Literal["mean", "least"] = "mean"
    """A reasoning's score: the mean of its steps' probabilities, or the least of them."""
    seed: Seed = 0
    """Random seed of the networks' first weights and of the order of examples."""

    def __hash__(self) -> int:
        return hash(self.model_dump_json())

    def build(self, source: TaskSource) -> Scorer:
        source = source if self.demonstrations is None else self.demonstrations.build("train", self.seed)
        looked_at = checked_tasks(source, CHECKED)
        if looked_at and not any(self.steps_of(_demonstration(source[index])) for index in looked_at):
            raise RecipeError(f"scorer.step-consistency: {self.nothing_to_learn}")
        return Consistency(self, source)

    @property
    def nothing_to_learn(self) -> str:
        return (
            f"no demonstration of these tasks has a step with {quoted(self.mark)}; allowed: tasks whose column "
            "'demonstration' has some (chain, chain-compare), those of others (demonstrations: chain), another mark, "
            "or another kind of scorer (encoder, reranker, causal, judge)"
        )

    def steps_of(self, text: str) -> list[Step]:
        return steps_of(text, self.mark, self.window)


class Consistency(BaseScorer):
    def __init__(self, settings: StepConsistency, source: TaskSource) -> None:
        self.settings, self.source = settings, source

    @cached_property
    def towers(self) -> Towers | None:
        """The fitted networks; None where there is nothing to learn from."""
        of, last = self.settings, min(len(self.source), self.settings.tasks)
        steps = [step for i in range(last) for step in of.steps_of(_demonstration(self.source[i]))]
        return _fitted(of, tuple(steps)) if steps else None

    async def __call__(self, task: Task, reasonings: Sequence[Reasoned], context: GradingContext) -> list[Grade]:
        if self.towers is None:
            return [Grade.ungraded(self.settings.nothing_to_learn)] * len(reasonings)
        own = [self.settings.steps_of(each.reasoning) for each in reasonings]
        probability = iter(self.towers.probabilities([step for found in own for step in found]))
        return [self.grade([next(probability) for _ in found]) for found in own]

    def grade(self, probability: Sequence[float]) -> Grade:
        if not probability:
            return Grade.ungraded(f"the reasoning has no step with {quoted(self.settings.mark)}")
        score = mean(probability) if self.settings.aggregate == "mean" else min(probability)
        return Grade(score, parts={"steps": len(probability), "least": min(probability)})


def steps_of(text: str, mark: str, window: int) -> list[Step]:
    """Every premise and conclusion of a text, in order."""
    found = re.finditer(re.escape(mark) + rf"[ \t]*([\w.]{{1,{CONCLUSION}}})", text)
    return [(text[max(0, each.start(1) - window) : each.start(1)], each[1]) for each in found]


def _demonstration(task: Task) -> str:
    text = task.columns.get("demonstration")
    return text if isinstance(text, str) else ""


class Towers:
    """Embeds premises and conclusions; their product is how well they go together.

    Args:
        characters: those of the demonstrations; others are read as one unknown one.
        conclusions: what a conclusion is compared with.
    """

    def __init__(self, characters: str, conclusions: Sequence[str], window: int, width: int = 64) -> None:
        self.number = {NOTHING: 0, **{character: n for n, character in enumerate(sorted(set(characters)), 2)}}
        self.conclusions = list(conclusions)
        self.window = window
        self.size = len(self.number) + 1  # an unknown character is 1

        def tower(length: int) -> nn.Module:
            return nn.Sequential(nn.EmbeddingBag(length * self.size, 128, mode="sum"), nn.ReLU(), nn.Linear(128, width))

        self.premise, self.conclusion = tower(window), tower(CONCLUSION)

    def parameters(self) -> list[nn.Parameter]:
        return [*self.premise.parameters(), *self.conclusion.parameters()]

    def read(self, texts: Sequence[str], length: int) -> Int[Tensor, "n length"]:
        """Each character with its place from the right, so that the last operation is always in the same one."""
        rows = [[self.number.get(each, 1) for each in text[-length:].rjust(length, NOTHING)] for text in texts]
        return torch.tensor(rows, dtype=torch.long).view(len(texts), length) + torch.arange(length) * self.size

    def premises(self, texts: Sequence[str]) -> Int[Tensor, "n length"]:
        return self.read(texts, self.window)

    def endings(self, texts: Sequence[str]) -> Int[Tensor, "n length"]:
        return self.read(texts, CONCLUSION)

    def fits(self, premises: Int[Tensor, "p window"], conclusions: Int[Tensor, "c ending"]) -> Float[Tensor, "p c"]:
        """Logits: how well each conclusion goes with each premise."""
        return self.premise(premises) @ self.conclusion(conclusions).T

    def probabilities(self, steps: Sequence[Step]) -> list[float]:
        """Of each step's conclusion, among those of the demonstrations and itself."""
        if not steps:
            return []
        known = {text: n for n, text in enumerate(self.conclusions)}
        conclusions = [conclusion for _, conclusion in steps]
        with torch.no_grad():
            premises = self.premises([premise for premise, _ in steps])
            bank = self.fits(premises, self.endings(self.conclusions))
            new = [n for n, text in enumerate(conclusions) if text not in known]
            own = self.fits(premises, self.endings(conclusions)).diagonal()
            total = bank.logsumexp(1)
            total[new] = torch.logaddexp(total, own)[new]
            return (own - total).exp().tolist()


@lru_cache(maxsize=2)
def _fitted(settings: StepConsistency, steps: tuple[Step, ...]) -> Towers:
    """A run's stages have the same: they are fitted once."""
    return fit(steps, window=settings.window, updates=settings.updates, seed=settings.seed)


def fit(steps: Sequence[Step], *, window: int, updates: int, seed: int, batch: int = 128) -> Towers:
    """Networks under which a premise's own conclusion is likelier than those of other steps.

        loss = -log (exp f(p_i, c_i) / sum_{c in the batch} exp f(p_i, c))

    Args:
        steps: of demonstrations.
    Source:
        the loss is InfoNCE, van den Oord et al., arXiv:1807.03748, with the batch's other conclusions as negatives.
    """
    conclusions = list(dict.fromkeys(conclusion for _, conclusion in steps))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        towers = Towers("".join(premise + conclusion for premise, conclusion in steps), conclusions, window)
        optimizer = torch.optim.Adam(towers.parameters(), lr=1e-2)
        schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.05, updates)
        premises, endings = towers.premises([premise for premise, _ in steps]), towers.endings(conclusions)
        place = {conclusion: n for n, conclusion in enumerate(conclusions)}
        own = torch.tensor([place[conclusion] for _, conclusion in steps])
        for _ in range(updates):
            drawn = torch.randint(len(steps), (batch,))
            among, target = own[drawn].unique(return_inverse=True)
            loss = F.cross_entropy(towers.fits(premises[drawn], endings[among]), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    for weight in towers.parameters():
        weight.requires_grad_(False)
    return towers
