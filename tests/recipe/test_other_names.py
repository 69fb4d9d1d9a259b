"""Keys of other libraries are answered with ours, which exist; docs/coming-from.md is the same table."""

import re
from importlib.resources import files
from pathlib import Path

import pytest

from lyceum.analysis.coming_from import SAME_AS_THEIRS, page
from lyceum.analysis.explain import settings
from lyceum.cli.outcome import main
from lyceum.core.component import kinds
from lyceum.recipe.other_names import answered, other_names
from lyceum.recipe.schema import Recipe, load_recipe
from lyceum.utils.documents import read_yaml


def test_the_page_is_that_of_the_table():
    # Catches a row that was changed without `python -m lyceum.analysis.coming_from > docs/coming-from.md`.
    assert (Path(__file__).parents[2] / "docs/coming-from.md").read_text() == page()


def test_what_makes_grpo_theirs_can_be_typed():
    commands = re.findall(r"`lyceum train grpo ([^`]*)`", SAME_AS_THEIRS)
    assert len(commands) == 2
    assert all(load_recipe("grpo", command.split()).stages[0].credit.ddof == 1 for command in commands)


def test_metrics_of_ours_are_explained():
    text = (Path(__file__).parents[2] / "docs/metrics.md").read_text()
    table = read_yaml((files("lyceum.recipe") / "other_metrics.yaml").read_text())
    assert [row["ours"] for rows in table.values() for row in rows.values() if f"`{row['ours']}`" not in text] == []


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


WRITTEN = re.compile(r"(?<!\S)([a-z_][a-z_0-9.]*=[^\s;]+?)(?=[,:;.]?(?:\s|$))")
"""key=value in a note."""


def assignments():
    """Every run of key=value that the table writes, in values and in notes, where no word in it has to be replaced."""
    for name in other_names():
        if name.library in ("verl", "OpenRLHF"):
            yield from (typed for typed in name.values.values() if typed != "engine=vllm")  # not installed everywhere
            for part in re.split(r"[;:,] |, or ", name.note):
                found = " ".join(WRITTEN.findall(part))
                if found and not re.search(r"[A-Z]{3}|wandb|vllm|\{", found):
                    yield found


@pytest.mark.parametrize("typed", sorted(set(assignments())))
def test_what_the_table_says_to_type_can_be_typed(typed):
    of_files = ["tasks=rows.jsonl"] if typed.startswith("tasks.") else []
    load_recipe("grpo", [*of_files, *typed.split()])


def test_no_key_of_ours_is_taken_for_one_of_another_library():
    values = [value for name in other_names() for value in name.values]
    assert [(key, v) for key in keys() for v in (None, *values) if answered(key, v) and key != "name"] == []


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("num_generations=8", "rollout.samples is TRL's num_generations"),
        ("--num_generations=8", "rollout.samples is TRL's num_generations"),
        ("data.train-batch-size=8", "tasks_per_step is verl's data.train_batch_size"),
        ("optim.lr=8", "learner.lr is verl's actor_rollout_ref.actor.optim.lr"),
        ("init_kl_coef=0.1", "credit.kl_in_reward.coefficient is OpenRLHF's init_kl_coef: in the reward"),
        ("algo.kl.init_coef=0.1", "credit.kl_in_reward.coefficient is OpenRLHF's init_kl_coef: in the reward"),
        ("adv_estimator=rloo", "(credit=leave-one-out is verl's algorithm.adv_estimator=rloo)"),
        ("norm_adv_by_std_in_grpo=False", "(credit.scale=none is verl's algorithm.norm_adv_by_std_in_grpo=false)"),
        ("trainer.save_freq=-1", "(checkpoint_every=0 is verl's trainer.save_freq=-1)"),
        ("critic.optim.weight_decay=0", "objective.value_coefficient is verl's critic.*: the value is a head"),
        ("ref.strategy=fsdp2", "reference is verl's actor_rollout_ref.ref.*"),
        ("reward_model.overlong_buffer.len=16", "reward is verl's reward_model.overlong_buffer.*"),
        ("reward.custom_reward_function.path=f.py", "reward is verl's reward.custom_reward_function.path"),
        ("rollout.multi_turn.enable=true", "is verl's actor_rollout_ref.rollout.multi_turn.enable: rollout=turns"),
        ("credit=reinforce++", "did you mean 'reinforce-plus-plus'?"),
        ("objective.aggregate=seq-mean-token-sum-norm", "did you mean 'constant'?"),
        ("objective.kl.estimator=low_var_kl", "did you mean 'k3'?"),
        ("rollout.sampling.top_k=-1", "rollout.sampling.top_k: got -1; allowed: 0 or more; 0 is what -1 is elsewhere"),
        ("++learner.lr=1e-6", "allowed: the key alone, learner.lr=1e-6"),
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
