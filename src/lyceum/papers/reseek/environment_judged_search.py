"""A search whose results may be wrong, and which the policy judges: it keeps a result, or has it looked up again.

Source: ReSeek, arXiv:2510.00568: the JUDGE action, and its reward, which is above 0 where the judgement agrees with how
useful the result is and below 0 where it does not.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Literal

from pydantic import Field, model_validator

from lyceum.core.settings import EnvironmentSettings
from lyceum.core.tree import Node
from lyceum.core.types import Environment, Exchange, GradingContext, Observation, Task
from lyceum.environment._notation import AnswerSoFar
from lyceum.tasks.chain import MODULUS

COUNTED = ("wrong_results", "kept_right", "kept_wrong", "dropped_right", "dropped_wrong", "unjudged")
_QUERY = re.compile(r"(\d{1,3})[^\d+=#-]?([+-]\d{1,2})=$")


class JudgedSearch(EnvironmentSettings):
    """Answers each operation of a chain (``37+8=``) with its result, or now and then with another number. The policy
    says what it thinks of a result by the character after it, ``keep`` or ``drop``: one that is dropped is looked up
    again, as likely to be wrong as before.

    A judgement earns ``agrees`` where it is that of the rule, which knows whether the result is the right one, and as
    much less than nothing where it is not (reward ``environment``).
    """

    kind: Literal["judged-search"] = "judged-search"
    wrong: float = Field(default=0.3, ge=0, le=1)
    """Probability that a result is another number than the right one."""
    keep: str = Field(default="y", min_length=1, max_length=1)
    """What the policy writes after a result that it keeps."""
    drop: str = Field(default="n", min_length=1, max_length=1)
    """What it writes after one that it does not."""
    agrees: float = Field(default=1.0, ge=0, le=100)
    """What a judgement earns that agrees with the rule."""

    @model_validator(mode="after")
    def _marks_differ(self) -> JudgedSearch:
        if self.keep == self.drop or {self.keep, self.drop} & set("0123456789+-=#"):
            raise ValueError(f"keep, drop: got {self.keep!r} and {self.drop!r}; allowed: two that no chain has")
        return self

    @property
    def counted(self) -> tuple[str, ...]:
        return COUNTED

    @property
    def stops(self) -> tuple[str, ...]:
        return ("=", self.drop)

    def build(self) -> Environment[Looked]:
        return JudgedSearchEnvironment(self)


@dataclass(frozen=True)
class Looked(AnswerSoFar):
    """What stands in an answer, the right result of the last query, and whether that was what it was answered."""

    result: int | None = None
    right: bool = False


class JudgedSearchEnvironment:
    def __init__(self, settings: JudgedSearch) -> None:
        self.settings = settings

    def reset(self, task: Task) -> Looked:
        return Looked()

    def replay(self, task: Task, exchanges: Sequence[Exchange]) -> Looked:
        state = self.reset(task)
        for said, observed in exchanges:
            result = self.asked(state, said)
            state = replace(state.then(said, observed), result=result, right=observed == str(result))
        return state

    def asked(self, state: Looked, said: str) -> int | None:
        """The right result of what a turn asks for: of its own operation, or of the last one where that is dropped."""
        if said.startswith(self.settings.drop) and len(said) == 1:
            return state.result
        found = _QUERY.search((state.text + said)[-12:])
        return None if found is None else (int(found[1]) + int(found[2])) % MODULUS

    async def step(self, state: Looked, turn: Node, said: str, context: GradingContext) -> Observation[Looked]:
        of = self.settings
        counts: dict[str, int] = dict.fromkeys(COUNTED, 0)
        reward = 0.0
        if state.result is not None:
            mark = said[:1] if said[:1] in (of.keep, of.drop) else ""
            word = {of.keep: "kept", of.drop: "dropped", "": "unjudged"}[mark]
            counts[f"{word}_{'right' if state.right else 'wrong'}" if mark else word] = 1
            reward = of.agrees * (0 if not mark else 1 if (mark == of.keep) == state.right else -1)
        result = self.asked(state, said)
        if result is None:
            return Observation(state, reward=reward, end=True, counts=counts)
        rng = Random(context.seed(of.kind, turn.address))
        wrong = rng.random() < of.wrong
        counts["wrong_results"] = int(wrong)
        shown = str((result + rng.randrange(1, MODULUS)) % MODULUS if wrong else result)
        after = replace(state.then(said, shown), result=result, right=not wrong)
        tokens = tuple(context.encode_after(turn.path_tokens(), shown))
        return Observation(after, tokens=tokens, reward=reward, key=after.text, calls=1, counts=counts)
