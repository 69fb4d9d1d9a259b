"""RoRecomp: a step trains short correct and long incorrect rows; the others of recorded groups follow later."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, ClassVar, Literal

from jaxtyping import Bool, Float, Int
from pydantic import Field

from lyceum.core.component import of_kind, slot
from lyceum.core.forest import Forest
from lyceum.core.settings import Composition, CreditSettings
from lyceum.core.types import Credit, Credited, State
from lyceum.credit.base import recorded_rows
from lyceum.utils.lazy_imports import Tensor, torch


class Recomposed(CreditSettings):
    """Another credit's advantages, on some rows of each group: the shortest correct and the longest incorrect ones of
    sampled groups, the rest of recorded ones (``replay``).

    Advantages are those within the whole group, whichever of its rows are trained.

    Source:
        RoRecomp, arXiv:2509.25958 (priority and compensation batches), by its abstract; the shares are ours.
    """

    reads_steps: ClassVar[bool] = True

    kind: Literal["recomposed"] = "recomposed"
    of: Annotated[CreditSettings, slot("credit", "group")] = of_kind("group")
    """The credit whose advantages they are."""
    share: float = Field(default=0.5, gt=0, le=1)
    """Share of a group's correct rows, and of its incorrect ones, that come first, rounded up; 1: all (no unit)."""

    def build(self) -> Credit:
        return RecomposedCredit(self.of.build(), self.share)

    def check(self, stage: Composition) -> list[str]:
        of = self.of
        if not ("value-targets" in of.offers or "teacher" in of.needed or of.reads_parts or isinstance(of, Recomposed)):
            return []
        return [
            f"credit.of.kind: got '{of.kind}'; allowed: a credit that compares the rows of a group, such as 'group'"
        ]


class RecomposedCredit:
    """The other credit, whose state it keeps."""

    def __init__(self, of: Credit, share: float) -> None:
        self.of, self.share = of, share
        self.needs, self.measures = of.needs, of.measures

    def __call__(self, forest: Forest) -> Credited:
        credited = self.of(forest)
        length = forest.trainable(forest.rows()).sum(1)
        first = priority_rows(forest.correct, length, forest.group, self.share)
        recorded = recorded_rows(forest)
        trained = first != recorded
        metrics = {
            "priority_rows": int((first & ~recorded).sum()),
            "compensation_rows": int((~first & recorded).sum()),
            "left_out": int((~trained).sum()),
        }
        return replace(
            credited,
            advantage=torch.where(trained[:, None], credited.advantage, 0),
            metrics={**credited.metrics, **metrics},
        )

    def observe(self, forest: Forest, metrics: Mapping[str, float]) -> None:
        self.of.observe(forest, metrics)

    def state_dict(self) -> State:
        return self.of.state_dict()

    def load_state_dict(self, state: State) -> None:
        self.of.load_state_dict(state)


def priority_rows(
    correct: Float[Tensor, " R"], length: Int[Tensor, " R"], group: Int[Tensor, " R"], share: float
) -> Bool[Tensor, " R"]:
    """The rows that come first: of each group the shortest correct ones and the longest incorrect ones.

        k = ceil(share * n)        n: the group's correct rows, or its incorrect ones

    Args:
        correct: 1 correct, 0 incorrect, nan where no grader says: such rows come first too.
        length: tokens of each row.
        group: group of each row.
        share: of each kind, above 0.
    Returns:
        Ties go to the first row.
    """
    first = correct.isnan()
    rows: dict[tuple[int, float], list[int]] = {}
    for row, (of, verdict) in enumerate(zip(group.tolist(), correct.tolist(), strict=True)):
        if not math.isnan(verdict):
            rows.setdefault((of, verdict), []).append(row)
    for (_, verdict), alike in rows.items():
        first[_shortest(alike, length.tolist(), share) if verdict else _longest(alike, length.tolist(), share)] = True
    return first


def _shortest(rows: Sequence[int], length: Sequence[int], share: float) -> list[int]:
    return sorted(rows, key=lambda row: length[row])[: math.ceil(share * len(rows))]


def _longest(rows: Sequence[int], length: Sequence[int], share: float) -> list[int]:
    return sorted(rows, key=lambda row: -length[row])[: math.ceil(share * len(rows))]
