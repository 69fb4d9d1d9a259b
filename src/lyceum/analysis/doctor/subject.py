"""The model under examination: loaded, with its engine, and completions that were sampled from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from lyceum.analysis.doctor.request import DoctorRequest
from lyceum.analysis.doctor.result import Allowed, allowed_in
from lyceum.core.forest import Forest, build_forest
from lyceum.core.settings import LearnerSettings
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Continuation, Credited, Engine, Learner, Origin, Request, Sampling, Task
from lyceum.models.policy import Policy
from lyceum.objective.ppo_clip import PPOClip
from lyceum.utils.aio import gather
from lyceum.utils.lazy_imports import torch
from lyceum.utils.seeds import counter_seed

PLAIN = "temperature 1"
NUCLEUS = "temperature 0.8, top-p 0.9"
RANDOM = "temperature 3, top-k 20"
SAMPLINGS = {
    PLAIN: Sampling(),
    "temperature 0.6": Sampling(temperature=0.6),
    NUCLEUS: Sampling(temperature=0.8, top_p=0.9),
    RANDOM: Sampling(temperature=3.0, top_k=20),
}
"""How the examined completions are sampled."""

WINDOWS = ("sliding_window", "attention_chunk_size", "attention_window_size")
"""Names that configurations have for how far a token sees."""


@dataclass(frozen=True)
class Draw:
    """A completion: what was requested, and what the engine drew."""

    prompt: tuple[int, ...]
    sampling: Sampling
    seed: int
    drawn: Continuation

    @property
    def path(self) -> list[int]:
        return [*self.prompt, *self.drawn.tokens]


@dataclass
class Subject:
    """What the checks examine. Its weights change in the checks of publishing and saving, which come last.

    Attributes:
        samples: completions by the name of their sampling settings, all drawn in one batch.
        warnings: what loading said.
        trained_tokens_per_second: measured by the check of publishing.
    """

    request: DoctorRequest
    policy: Policy
    engine: Engine
    samples: dict[str, list[Draw]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    trained_tokens_per_second: float | None = None

    @cached_property
    def prompts(self) -> list[tuple[int, ...]]:
        return [tuple(self.policy.render(task.messages)) for task in self.request.tasks]

    @property
    def all_samples(self) -> list[Draw]:
        return [draw for draws in self.samples.values() for draw in draws]

    @property
    def allowed(self) -> Allowed:
        own = str(self.policy.causal.dtype).removeprefix("torch.")
        settings = (self.request.engine.precision, self.request.learner.precision)
        return allowed_in([own, *(precision for precision in settings if precision is not None)])

    @property
    def length(self) -> int | None:
        """Tokens of a prompt and completion beyond the windows in which the model attends; None without windows."""
        if self.request.length is not None:
            return self.request.length
        config = self.policy.causal.config.get_text_config()
        limits = [limit for name in WINDOWS if isinstance(limit := getattr(config, name, None), int)]
        within = [limit for limit in limits if limit < self.policy.context_length]
        return min(max(within) + 2 * self.request.tokens, self.policy.context_length) if within else None

    def seed_of(self, place: int) -> int:
        return counter_seed(self.request.seed, "doctor", place)

    async def sample(self) -> None:
        """Draw the completions of all sampling settings, together."""
        drawn = await gather(self.draw(sampling, self.request.samples) for sampling in SAMPLINGS.values())
        self.samples = dict(zip(SAMPLINGS, drawn, strict=True))

    async def draw(self, sampling: Sampling, n: int, *, keep: bool = False) -> list[Draw]:
        """``n`` completions, the prompts in turn; the same call draws the same seeds."""
        count = len(self.prompts)
        shares = [[self.seed_of(i) for i in range(p, n, count)] for p in range(count)]
        found = await gather(
            self.extend(prompt, sampling, seeds, keep=keep, order=(p,))
            for p, (prompt, seeds) in enumerate(zip(self.prompts, shares, strict=True))
        )
        return [draw for part in found for draw in part]

    async def extend(
        self,
        prompt: Sequence[int],
        sampling: Sampling,
        seeds: Sequence[int],
        *,
        keep: bool = False,
        order: tuple[int, ...] = (),
    ) -> list[Draw]:
        """Continue a prompt, at most by the tokens that were asked for."""
        temperature = min(sampling.usual_temperature, self.request.engine.highest_temperature)
        sampling = sampling.model_copy(
            update={"max_completion_tokens": self.request.tokens, "temperature": temperature}
        )
        drawn = await self.engine.extend(Request(prompt, seeds, sampling, keep=keep, order=order))
        return [Draw(tuple(prompt), sampling, seed, of) for seed, of in zip(seeds, drawn, strict=True)]

    def learner(self, settings: LearnerSettings | None = None, *, lr: float | None = None) -> Learner:
        settings = settings or self.request.learner
        settings = settings if lr is None else settings.model_copy(update={"lr": lr})
        return settings.build(self.policy, total_steps=MOST_UPDATES, needs=frozenset())


MOST_UPDATES = 8
"""Maximum updates that the doctor makes with one learner."""


def forest_of(draws: Sequence[Draw], temperature: float = 1.0) -> tuple[Forest, list[int]]:
    """The completions as a learner gets them, and the place among ``draws`` of each of its rows."""
    trees: dict[tuple[int, ...], Tree] = {}
    places: dict[tuple[int, ...], list[int]] = {}
    for place, draw in enumerate(draws):
        if draw.prompt not in trees:
            root = Node(None, list(draw.prompt), Origin.PROMPT)
            trees[draw.prompt], places[draw.prompt] = Tree(Task(str(len(trees)), ()), [root]), []
        trees[draw.prompt].root.add_drawn(replace(draw.drawn))
        places[draw.prompt].append(place)
    forest = build_forest(list(trees.values()), temperature=temperature, graded=False)
    return forest, [place for of_prompt in places.values() for place in of_prompt]


def learner_logprobs(learner: Learner, draws: Sequence[Draw], temperature: float = 1.0) -> list[list[float]]:
    """Log-probabilities (nats) that the learner gives the drawn tokens, at a sampling temperature."""
    forest, places = forest_of(draws, temperature)
    annotated = learner.annotate(forest, frozenset({"old_logprob"}))
    rows = forest.rows().gather(annotated.columns["old_logprob"]).tolist()
    found: list[list[float]] = [[] for _ in draws]
    for row, place in zip(rows, places, strict=True):
        start = len(draws[place].prompt)
        found[place] = row[start : start + len(draws[place].drawn.tokens)]
    return found


def model_logprobs(draws: Sequence[Draw]) -> list[list[float]]:
    return [draw.drawn.model_logprob for draw in draws]


def behaviour_logprobs(draws: Sequence[Draw]) -> list[list[float]]:
    return [draw.drawn.behaviour_logprob for draw in draws]


OBJECTIVE = PPOClip.model_validate({"aggregate": "sequence"})
"""The loss of ``grpo``."""


def group_advantages(forest: Forest) -> Credited:
    """Advantages 1 and -1/2 in turn: they do not add up to 0, so that the gradients of equal trajectories do not."""
    advantage = torch.tensor([advantage_of(row) for row in range(forest.n_rows)])
    return Credited(advantage[:, None] * forest.trainable(forest.rows()))


def advantage_of(row: int) -> float:
    return -0.5 if row % 2 else 1.0
