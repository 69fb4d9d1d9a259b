"""Recipes: merged, changed by dotted keys, checked as a whole; every one that comes with the package runs."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from begun_run import begun_run

from lyceum.models.load import LoraSettings
from lyceum.recipe.files import merged, read_merged
from lyceum.recipe.schema import apply_overrides, load_recipe, parse, read_override, recipe_names, tasks_from_text
from lyceum.training.train import train
from lyceum.utils.errors import RecipeError

TINY = ["steps=2", "tasks_per_step=2", "evaluate.n=2", "evaluate.samples=2", "evaluate.k=[1,2]", "model=scratch"]
SHORT = ["rollout.samples=2", "rollout.sampling.max_completion_tokens=8"]


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_that_ships_is_valid_and_has_a_title(name):
    recipe = load_recipe(name)
    assert recipe.title
    assert recipe.summary or not recipe.paper, "a recipe of a paper has a summary, its line in docs/papers.md"
    assert recipe.name == recipe.label == name
    assert parse(recipe.resolved()).resolved() == recipe.resolved()


def stage(name: str):
    return load_recipe(name).stages[0]


def test_the_methods_differ_where_their_papers_say():
    assert stage("grpo").credit.scale == "std"
    assert stage("grpo").objective.aggregate == "sequence"
    # Dr. GRPO: neither division. A constant other than the longest completion would be another learning rate.
    dr = stage("dr-grpo")
    assert dr.credit.scale == "none"
    assert dr.objective.aggregate == "constant"
    assert dr.objective.constant == dr.rollout.sampling.max_completion_tokens
    dapo = stage("dapo")
    assert (dapo.objective.clip_low, dapo.objective.clip_high, dapo.objective.aggregate) == (0.2, 0.28, "token")
    assert dapo.collect.keep == "partly-solved"
    overlong = load_recipe("dapo").reward[1]
    assert overlong.max_tokens == dapo.rollout.sampling.max_completion_tokens
    assert stage("rloo").credit.kind == "leave-one-out"
    assert stage("rloo").objective.kind == "reinforce"
    assert stage("reinforce-plus-plus").credit.kl_in_reward.coefficient > 0
    assert stage("ppo").objective.value_coefficient > 0
    assert (stage("gspo").objective.clip_low, stage("gspo").objective.clip_high) == (3e-4, 4e-4)
    assert stage("cispo").objective.clip_low == 1  # the weight has no lower bound


CLIPPING = ["gspo", "ppo", "cispo", "dapo", "reinforce-plus-plus"]
CLIPPING += ["guide-grpo", "pcurl", "relift", "ruscarl", "scaf-grpo", "treepo"]


@pytest.mark.parametrize("name", CLIPPING)
def test_a_method_that_clips_ratios_updates_more_than_once_a_step(name):
    # In the first update every ratio is 1: with one update the method would be plain policy gradient.
    online = [stage for stage in load_recipe(name).stages if stage.kind == "online"]
    assert all(stage.learner.updates_per_step > 1 for stage in online)


def test_ruscarl_has_its_scripts_kl():
    kl = stage("ruscarl").objective.kl
    assert (kl.coefficient, kl.estimator) == (0.001, "k3")


def test_a_stage_key_reaches_every_stage_that_has_it():
    raw = {"stages": [{"kind": "sft", "steps": 5}, {"kind": "online", "steps": 7}]}
    apply_overrides(raw, ["steps=3", "rollout.samples=4", "stages.0.tasks_per_step=9"])
    assert raw["stages"] == [
        {"kind": "sft", "steps": 3, "tasks_per_step": 9},
        {"kind": "online", "steps": 3, "rollout": {"samples": 4}},
    ]


def test_a_stage_that_is_named_alone_or_not_at_all_has_its_keys():
    raw = {"stages": ["sft", {"tasks_per_step": 2}]}
    apply_overrides(raw, ["steps=3"])
    assert raw["stages"] == [{"kind": "sft", "steps": 3}, {"tasks_per_step": 2, "steps": 3}]
    assert [stage.kind for stage in parse({**raw, "tasks": "chain-demonstrations"}).stages] == ["sft", "online"]


@pytest.mark.parametrize(
    ("overrides", "weights"),
    [
        (["reward.weight=2"], [("task", 2)]),  # the usual one, which no key names
        (["reward.0.weight=2"], [("task", 2)]),
        (["reward=[task, math]", "reward.1.weight=2"], [("task", 1), ("math", 2)]),
        (["reward=math", "reward.0.weight=2"], [("math", 2)]),
    ],
)
def test_a_part_of_a_reward_has_its_keys_however_it_was_written(overrides, weights):
    assert [(part.kind, part.weight) for part in load_recipe("grpo", overrides).reward] == weights


def test_the_second_of_two_equal_stages_can_be_replaced():
    # list.index finds the first that is equal: it would replace the wrong one.
    raw = {"stages": [{"kind": "online"}, {"kind": "online"}]}
    apply_overrides(raw, ["stages.1={kind: sft}"])
    assert raw["stages"] == [{"kind": "online"}, {"kind": "sft"}]


def test_what_a_later_key_replaces_is_said(caplog):
    # It was lost without a word, so that a run waited for 30 s where 1 was typed.
    load_recipe("grpo", ["objective.clip_high=0.5", "objective=gspo"])
    assert caplog.messages == [
        "objective.clip_high: given before objective=..., which replaces it; behind that it counts"
    ]
    caplog.clear()
    behind = load_recipe("grpo", ["objective=gspo", "objective.clip_high=0.5"])
    assert (behind.stages[0].objective.clip_high, caplog.messages) == (0.5, [])


def test_another_kind_leaves_the_settings_of_the_old_one_behind():
    recipe = load_recipe("ppo", ["credit=reinforce", "objective.value_coefficient=0"])
    assert recipe.stages[0].credit.model_dump()["kind"] == "reinforce"
    merged_recipe = merged({"credit": {"kind": "gae", "lam": 0.9}}, {"credit": {"kind": "group", "scale": "none"}})
    assert merged_recipe == {"credit": {"kind": "group", "scale": "none"}}
    assert merged({"credit": {"kind": "gae", "lam": 0.9}}, {"credit": {"gamma": 0.5}}) == {
        "credit": {"kind": "gae", "lam": 0.9, "gamma": 0.5}
    }


@pytest.mark.parametrize(
    ("typed", "tasks"),
    [
        ("chain", {"kind": "chain"}),
        ("reasoning-gym:chain_sum", {"kind": "reasoning-gym", "dataset": "chain_sum"}),
        ("data.jsonl", {"kind": "dataset", "path": "data.jsonl"}),
        ("folder/data.parquet", {"kind": "dataset", "path": "folder/data.parquet"}),
        ("openai/gsm8k", {"kind": "dataset", "path": "openai/gsm8k"}),
        ("chian", {"kind": "chian"}),  # refused by name, with the nearest kind
        ("chain:4", {"kind": "chain:4"}),  # no setting of chain is needed, so that 4 could be anything
    ],
)
def test_tasks_are_what_one_types(typed, tasks):
    assert tasks_from_text(typed) == tasks


def test_typed_tasks_take_further_keys():
    recipe = load_recipe("grpo", ["tasks=reasoning-gym:chain_sum", "tasks.size=50", "evaluate.tasks=chain"])
    assert (recipe.tasks.dataset, recipe.tasks.size, recipe.evaluate.tasks.kind) == ("chain_sum", 50, "chain")


def test_a_file_named_for_evaluation_is_used_whole(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        Path(f"{name}.jsonl").write_text("".join(f'{{"prompt": "{name}{i}", "answer": "1"}}\n' for i in range(30)))
    keys = ["tasks=a.jsonl", "evaluate.tasks=b.jsonl"]

    def evaluated(*keys):
        return len(load_recipe("grpo", keys).evaluate.tasks.build("heldout", 0))

    assert evaluated(*keys) == 30
    assert evaluated("tasks=a.jsonl", "evaluate.tasks=[b.jsonl]") == 30
    # Of a file that is trained on the held-out rows alone, of the others beside it all.
    held_out = evaluated("tasks=a.jsonl", "evaluate.tasks=[a.jsonl]")
    assert evaluated("tasks=a.jsonl", "evaluate.tasks=[a.jsonl,b.jsonl]") == held_out + 30
    assert 0 < evaluated(*keys, "evaluate.tasks.heldout_share=0.5") < 30
    assert evaluated("tasks=b.jsonl", "evaluate.tasks=b.jsonl") < 30  # the others are trained on
    # A recipe that is written out means the same.
    assert parse(load_recipe("grpo", keys).resolved()) == load_recipe("grpo", keys)


def test_numbers_as_people_write_them():
    # YAML 1.1 has 1e-4 as a text: an override must not depend on whether its setting coerces. What is quoted is a text.
    assert read_override("x={lr: 1e-4, names: [e, 1e3, '1e3']}") == ("x", {"lr": 1e-4, "names": ["e", 1000.0, "1e3"]})
    assert load_recipe("grpo", ["learner.lr=1e-4"]).stages[0].learner.lr == 1e-4


def test_what_yaml_would_take_for_a_comment_is_a_text_on_the_command_line():
    # The shell has taken the quotes of answer_after="####", and YAML alone would read nothing at all.
    assert read_override("tasks.answer_after=####") == ("tasks.answer_after", "####")
    assert read_override("instruction=Answer after # please") == ("instruction", "Answer after # please")
    assert read_override("stop=['#', '##']") == ("stop", ["#", "##"])
    assert read_override("value=null") == ("value", None)


def test_a_title_of_its_own_does_not_come_with_another_methods_paper(tmp_path):
    (tmp_path / "mine.yaml").write_text("extends: grpo\ntitle: Mine\n")
    (tmp_path / "same.yaml").write_text("extends: grpo\nseed: 3\n")
    assert load_recipe(str(tmp_path / "mine.yaml")).paper == ""
    assert load_recipe(str(tmp_path / "same.yaml")).paper == "arXiv:2402.03300"


def test_lora_may_be_switched_on_alone():
    assert load_recipe("grpo", ["model.lora=true"]).model.lora == LoraSettings()
    assert load_recipe("grpo", ["model.lora=false"]).model.lora is None
    assert load_recipe("grpo", ["model.lora.rank=4"]).model.lora == LoraSettings(rank=4)


def test_a_file_may_extend_the_recipe_of_its_own_name_but_not_itself(tmp_path):
    (tmp_path / "grpo.yaml").write_text("extends: grpo\nseed: 3\n")
    recipe = load_recipe(str(tmp_path / "grpo.yaml"))
    assert recipe.seed == 3
    assert recipe.stages[0].credit.kind == "group"
    (tmp_path / "a.yaml").write_text("extends: b.yaml\n")
    (tmp_path / "b.yaml").write_text("extends: a.yaml\n")
    with pytest.raises(RecipeError, match="goes in a circle"):
        read_merged(str(tmp_path / "a.yaml"))


def test_a_file_names_a_key_of_a_stage_alone_and_keeps_the_stage_s_other_settings(tmp_path):
    (tmp_path / "base.yaml").write_text("extends: grpo\nlearner: {lr: 1e-6}\nsteps: 3\n")
    (tmp_path / "mine.yaml").write_text(
        "extends: base.yaml\nlearner: {warmup_steps: 2}\nobjective.clip_high: 0.3\ncredit: leave-one-out\n"
    )
    usual, [stage] = load_recipe("grpo").stages[0], load_recipe(str(tmp_path / "mine.yaml")).stages
    assert (stage.steps, stage.credit.kind, stage.objective.clip_high) == (3, "leave-one-out", 0.3)
    assert stage.learner == usual.learner.model_copy(update={"lr": 1e-6, "warmup_steps": 2})


@pytest.mark.parametrize("text", ["stages: 3\n", "stages: 3\nmax_steps: 4\n"])
def test_stages_that_are_no_list_are_refused(text, tmp_path):
    (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(RecipeError, match="stages: got 3; allowed: a list"):
        load_recipe(str(tmp_path / "mine.yaml"))


def test_a_file_s_data_makes_its_stage_an_offline_one(tmp_path):
    (tmp_path / "mine.yaml").write_text("extends: dpo\nlearner: {lr: 1e-6}\ndata: pairs.jsonl\n")
    recipe = load_recipe(str(tmp_path / "mine.yaml"))
    assert recipe == load_recipe("dpo", ["data=pairs.jsonl", "learner.lr=1e-6"]).model_copy(
        update={"name": "mine", "label": "mine"}
    )


def test_all_mistakes_are_told_at_once():
    with pytest.raises(RecipeError) as error:
        load_recipe("grpo", ["credit.scale=sdt", "tasks.levls=[1]", "seed=-1"])
    assert len(error.value.lines) == 3


@pytest.mark.parametrize(
    "key", ["steps", "seed", "learner.lr", "max_tokens", "rollout.sampling.temperature", "evaluate.n"]
)
def test_truth_is_no_number(key):
    with pytest.raises(RecipeError, match=rf"{key}: got True; allowed: a number"):
        load_recipe("grpo", [f"{key}=true"])


def test_truth_is_no_number_in_a_list_either():
    with pytest.raises(RecipeError, match=r"evaluate.k: got \[True, 8\]; allowed: a number"):
        load_recipe("grpo", ["evaluate.k=[true, 8]"])


@pytest.mark.parametrize("key", ["rollout.sampling.temperature", "objective.kl.coefficient", "learner.lr"])
def test_a_number_is_finite(key):
    with pytest.raises(RecipeError, match=rf"{key}: got inf; allowed: a finite number"):
        load_recipe("grpo", [f"{key}=.inf"])


def test_a_reward_part_that_never_acts_is_refused():
    with pytest.raises(RecipeError, match=r"reward.overlong.max_tokens: got 800 with buffer_tokens 10"):
        load_recipe("dapo", ["reward.1.max_tokens=800"])


def test_a_run_resumes_under_another_label_or_place_but_not_under_another_method(tmp_path):
    from lyceum.recipe.resumed import MAY_DIFFER

    recipe = load_recipe("grpo", [*TINY, f"output={tmp_path}"])
    begun_run(tmp_path, "grpo", recipe.resolved()).close()
    again = load_recipe("grpo", [*TINY, f"output={tmp_path}", "label=other"])
    begun_run(tmp_path, "grpo", again.resolved(), resume=True, may_differ=MAY_DIFFER).close()
    changed = load_recipe("grpo", [*TINY, f"output={tmp_path}", "objective.clip_high=0.5"])
    with pytest.raises(RecipeError, match=r"clip_high: got 0\.5"):
        begun_run(tmp_path, "grpo", changed.resolved(), resume=True, may_differ=MAY_DIFFER)


def test_a_run_that_an_earlier_version_began_goes_on(tmp_path):
    recipe = load_recipe("grpo", [*TINY, *SHORT, "steps=1", f"output={tmp_path}"])
    run = train(recipe)
    (run / "report.html").unlink()
    written = yaml.safe_load((run / "recipe.yaml").read_text())
    del written["model"]["chat_template_kwargs"]  # a key that there was not yet
    (run / "recipe.yaml").write_text(yaml.safe_dump(written))
    assert train(recipe, resume=True) == run
    assert (run / "report.html").exists()


def test_a_reward_may_be_typed_as_the_place_of_a_function(tmp_path):
    # What a newcomer types for their own reward; a recipe's file alone must not be able to say so.
    (part,) = load_recipe("grpo", ["reward=my_reward.py:score"]).reward
    assert (part.kind, part.function) == ("function", "my_reward.py:score")
    both = load_recipe("grpo", ["reward=[math, my_reward.py:score]"]).reward
    assert [part.kind for part in both] == ["math", "function"]
    file = tmp_path / "theirs.yaml"
    file.write_text("extends: grpo\nreward: my_reward.py:score\n")
    with pytest.raises(RecipeError, match="trust_code"):
        load_recipe(str(file))


def test_a_file_that_has_its_run_written_elsewhere_says_so(tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other.yaml").write_text("extends: grpo\noutput: ../elsewhere\n")
    load_recipe("other.yaml")
    assert f"has its run written to {tmp_path.parent / 'elsewhere'}" in caplog.text
    caplog.clear()
    load_recipe("other.yaml", ["output=/tmp"])
    (tmp_path / "other.yaml").write_text("extends: grpo\noutput: runs/mine\n")
    load_recipe("other.yaml")
    assert "written to" not in caplog.text
