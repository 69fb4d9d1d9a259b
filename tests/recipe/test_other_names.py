"""Keys of other libraries are answered with ours, which exist; docs/coming-from.md is the same table."""

from pathlib import Path

import pytest

from lyceum.cli.explain import settings
from lyceum.cli.outcome import main
from lyceum.core.component import kinds
from lyceum.recipe.other_names import other_names, page
from lyceum.recipe.schema import Recipe


def test_the_page_is_that_of_the_table():
    # Catches a row that was changed without `python -m lyceum.recipe.other_names > docs/coming-from.md`.
    assert (Path(__file__).parents[2] / "docs/coming-from.md").read_text() == page()


def keys():
    """Every key that the command line takes, of the kinds that the table has in mind."""
    stage = kinds("stages")["online"]
    found = {each["key"] for each in (*settings(Recipe), *settings(stage))}
    of_slot = {"rollout": "flat", "credit": "group", "objective": "ppo-clip", "learner": "local", "engine": "vllm"}
    for slot, kind in (of_slot | {"tasks": "dataset"}).items():
        found |= {each["key"] for each in settings(kinds(slot)[kind], f"{slot}.")}
    return found | {"reward.0.weight", "rollout.environment"}


def test_every_key_of_ours_can_be_set():
    assert {name.ours for name in other_names() if name.ours} - keys() == set()
    assert all(name.note for name in other_names() if not name.ours)


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("num_generations=8", "rollout.samples is TRL's num_generations"),
        ("--num_generations=8", "rollout.samples is TRL's num_generations"),
        ("data.train-batch-size=8", "tasks_per_step is verl's data.train_batch_size"),
        ("optim.lr=8", "learner.lr is verl's actor_rollout_ref.actor.optim.lr"),
        ("init_kl_coef=0.1", "objective.kl.coefficient is OpenRLHF's init_kl_coef"),
        ("max_prompt_length=9", "tasks.max_prompt_tokens is TRL's max_prompt_length: longer prompts are refused"),
        ("eval_dataset=x", "evaluate.tasks is TRL's eval_dataset"),
        ("lr=8", "did you mean 'learner.lr'?"),
        ("samples=8", "did you mean 'rollout.samples' or 'evaluate.samples'?"),
        ("stepz=8", "did you mean 'steps'?"),
    ],
)
def test_a_key_of_another_library_is_answered_with_ours(typed, told, tmp_path, capsys):
    assert main(["train", "grpo", f"output={tmp_path}", typed]) == 2
    assert told in capsys.readouterr().err
    assert not any(tmp_path.iterdir())
