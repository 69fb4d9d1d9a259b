"""Batches for tests of objectives."""

from dataclasses import fields, replace

import pytest
import torch

from lyceum.core.types import Batch, Origin
from lyceum.objective.base import aggregate_weights

OTHERS = {
    "mean_logprob": -1.0,
    "old_mean_logprob": -1.0,
    "teacher_divergence": 0.0,
    "teacher_compared_mass": 1.0,
    "relative_entropy": 0.0,
    "masked_logprob": -1.5,
    "old_masked_logprob": -1.5,
    "masked_entropy": 1.0,
    "old_masked_entropy": 1.0,
}
"""Columns that an objective has from its reductions or its credit."""


@pytest.fixture(scope="session")
def batch_of():
    """Columns as nested lists of float64, everything else plain: (R, L) log-probabilities of -1, an advantage of 1."""

    def make(mask, aggregate="token", constant=None, **columns) -> Batch:
        mask = torch.tensor(mask, dtype=torch.bool)
        plain = {"advantage": 1.0, "logprob": -1.0, "old_logprob": -1.0, "behaviour_logprob": -1.0}
        given = {name: torch.full(mask.shape, x, dtype=torch.float64) for name, x in plain.items()}
        named = {f.name for f in fields(Batch)}
        others = {name: torch.full(mask.shape, x, dtype=torch.float64) for name, x in OTHERS.items()}
        others |= {name: columns.pop(name) for name in [*columns] if name not in named}
        origin = torch.as_tensor(columns.pop("origin", int(Origin.POLICY))).expand(mask.shape)
        given |= {name: torch.as_tensor(x, dtype=torch.float64) for name, x in columns.items()}
        given["logprob"] = given["logprob"].detach().clone().requires_grad_()
        weight = aggregate_weights(mask, aggregate, constant).double()
        group = torch.zeros(len(mask), dtype=torch.long)
        return Batch(mask=mask, weight=weight, group=group, origin=origin, columns=others, **given)

    return make


@pytest.fixture(scope="session")
def some_rows():
    """Some rows of a batch, as a micro-batch holds them."""

    def take(batch: Batch, rows: torch.Tensor) -> Batch:
        given = {f.name: getattr(batch, f.name) for f in fields(batch) if f.name != "columns"}
        cut = {name: x[rows] if isinstance(x, torch.Tensor) else x for name, x in given.items()}
        return replace(batch, columns={name: x[rows] for name, x in batch.columns.items()}, **cut)

    return take
