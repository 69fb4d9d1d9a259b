"""Failed trajectories are resumed behind an inserted prompt that sends them another way (REX-RAG).

Source: REX-RAG, arXiv:2508.08149: mixed sampling of the policy and of a probing policy.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import Field

from lyceum.core.notes import Note
from lyceum.core.settings import GuidanceSettings
from lyceum.core.steps import write_texts
from lyceum.core.tree import Node, Tree, is_correct
from lyceum.core.types import Context, Origin, Rollout, TaskSource
from lyceum.guidance.base import TaskGuide, graded, notes_of
from lyceum.utils.aio import gather


class Probes(GuidanceSettings):
    """A failed trajectory is cut behind the last answer of its tool, one of ``prompts`` stands there as the teacher's,
    and the policy goes on from it. Probes join the group that they come from. With objective ``mixture-ratio`` what was
    inserted is trained by its ratio to the mixture of both ways of sampling; with any other that trains a teacher's
    tokens, as that says.
    """

    kind: Literal["probes"] = "probes"
    prompts: tuple[str, ...] = Field(("That may be wrong. I look it up in another way.",), min_length=1, max_length=64)
    """Texts that may be inserted, each as likely."""
    share: float = Field(default=0.25, gt=0, le=1)
    """Most probes of a group, as a share of its trajectories (no unit), rounded to whole ones, at least one."""

    def build(self, source: TaskSource, *, seed: int) -> ProbesGuide:
        return ProbesGuide(self)


@dataclass
class Probed(Note):
    """What became of a group.

    Attributes:
        failed: trajectories that failed; of some no tool answered anything, and they cannot be resumed.
        probes: trajectories that were resumed behind a prompt, and graded.
        rescued: those of them that are correct.
    """

    kind: ClassVar[str] = "probes"
    failed: int = 0
    probes: int = 0
    rescued: int = 0


class ProbesGuide(TaskGuide):
    """Has no state."""

    def __init__(self, settings: Probes) -> None:
        self.settings = settings

    async def roll(self, rollout: Rollout, context: Context, start: Node, n: int | None) -> list[Node]:
        own = await rollout(context, start, n)
        await context.grade(own)
        failed = [leaf for leaf in graded(own) if not is_correct(leaf)]
        note = Probed(len(failed))
        context.tree.add_note(note)
        places = dict.fromkeys(place for leaf in failed if (place := last_answer(leaf)) is not None)
        most = max(1, round(self.settings.share * len(own)))
        found = await gather([self.resumed(rollout, context, place) for place in list(places)[:most]])
        probes = [leaf for leaves in found for leaf in leaves]
        await context.grade(probes)
        note.probes, note.rescued = len(graded(probes)), sum(map(is_correct, probes))
        return [*own, *probes]

    async def resumed(self, rollout: Rollout, context: Context, place: Node) -> list[Node]:
        """A trajectory that goes on behind a prompt below the tool's answer; none where no token is left."""
        rng = random.Random(context.seed(self.settings.kind, place.address))
        tokens = context.encode_after(place.path_tokens(), rng.choice(self.settings.prompts))
        if len(tokens) >= context.tokens_left(place) or context.budget_left <= 0:
            return []
        inserted = place.add(tokens, Origin.TEACHER)
        write_texts([inserted], context.decode, terminal=False)
        return await rollout(context, inserted, 1)

    def observe(self, trees: Sequence[Tree]) -> None:
        notes = [note for _, note in notes_of(trees, Probed)]
        self._metrics = {
            "trajectories/failed": sum(note.failed for note in notes),
            "trajectories/probes": sum(note.probes for note in notes),
            "trajectories/rescued": sum(note.rescued for note in notes),
        }


def last_answer(leaf: Node) -> Node | None:
    """The last answer of a tool in a trajectory; None where there is none."""
    return next((node for node in reversed(leaf.path()) if node.origin is Origin.TOOL), None)
