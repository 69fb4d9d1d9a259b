"""Preference losses against TRL's own functions: values and gradients by token, on random pairs.

TRL's losses stand inside the trainers' ``_compute_loss``, which is called with stand-ins for the models: it gets
the same random log-probabilities that lyceum's objectives get as a batch.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, get_args

import torch
import trl  # pyright: ignore[reportMissingImports]  (in requirements-preferences.txt)
from common import arguments, machine
from trl import DPOTrainer, KTOTrainer  # pyright: ignore[reportMissingImports]  (in requirements-preferences.txt)
from trl.experimental.orpo import ORPOTrainer  # pyright: ignore[reportMissingImports]  (in requirements-preferences.txt)

from lyceum.core.types import Batch
from lyceum.objective.base import aggregate_weights
from lyceum.objective.dpo import DPO, SMOOTHED, PairLossName
from lyceum.papers.kto.objective_kto import KTO
from lyceum.papers.orpo.objective_orpo import ORPO

ROWS, LENGTH, BETA = 64, 12, 0.3
SMOOTHING = 0.1


def random_rows(seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Log-probabilities of policy and reference, float64 (R, L), and a mask of 1 to L tokens per row."""
    generator = torch.Generator().manual_seed(seed)
    policy, reference = (-3 * torch.rand(ROWS, LENGTH, generator=generator).double() for _ in range(2))
    length = torch.randint(1, LENGTH + 1, (ROWS, 1), generator=generator)
    return policy, reference, torch.arange(LENGTH) < length


def trainer(**settings: Any) -> Any:
    """What TRL's losses read of a trainer."""
    return SimpleNamespace(
        model=SimpleNamespace(training=True),
        accelerator=SimpleNamespace(device=torch.device("cpu"), gather=lambda x: x, gather_for_metrics=lambda x: x),
        aux_loss_enabled=False,
        precompute_ref_logps=True,
        beta=BETA,
        _metrics={"train": defaultdict(list)},
        _total_train_tokens=0,
        _tp_size=1,
        **settings,
    )


def outputs(logprob: torch.Tensor) -> Any:
    nothing = torch.zeros(logprob.shape)
    return SimpleNamespace(log_probs=logprob, entropy=nothing, mean_logits=nothing, is_top1=nothing.bool())


def with_prompt(mask: torch.Tensor) -> torch.Tensor:
    """The mask of whole sequences: one token of prompt before each completion."""
    return torch.cat([torch.zeros(len(mask), 1, dtype=torch.long), mask.long()], 1)


def trl_dpo(logprob: torch.Tensor, reference: torch.Tensor, mask: torch.Tensor, loss: str) -> torch.Tensor:
    """Rows are the chosen of all pairs, then the rejected."""
    self = trainer(
        ld_alpha=None,
        f_divergence_type="reverse_kl",
        loss_types=[loss],
        loss_weights=[1.0],
        label_smoothing=SMOOTHING if loss in SMOOTHED else 0.0,
        use_weighting=False,
    )
    chosen, rejected = (reference * mask).sum(1).chunk(2)
    whole = with_prompt(mask)
    inputs = {
        "completion_mask": whole,
        "input_ids": whole,
        "attention_mask": whole,
        "ref_chosen_logps": chosen,
        "ref_rejected_logps": rejected,
    }
    return DPOTrainer._compute_loss(self, lambda **_: outputs(logprob * mask), inputs, False)


def trl_kto(
    logprob: torch.Tensor,
    reference: torch.Tensor,
    mask: torch.Tensor,
    loss: str,
    kl: float,
    weights: tuple[float, float],
) -> torch.Tensor:
    """Rows are the desirable ones, then the undesirable."""
    whole = with_prompt(mask)
    batch = {
        "input_ids": whole,
        "completion_mask": whole,
        "attention_mask": whole,
        "label": torch.arange(ROWS) < ROWS // 2,
        "ref_logps": (reference * mask).sum(1),
        "ref_KL_logps": torch.zeros(ROWS).double(),
    }
    self = trainer(
        calculate_KL=loss == "kto",
        loss_type=loss,
        desirable_weight=weights[0],
        undesirable_weight=weights[1],
        _compute_kl_logps=lambda model, batch: torch.full((ROWS,), kl).double(),
    )
    return KTOTrainer._compute_loss(self, lambda **_: outputs(logprob * mask), batch, False)


def trl_orpo(logprob: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Its odds ratio beside the mean negative log-likelihood of each chosen row."""
    mean = (logprob * mask).sum(1) / mask.sum(1)
    chosen, rejected = mean.chunk(2)
    odds = ORPOTrainer.odds_ratio_loss(trainer(), chosen, rejected)[0]
    return (-chosen - odds).mean()


def batch(logprob: torch.Tensor, reference: torch.Tensor, mask: torch.Tensor, **more: Any) -> Batch:
    return Batch(
        mask=mask,
        weight=aggregate_weights(mask, "sequence").double(),
        advantage=torch.zeros_like(reference),
        logprob=logprob,
        old_logprob=reference,
        behaviour_logprob=reference,
        reference_logprob=reference,
        group=torch.zeros(ROWS, dtype=torch.long),
        origin=torch.ones(mask.shape, dtype=torch.long),
        **more,
    )


def compared(name: str, seeds: int = 5) -> dict[str, float]:
    """Largest differences of one loss over random batches, in values and in gradients by token; and its first value."""
    worst = {"value": 0.0, "gradient": 0.0}
    first = 0.0
    for seed in range(seeds):
        policy, reference, mask = random_rows(seed)
        theirs_in, ours_in = (policy.clone().requires_grad_() for _ in range(2))
        label = torch.where(torch.arange(ROWS) < ROWS // 2, 1.0, -1.0)
        couple = torch.arange(ROWS) % (ROWS // 2)
        if name.startswith("kto"):
            loss, kl, weights = {"kto": ("kto", 0.7, (1.0, 1.0)), "kto/weighted": ("kto", 0.7, (1.5, 0.5))}.get(
                name, ("apo_zero_unpaired", 0.0, (1.0, 1.0))
            )
            theirs = trl_kto(theirs_in, reference, mask, loss, kl, weights)
            given = batch(ours_in, reference, mask, label=label.clamp(min=0), thresholds={"kl": kl})
            of_row = torch.where(label > 0, *map(torch.tensor, weights))[:, None]
            ours = KTO.model_validate({"loss": loss, "beta": BETA}).build()(_weighted(given, of_row))[0]
        elif name == "orpo":
            theirs = trl_orpo(theirs_in, mask)
            ours = ORPO.model_validate({"beta": BETA}).build()(
                batch(ours_in, reference, mask, couple=couple, label=label)
            )[0]
        else:
            theirs = trl_dpo(theirs_in, reference, mask, name)
            smoothing = SMOOTHING if name in SMOOTHED else 0.0
            objective = DPO.model_validate({"loss": name, "beta": BETA, "label_smoothing": smoothing}).build()
            ours = objective(batch(ours_in, reference, mask, couple=couple, label=label))[0]
        (their_gradient,), (our_gradient,) = (
            torch.autograd.grad(loss, at) for loss, at in ((theirs, theirs_in), (ours, ours_in))
        )
        worst["value"] = max(worst["value"], float((theirs - ours).detach().abs()))
        worst["gradient"] = max(worst["gradient"], float((their_gradient - our_gradient).abs().max()))
        first = first or float(theirs.detach())
    return {**worst, "trl_value_of_seed_0": first}


def _weighted(given: Batch, of_row: torch.Tensor) -> Batch:
    return replace(given, weight=given.weight * of_row)


def main() -> None:
    options = arguments(__doc__ or "").parse_args()
    names = [*get_args(PairLossName), "kto", "kto/weighted", "kto/apo_zero_unpaired", "orpo"]
    found = {}
    for name in names[:3] if options.quick else names:
        found[name] = row = compared(name, 1 if options.quick else 5)
        print(
            f"{name:22} value {row['value']:.1e}   gradient {row['gradient']:.1e}   {row['trl_value_of_seed_0']:.12f}"
        )
    result = {
        "definitions": {
            "value": "largest |TRL's loss - lyceum's| over 5 random batches of 32 pairs, float64",
            "gradient": "largest difference of d loss / d log-probability of any token",
            "trl_value_of_seed_0": "TRL's loss of the first batch",
            "orpo": "TRL's odds ratio takes float32, hence its larger difference",
        },
        "trl": trl.__version__,
        "beta": BETA,
        "label_smoothing": SMOOTHING,
        "losses": found,
        "machine": machine("trl"),
    }
    if options.out:
        options.out.write_text(json.dumps(result, indent=1) + "\n")
    assert all(row["value"] <= 1e-6 and row["gradient"] <= 1e-6 for row in found.values()), found


if __name__ == "__main__":
    main()
