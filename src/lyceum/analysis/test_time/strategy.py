"""A strategy of test-time search: a rollout that produces candidates, and how one of them is chosen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, ValidationError, field_validator

from lyceum.analysis.test_time.choice import BY_VALUE, Choice
from lyceum.core.component import Settings, explain, slot
from lyceum.core.settings import RolloutSettings
from lyceum.core.steps import Steps
from lyceum.core.types import Sampling
from lyceum.utils.errors import RecipeError

SHARE_OF_COMPLETION = 8
"""By default a step is a line of at most ``max_completion_tokens`` divided by this."""

NAMED: Mapping[str, Mapping[str, Any]] = {
    "beam": {"rollout": {"kind": "beam"}, "choose": "best"},
    "best-first": {"rollout": {"kind": "best-first"}, "choose": "best"},
    # Cobbe et al., arXiv:2110.14168, section 4.
    "best-of-n": {"rollout": {"kind": "flat"}, "choose": "best"},
    # A beam per subtree: diverse verifier tree search of search-and-learn (Hugging Face).
    "dvts": {"rollout": {"kind": "beam", "beams": 4, "subtrees": 4}, "choose": "best"},
    # Filtered votes: arXiv:2407.13887, with value.kind goal-conditioned.
    "filtered-majority": {"rollout": {"kind": "value-filter"}, "choose": "majority"},
    "greedy": {"rollout": {"kind": "flat", "sampling": {"temperature": 0.0}}, "choose": "first", "size": 1},
    # Self-consistency: Wang et al., arXiv:2203.11171, section 2.
    "majority": {"rollout": {"kind": "flat"}, "choose": "majority"},
    "mcts": {"rollout": {"kind": "mcts", "width": 4}, "choose": "best"},
    # ReST-RL's decoding: arXiv:2508.19576, section 3.2.
    "value-mcts": {
        "rollout": {
            "kind": "value-mcts",
            "width": 4,
            "simulate": "completions",
            "selection": "smoothed",
            "exploration": 0.2,
        },
        "choose": "best",
    },
    # Li et al., arXiv:2206.02336, equation 2.
    "weighted-majority": {"rollout": {"kind": "flat"}, "choose": "weighted-majority"},
}
"""Predefined strategies."""


class Strategy(Settings):
    """A rollout and a choice. Neither uses the verifier.

    The rollout's ``sized(n)``, ``needed`` and ``test_time`` say how it is used
    (:class:`lyceum.core.settings.RolloutSettings`).
    """

    name: str | None = Field(default=None, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,59}$")
    """Name in tables and file names; null: the rollout's kind and the choice."""
    rollout: Annotated[RolloutSettings, slot("rollout")]
    """Rollout that produces the candidates; the size sets their number. ``sampling`` defaults to the command's,
    ``step`` to a line of at most an eighth of ``max_completion_tokens``."""
    choose: Choice
    """Which candidate is the answer: the first, the one of highest value, the most frequent answer, or the answer with
    the highest sum of values."""
    size: int | None = Field(default=None, ge=1)
    """The only size that it is run at; null: all requested sizes."""

    @field_validator("rollout")
    @classmethod
    def _asks_no_verifier(cls, rollout: RolloutSettings) -> RolloutSettings:
        usual = rollout.test_time
        unset = {key: value for key, value in usual.items() if key not in rollout.model_fields_set}
        rollout = rollout.model_copy(update=unset)
        if "verifier" in rollout.needed and not usual:
            raise ValueError(
                f"got {rollout.kind!r}, which the verifier leads, but it is asked only after the choice; allowed: "
                "another rollout"
            )
        if "verifier" in rollout.needed:
            got = {key: getattr(rollout, key) for key in usual if getattr(rollout, key) != usual[key]}
            raise ValueError(
                f"got {_listed(got)}, but the verifier is asked only after the choice; allowed: for example "
                f"{_listed({key: usual[key] for key in got})}"
            )
        return rollout

    @property
    def label(self) -> str:
        return self.name or f"{self.rollout.kind}-{self.choose}"

    @property
    def reads_values(self) -> bool:
        """Whether it needs a value model."""
        return self.choose in BY_VALUE or "value" in self.rollout.needed

    def sized(self, size: int, sampling: Sampling) -> RolloutSettings:
        """Settings of the rollout for about ``size`` candidates.

        Args:
            sampling: defaults for what the rollout does not set.
        Raises:
            RecipeError: the rollout has no such size.
        """
        rollout, given = self.rollout, self.rollout.model_fields_set
        own = rollout.sampling
        sampling = sampling.model_copy(update={key: getattr(own, key) for key in own.model_fields_set})
        rollout = rollout.model_copy(update={"sampling": sampling})
        if "step" in type(rollout).model_fields and "step" not in given:
            longest = -(-sampling.max_completion_tokens // SHARE_OF_COMPLETION)
            rollout = rollout.model_copy(update={"step": Steps(by="lines", tokens=longest)})
        try:
            return rollout.sized(size)
        except ValidationError as error:
            lines = explain(error, type(rollout))
        except RecipeError as error:
            lines = error.lines
        raise RecipeError(f"{self.label}: size {size}: rollout.{line}" for line in lines)


def _listed(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {value!r}" for key, value in settings.items())
