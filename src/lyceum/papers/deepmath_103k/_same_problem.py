"""Whether two texts state the same problem: by a rule, or by a language model that is asked."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Literal, cast

from pydantic import Field, model_validator

from lyceum.core.component import PathText
from lyceum.core.types import GradingContext
from lyceum.reward.scorer.judging import Asker, JudgeModel, fenced, said
from lyceum.utils.seeds import SeedKey, counter_seed

LABEL = "same"
"""What the last line of a reply begins with."""
QUESTION = (
    "You compare two problems. Say whether they are the same problem: equal, or one a paraphrase of the other, so that "
    "whoever has solved the one has solved the other. Another wording, order or notation, other names and remarks that "
    "do not matter leave a problem the same; other numbers, or another question, make it another one."
)
_SIGNED = re.compile(r"[-+]?\d+(?:\.\d+)?")


class SameProblem(JudgeModel):
    """Who says whether two texts state the same problem: a model behind an endpoint, a frozen one, or a rule."""

    rule: Literal["numbers"] | None = None
    """``numbers``: the same problem where both have the same numbers, each with the sign before it, in any order."""
    question: str = Field(QUESTION, min_length=1)
    """What a model is told."""
    both_orders: bool = True
    """Ask a model twice, with either text first, since it may prefer a place; one yes is enough."""
    replies: PathText | None = None
    """Folder in which an endpoint's replies are kept: a run that is resumed or evaluated asks nothing twice."""

    @model_validator(mode="after")
    def _is_one_judge(self) -> SameProblem:
        named = [name for name in ("endpoint", "model", "rule") if getattr(self, name) is not None]
        if len(named) != 1:
            raise ValueError(f"got {' and '.join(named) or 'nobody'}; allowed: one of endpoint, model, rule")
        if self.form != "words":
            raise ValueError(f"form: got {self.form!r}; allowed: words")
        if self.endpoint is not None and self.replies is None:
            raise ValueError("replies: got null with an endpoint; allowed: a folder for its replies")
        return self

    def build(self) -> SameJudge:
        return SameJudge(self)


class SameJudge:
    def __init__(self, settings: SameProblem) -> None:
        self.settings = settings
        self.asker = None if settings.rule is not None else Asker(settings)
        self.context = cast(GradingContext, AtLoad(None if settings.replies is None else Path(settings.replies)))

    async def same(self, text: str, other: str) -> bool | None:
        """The verdict; None where no reply could be read.

        Raises:
            RunError: the endpoint failed, or its calls or cost are spent.
        """
        if self.asker is None:
            return same_numbers(text, other)
        verdicts: list[bool | None] = []
        for number, pair in enumerate([(text, other), (other, text)][: 1 + self.settings.both_orders]):
            verdicts.append(await self._asked(self.asker, *pair, number))
            if verdicts[-1]:
                return True
        return None if None in verdicts else False

    async def _asked(self, asker: Asker, first: str, second: str, number: int) -> bool | None:
        """What most of the votes say; None where none of them can be read."""
        data = f"Problem A:\n{first}\n\nProblem B:\n{second}"
        content = fenced(self.settings.question, data, f"{LABEL}: yes or {LABEL}: no")
        replies = await asker.ask([{"role": "user", "content": content}], self.context, (data, number))
        votes = [vote for vote in map(read_verdict, replies) if vote is not None]
        return None if not votes else 2 * sum(votes) >= len(votes)


class AtLoad:
    """What of ``GradingContext`` a question has that is asked before any model is there."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder

    def seed(self, *key: SeedKey) -> int:
        return counter_seed("at-load", *key)


def read_verdict(reply: str) -> bool | None:
    """The verdict in the last line of a reply, ``same: yes``; None where that line is anything else."""
    return {"yes": True, "no": False}.get((said(reply, LABEL) or "").lower().rstrip("."))


def same_numbers(text: str, other: str) -> bool:
    """Whether two texts have the same numbers, each as often and with the same sign before it; without any, no."""
    numbers = Counter(_SIGNED.findall(text))
    return bool(numbers) and numbers == Counter(_SIGNED.findall(other))
