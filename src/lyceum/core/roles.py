"""The models of a stage and the roles that they play."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Self

from pydantic import Field, model_validator

from lyceum.core.component import Settings

Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,31}$")]
"""Of a model or a role; a model's is its folder's too."""


class Roles(Settings):
    """Which models a stage trains, and which of them plays each role. By default one model plays all."""

    models: Annotated[tuple[Name, ...], Field(min_length=1, max_length=8)] = ("policy",)
    """Models that are trained, each by an optimiser of its own: copies of the run's model as the stage begins. The
    first stays the run's: it is evaluated, handed on to the next stage, and saved in ``model/``; the others in
    ``models/NAME/``."""
    play: Mapping[Name, Name] = Field(default_factory=dict)
    """Role -> the model that plays it first. Two roles may share a model; a role not named here is always played by
    the first model."""
    swap_every: int | None = Field(default=None, ge=1)
    """Steps after which the roles of ``play`` move on, each to the next model: two models swap. null: never."""

    @model_validator(mode="after")
    def _models_are_known(self) -> Self:
        if len(set(self.models)) < len(self.models):
            raise ValueError(f"models: got {list(self.models)}; allowed: different names")
        for role, model in self.play.items():
            if model not in self.models:
                raise ValueError(f"play.{role}: got {model!r}; allowed: {', '.join(self.models)}")
        if self.swap_every is not None and len(self.models) == 1:
            raise ValueError(f"swap_every: got {self.swap_every} with one model; allowed: null, or two models or more")
        if idle := set(self.models) - set(self.play.values()) - {self.models[0]}:
            raise ValueError(f"models: got {min(idle)!r}, which plays no role; allowed: models named in play")
        return self

    def swaps(self, step: int) -> int:
        """How often roles have moved on before a step of the stage, counted from 0."""
        return 0 if self.swap_every is None else step // self.swap_every

    def model(self, role: str, step: int) -> int:
        """Number of the model that plays a role in a step: a function of the step alone, so that it needs no state."""
        if role not in self.play:
            return 0
        return (self.models.index(self.play[role]) + self.swaps(step)) % len(self.models)

    def check(self, played: Sequence[str]) -> list[str]:
        """Lines that say why these roles, all that a stage's components play, do not fit."""
        known = ", ".join(played) or "none: no component of this stage plays roles"
        lines = [f"roles.play: got {role!r}; allowed: {known}" for role in self.play if role not in played]
        if len(self.models) > 1 and (left := [role for role in played if role not in self.play]):
            lines.append(f"roles.play: got no model for {', '.join(left)}; allowed: one of {', '.join(self.models)}")
        return lines
