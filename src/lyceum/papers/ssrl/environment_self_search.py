"""SSRL: the policy searches in itself. What it asks for, it writes as if it had been retrieved."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from lyceum.core.settings import EnvironmentSettings
from lyceum.core.tree import Node
from lyceum.core.types import Environment, GradingContext, Observation, Sampling
from lyceum.environment._notation import AnswerSoFar, Notation, WithinTurn


class SelfSearch(EnvironmentSettings):
    """Answers each query with information that the run's own model writes where it stands.

    The information was sampled from the policy and belongs to the environment: it is context of what follows, and
    neither trained nor graded. A search engine or a corpus can stand in its place with the same notation.

    Source:
        SSRL, arXiv:2508.10874, section 4 (the mask of information tokens); TsinghuaC3I/SSRL,
        ``verl/trainer/ppo/ray_trainer.py: create_information_loss_mask``.
    """

    kind: Literal["self-search"] = "self-search"
    step_timeout_seconds: float | None = Field(default=None, gt=0)
    """Time limit of the answer to a turn, in seconds; null, since the run's own model writes it in its own time."""
    notation: Notation = Notation(begin="<search>", end="</search>", before="<information>", after="</information>")
    """How queries and information stand within the policy's text."""
    until: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    """Strings before which information ends, where the notation has no text after it: the token in which one ends is
    left out, and the policy goes on from there."""
    sampling: Sampling = Sampling(max_completion_tokens=256)
    """How information is sampled, at most ``max_completion_tokens`` for each query."""

    @property
    def stops(self) -> tuple[str, ...]:
        return (self.notation.end,)

    def build(self) -> Environment[AnswerSoFar]:
        return SelfSearchEnvironment(self)


class SelfSearchEnvironment(WithinTurn):
    def __init__(self, settings: SelfSearch) -> None:
        self.settings = settings

    async def step(
        self, state: AnswerSoFar, turn: Node, said: str, context: GradingContext
    ) -> Observation[AnswerSoFar]:
        notation = self.settings.notation
        query = notation.query(state.text, said)
        if query is None:
            return Observation(state, end=True)
        path = turn.path_tokens()
        tokens = context.encode_after(path, notation.before)
        own = self.settings.sampling
        stops = (*own.stop, *self.settings.until, *((notation.after,) if notation.after else ()))
        sampling = own.model_copy(update={"stop": stops})
        [drawn] = await context.ask([*path, *tokens], 1, sampling, key=("self-search", turn.address))
        text = context.decode(drawn.tokens)
        if notation.after and notation.after in text:
            tokens += drawn.tokens
        else:  # what ended it is not part of it: an end of sequence, or a string of ``until``
            tokens += drawn.tokens[: len(drawn.tokens) - (drawn.finish == "stop")]
            tokens += context.encode_after([*path, *tokens], notation.after)
        information = context.decode(tokens)
        found = information.removeprefix(notation.before).removesuffix(notation.after).strip()
        after = state.then(said, information)
        key = f"{after.calls}:{query}:{found}"
        return Observation(after, tokens=tuple(tokens), key=key, calls=1, failed=int(not found))
