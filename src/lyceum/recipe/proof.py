"""What a recipe has to show: that its method's mechanism acts, and that without it a run is another one.

A paper's folder has this in ``proof.py``: ``PROOFS``, a line per recipe, which ``lyceum prove`` runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lyceum.run.digests import PARTS

BRIEF = ("steps=2", "tasks_per_step=4")
BRIEFER = ("steps=2", "tasks_per_step=2")
DIFFERS = [part for part in PARTS if part != "loss"]
"""Parts of a step in which a run without the mechanism may differ; metrics of the loss alone are no proof."""
FLAT = "{kind: flat, samples: 8, sampling: {max_completion_tokens: 80}}"


@dataclass(frozen=True)
class Proof:
    """How a recipe is run briefly, and what shows that its mechanism acted.

    Attributes:
        acted: metrics, each of which is above 0 in some step (or ``NAME < 1``, ``NAME > 8``).
        off: keys that switch the mechanism off, each alone, and the first part of a step that then differs, at equal
            seed: one of ``DIFFERS``.
        keys: make the run brief. Sizes alone: steps, tasks, rounds, pools; never how the method works.
        late: metrics that are not yet above 0 in so few steps, each with the key that switches that part off. One that
            acts belongs to ``acted``.
        longer: keys of a run in which they are; of lyceum's recipes ``benchmarks/mechanisms.py`` runs it, and a test
            reads its results.
        given: metrics that no key of ``off`` changes, each with what it is that the mechanism works on there, beside
            those of ``GIVEN``.
        needs: a folder without which the recipe cannot run.
        beside: keys of another run of the recipe, trained before it; its folder is ``{beside}`` in ``keys``. It leaves
            neither checkpoints nor digests.
        through: of the recipe's stages, how many that run has: by default the first alone, which is most often
            fine-tuning, of fewer steps at a higher learning rate.
    """

    acted: Sequence[str]
    off: Mapping[str | tuple[str, ...], str]
    keys: Sequence[str] = BRIEF
    late: Mapping[str, str] = field(default_factory=dict)
    longer: Sequence[str] = ()
    given: Mapping[str, str] = field(default_factory=dict)
    needs: str | None = None
    beside: Sequence[str] | None = None
    through: int = 1

    def __post_init__(self) -> None:
        if not self.acted:
            raise ValueError("acted: got nothing; allowed: at least one metric")
        if bool(self.late) != bool(self.longer):
            raise ValueError("longer: allowed: keys of a run in which metrics of late act, where there are any")
        if wrong := self.given.keys() - {*self.acted}:
            raise ValueError(f"given: got {', '.join(map(repr, wrong))}; allowed: metrics of acted")
        if self.through < 1:
            raise ValueError(f"through: got {self.through}; allowed: 1 or more")
        if wrong := set(self.off.values()) - set(DIFFERS):
            raise ValueError(f"off: got {', '.join(map(repr, wrong))}; allowed: {', '.join(DIFFERS)}")


def stages(*steps: int, tasks: int = 4) -> list[str]:
    """So many steps of each stage."""
    each = enumerate(steps)
    return [key for i, n in each for key in (f"stages.{i}.steps={n}", f"stages.{i}.tasks_per_step={tasks}")]


def short_start(steps: int, tasks: int, *, warmup: int | None = 1, lr: float | None = None) -> list[str]:
    """Keys of a run that ``beside`` trains: brief fine-tuning in its first stage.

    Args:
        steps, tasks: so many steps, of so many tasks each.
        warmup: of its steps, those in which the learning rate rises; None: the recipe's.
        lr: the learning rate after them; None: the recipe's.
    """
    given = {"warmup_steps": warmup, "lr": lr}
    return [*stages(steps, tasks=tasks), *(f"stages.0.learner.{k}={v}" for k, v in given.items() if v is not None)]


LONGER = ["steps=6", "tasks_per_step=16", "learner.warmup_steps=1"]
"""Steps at the full learning rate, after which some ratios have left their bounds."""

LEARNS = "groups/with_gradient"
GIVEN = {
    LEARNS: "groups whose outcomes differ, of which a credit or an objective makes something else",
    "pairs": "pairs of better and worse samples, which a loss of pairs is over",
    "nll": "demonstrations, which fine-tuning reads",
    "traces/found": "solutions that the sampling found, which the stage trains on",
    "traces/distilled": "the same, written out of a search",
    "value/updates": "updates of a model of values or rewards, which the stage after it is paid by",
}
"""What many mechanisms work on, and not what they do with it: no key of ``off`` has to change these metrics."""
WITHOUT_PENALTY = {"reward=[task]": "grades"}

WRITES_PROGRAMS = short_start(17, 16)
"""A run after which the model writes functions, some of which are correct."""
