"""Several models behind one learner: each is trained, by a learner of its own, on the tokens that it wrote."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from jaxtyping import Int

from lyceum.core.component import require_keys
from lyceum.core.forest import Forest, WrittenPart
from lyceum.core.types import Credited, FrozenName, Gradients, Kept, Learner, Objective, Scored
from lyceum.utils.lazy_imports import Tensor, nn, torch
from lyceum.utils.numbers import mean

_ADD_UP = ("tokens_trained", "row_tokens_trained", "rows_in_two_passes", "seconds/train")
"""Metrics that are sums over the models; the others are means."""
_EACH = ("loss", "grad_norm")
"""Metrics that are logged of each model too, as ``model/NAME/...``."""


class LearnerByModel:
    """Implements ``Learner``. Credit is assigned over the whole forest; what follows is each model's own.

    Args:
        learners: of each model by name, in the order of their numbers.
    """

    def __init__(self, learners: Mapping[str, Learner]) -> None:
        self.learners = learners

    def _parts(self, forest: Forest) -> Iterator[tuple[str, Learner, WrittenPart]]:
        """The models that wrote something, each with its part of the forest."""
        for number, (name, learner) in enumerate(self.learners.items()):
            part = forest.written_by(number)
            if len(part.rows):
                yield name, learner, part

    @property
    def skipped_steps(self) -> int:
        return sum(learner.skipped_steps for learner in self.learners.values())

    def annotate(self, forest: Forest, needs: frozenset[str]) -> Forest:
        columns: dict[str, Tensor] = {}
        for _, learner, part in self._parts(forest):
            before = part.forest.columns.keys()
            for name, column in learner.annotate(part.forest, needs).columns.items():
                if name not in before:
                    whole = columns.setdefault(name, column.new_zeros(forest.n_tokens, *column.shape[1:]))
                    whole[part.tokens] += column  # 0 on what others wrote
        return forest.with_columns(**columns)

    def step(self, forest: Forest, credited: Credited, objective: Objective) -> dict[str, float]:
        found = {
            name: learner.step(part.forest, of_rows(credited, part), objective)
            for name, learner, part in self._parts(forest)
        }
        names = dict.fromkeys(name for metrics in found.values() for name in metrics)
        values = {name: [metrics[name] for metrics in found.values() if name in metrics] for name in names}
        together = {name: sum(of) if name in _ADD_UP else mean(of) for name, of in values.items()}
        each = {f"model/{model}/{name}": metrics[name] for model, metrics in found.items() for name in _EACH}
        return together | each

    def gradients(self, forest: Forest, credited: Credited, objective: Objective) -> Gradients:
        loss, coefficient, weights = 0.0, torch.zeros(credited.advantage.shape), list[Tensor]()
        metrics: dict[str, float] = {}
        for name, learner, part in self._parts(forest):
            own = learner.gradients(part.forest, of_rows(credited, part), objective)
            loss += own.loss
            coefficient[part.rows, : own.coefficient.shape[1]] = own.coefficient
            weights += own.weights
            metrics |= {f"model/{name}/{metric}": value for metric, value in own.metrics.items()}
        return Gradients(loss, coefficient, weights, metrics)

    def score_under(self, model: FrozenName, paths: Sequence[Scored]) -> list[list[float]]:
        """Under the first model's."""
        return next(iter(self.learners.values())).score_under(model, paths)

    def weights(self) -> nn.Module:
        """The first model's; the engine has the others."""
        return next(iter(self.learners.values())).weights()

    def require_learnt(self) -> None:
        for learner in self.learners.values():
            learner.require_learnt()

    def models(self, names: Collection[Kept]) -> dict[str, Any]:
        return {name: learner.models(names) for name, learner in self.learners.items()}

    def state_dict(self) -> dict[str, Any]:
        return {name: learner.state_dict() for name, learner in self.learners.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        require_keys("learner", given=state, needed=self.learners)
        for name, learner in self.learners.items():
            learner.load_state_dict(state[name])

    def load_weights(self, state: Mapping[str, Any]) -> None:
        for name, learner in self.learners.items():
            learner.load_weights(state[name])


def of_rows(credited: Credited, part: WrittenPart) -> Credited:
    """The credit of a part's rows, laid out as the part's."""
    width = part.forest.rows().index.shape[1]

    def cut(x: Tensor, rows: Int[Tensor, " r"] = part.rows) -> Tensor:
        return x[rows, :width]

    return replace(
        credited,
        advantage=cut(credited.advantage),
        value_target=None if credited.value_target is None else cut(credited.value_target),
        columns={name: cut(column) for name, column in credited.columns.items()},
    )
