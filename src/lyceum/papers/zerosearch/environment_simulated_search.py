"""ZeroSearch: a model plays the search engine, and its documents get worse over the run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal

from pydantic import Field, field_validator

from lyceum.core.component import Settings
from lyceum.core.schedule import Schedule
from lyceum.core.settings import EnvironmentSettings
from lyceum.core.tree import Node
from lyceum.core.types import Environment, Exchange, GradingContext, Observation, Sampling, Task
from lyceum.environment._notation import AnswerSoFar, Notation
from lyceum.reward.base import right_answers
from lyceum.reward.scorer.base import question_of
from lyceum.tasks.prompt import fields_of, fill

NOISY = "noisy"
FIELDS = frozenset({"query", "question", "answer"})


class SearchPrompts(Settings):
    """What the engine is asked, with {query}, and as far as they are wanted {question} and {answer}."""

    useful: str = Field(
        default='The user is trying to answer the question "{question}", whose answer is {answer}. You are the search '
        "engine: write five documents of about 30 words that contain useful information.\nQuery: {query}",
        max_length=10_000,
    )
    """For documents that help."""
    noisy: str = Field(
        default='The user is trying to answer the question "{question}", whose answer is {answer}. You are the search '
        "engine: write five documents of about 30 words that are related and contain noisy information.\n"
        "Query: {query}",
        max_length=10_000,
    )
    """For documents that do not."""

    @field_validator("useful", "noisy")
    @classmethod
    def _asks_for_the_query(cls, text: str) -> str:
        found = set(fields_of(text))
        if "query" not in found or found - FIELDS:
            raise ValueError(f"got {text!r}; allowed: a text with {{query}}, and perhaps {{question}} and {{answer}}")
        return text


class SimulatedSearch(EnvironmentSettings):
    """Answers each query with documents that the run's own model writes under a prompt of its own: useful ones, or
    noisy ones with a probability that changes over the stage.

    The documents are context of what follows, neither trained nor graded. A fine-tuning before it can teach the model
    to write them (``chain-documents``). A search engine or a corpus can stand in its place with the same notation.

    Source:
        ZeroSearch, arXiv:2505.04588; Alibaba-NLP/ZeroSearch, llm_agent/generation.py, where the simulator is another
        model.
    """

    kind: Literal["simulated-search"] = "simulated-search"
    step_timeout_seconds: float | None = Field(default=None, gt=0)
    """Time limit of the answer to a turn, in seconds; null, since the run's own model writes it in its own time."""
    notation: Notation = Notation(begin="<search>", end="</search>", before="<information>", after="</information>")
    """How queries and documents stand within the policy's text."""
    prompts: SearchPrompts = SearchPrompts()
    """What the model is asked, for useful and for noisy documents."""
    noise: Schedule = Schedule(values=(0.0, 0.5))
    """Probability of noisy documents over the stage: a list of values, or ``{values, form, begin, end}``. Evaluations
    take the first value."""
    sampling: Sampling = Sampling(max_completion_tokens=256)
    """How documents are sampled."""

    @field_validator("noise")
    @classmethod
    def _is_a_probability(cls, noise: Schedule) -> Schedule:
        if not all(0 <= value <= 1 for value in noise.values):
            raise ValueError(f"got {list(noise.values)}; allowed: probabilities")
        return noise

    @property
    def counted(self) -> tuple[str, ...]:
        return (NOISY,)

    @property
    def stops(self) -> tuple[str, ...]:
        return (self.notation.end,)

    def build(self) -> Environment[Asked]:
        return SimulatedSearchEnvironment(self)


@dataclass(frozen=True)
class Asked(AnswerSoFar):
    """What stands in an answer, and the task that it answers, as texts."""

    question: str = ""
    answer: str = ""


class SimulatedSearchEnvironment:
    def __init__(self, settings: SimulatedSearch) -> None:
        self.settings = settings

    def reset(self, task: Task) -> Asked:
        answer = next(iter(right_answers(task)), "")
        return Asked(question=question_of(task.messages), answer=str(answer))

    def replay(self, task: Task, exchanges: Sequence[Exchange]) -> Asked:
        return self.reset(task).after(exchanges)

    async def step(self, state: Asked, turn: Node, said: str, context: GradingContext) -> Observation[Asked]:
        notation, of = self.settings.notation, self.settings
        query = notation.query(state.text, said)
        if query is None:
            return Observation(state, end=True)
        chance = Random(context.seed(of.kind, turn.address)).random()
        noisy = chance < of.noise.at(context.progress)
        asked = {"query": query, "question": state.question, "answer": state.answer}
        text = fill(of.prompts.noisy if noisy else of.prompts.useful, asked)
        prompt = context.render([{"role": "user", "content": text}])
        [drawn] = await context.ask(prompt, 1, of.sampling, key=(of.kind, turn.address))
        documents = context.decode(drawn.tokens).strip()
        answer = f"{notation.before}{documents}{notation.after}"
        after = state.then(said, answer)
        return Observation(
            after,
            tokens=tuple(context.encode_after(turn.path_tokens(), answer)),
            key=f"{after.calls}:{query}:{documents}",
            calls=1,
            failed=int(not documents),
            counts={NOISY: int(noisy)},
        )
