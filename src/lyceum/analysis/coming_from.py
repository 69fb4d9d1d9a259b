"""The page of other libraries' names: ``python -m lyceum.analysis.coming_from > docs/coming-from.md``."""

from __future__ import annotations

from itertools import groupby

from lyceum.recipe.other_names import OtherName, other_metrics, other_names

SAME_AS_THEIRS = """\
## The same GRPO as theirs

The recipe `grpo` is the paper's; TRL and verl differ from it in their defaults. With these keys the advantages, the
loss and the optimizer are theirs:

- verl with `adv_estimator=grpo`: `lyceum train grpo credit.ddof=1 objective.aggregate=token objective.dual_clip=3
  learner.lr=1e-6 learner.betas=[0.9,0.999] learner.weight_decay=0.01 learner.warmup_steps=0 learner.updates_per_step=4
  tasks_per_step=1024 rollout.sampling.max_completion_tokens=512`, where 4 is `train_batch_size / ppo_mini_batch_size`.
  Its examples add `objective.kl.coefficient=0.001`. verl's FSDP actor takes the mean over tokens in each micro-batch,
  lyceum over the tokens of the update.
- TRL's `GRPOTrainer`: `lyceum train grpo credit.ddof=1 credit.eps=1e-4 objective.aggregate=token learner.lr=1e-6
  learner.betas=[0.9,0.999] learner.warmup_steps=0 learner.schedule=linear rollout.sampling.max_completion_tokens=512`;
  with `loss_type=grpo` leave `objective.aggregate` out."""
"""Checked against verl of January 2026 and TRL of July 2026; their defaults are in the configuration classes."""


def page() -> str:
    """``docs/coming-from.md``."""
    lines = ["# Names of settings in TRL, verl and OpenRLHF", ""]
    lines += ["<!-- Made by `python -m lyceum.analysis.coming_from > docs/coming-from.md`. -->", ""]
    lines += ["Settings of TRL, verl and OpenRLHF, and the key that does the same in lyceum. If you type one of"]
    lines += ["theirs, as in `lyceum train grpo num_generations=8`, the error names lyceum's key. Whole commands:"]
    lines += ["[from TRL or verl, task by task](side-by-side.md). Whole files: [converting](converting.md)."]
    for library, names in groupby(other_names(), key=lambda name: name.library):
        lines += ["", f"## {library}", "", "| there | here | |", "|---|---|---|"]
        lines += [f"| {', '.join(map('`{}`'.format, n.names))} | {_cell(n)} | {n.notes} |" for n in names]
    lines += ["", *SAME_AS_THEIRS.splitlines(), "", "## Metrics", ""]
    lines += ["What is logged there and [here](metrics.md); what is missing below has no counterpart."]
    for library, metrics in other_metrics().items():
        lines += ["", f"| {library} | here | |", "|---|---|---|"]
        lines += [f"| `{theirs}` | `{row['ours']}` | {row.get('note', '')} |" for theirs, row in metrics.items()]
    return "\n".join(lines) + "\n"


def _cell(name: OtherName) -> str:
    ours = f"`{name.ours}`" if name.ours else ""
    return f"{ours}; `{name.rather}` in recipes that have it" if name.rather else ours


if __name__ == "__main__":
    print(page(), end="")
