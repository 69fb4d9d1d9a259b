"""From Python: what a recipe does in ten lines, in a notebook too."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import lyceum
from lyceum.reward.function_registry import reward_settings
from lyceum.utils.errors import Interrupted, NothingLearntWarning, RecipeError
from lyceum.utils.threads import SPINS

pytestmark = pytest.mark.usefixtures("small_scratch")

TINY = {
    "steps": 2,
    "tasks_per_step": 2,
    "evaluate__n": 2,
    "evaluate__samples": 2,
    "evaluate__k": (1, 2),
    "model": "scratch",
    "rollout.samples": 2,
    "rollout.sampling.max_completion_tokens": 8,
    "progress": "silent",
}


@pytest.fixture(autouse=True)
def here(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)


def test_a_run_is_an_object_with_its_figures(tmp_path):
    run = lyceum.train("grpo", **TINY, **{"objective.clip_high": 0.3})
    assert run.path.resolve() == tmp_path / "runs" / "grpo"
    assert run.report.exists()
    assert run.model.is_dir()
    assert [line["step"] for line in run.metrics] == [1, 2]
    assert run.summary["finished"]
    assert run.examples[0]["after"]["completion"] is not None
    assert "held-out" in repr(run)
    assert "<td>one sample</td>" in run._repr_html_()
    assert len(run.rollouts) == 2 * 2
    assert list(run.plot("loss").axes[0].lines[0].get_xdata()) == [1, 2]
    found = run.evaluate(k=(1, 2), n=2, progress="silent")
    assert set(found["pass_at"]) == {"1", "2"}
    assert found["sampling"]["max_completion_tokens"] == 8
    policy = lyceum.load_model(run.path)
    assert policy.render([{"role": "user", "content": "1+1="}])
    live = lyceum.evaluate(policy, "chain", k=(1,), n=2, max_completion_tokens=4, progress="silent")
    assert live["model"] == "a loaded model"
    assert live["samples"] == 1


def test_ten_lines_of_a_notebook_cell_run_inside_its_event_loop():
    async def cell():
        return lyceum.train("grpo", **TINY)

    assert asyncio.run(cell()).summary["finished"]


def test_a_python_function_is_a_reward(tmp_path):
    rows = [{"prompt": f"{i}+1=", "answer": str(i + 1), "odd": i % 2} for i in range(40)]
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    seen = []

    def closeness(completion, answer, odd):
        seen.append((answer, odd))  # a closure: the function runs in this very process
        return len(completion) / 8

    run = lyceum.train("grpo", tasks="data.jsonl", reward=[closeness, lambda completion: 1.0], **TINY)
    assert seen
    assert all(int(answer) % 2 != odd for answer, odd in seen)
    assert {"reward/part/closeness", "reward/part/lambda"} <= set(run.metrics[0])
    with pytest.raises(RecipeError, match=r"asks for 'anser' \(did you mean 'answer'"):
        lyceum.train("grpo", tasks="data.jsonl", reward=lambda anser: 1.0, name="second", **TINY)


def test_a_function_in_a_mapping_has_its_weight_and_messages_call_it_by_its_name():
    def score(completion):
        return None if completion else 1.0

    part = {"function": score, "weight": 0.5}
    run = lyceum.train("grpo", reward=[part, "task"], **TINY | {"steps": 1, "evaluate__n": 0}, output=Path("folder"))
    assert run.path == Path("folder/grpo")
    assert "score: score gave None: it does not grade this" in run.summary["reasons_ungraded"]
    assert [part["weight"] for part in reward_settings([part, {"kind": "task", "weight": 1}])] == [0.5, 1]


def test_a_loaded_recipe_takes_a_name_and_a_run_stands_for_its_model():
    recipe = lyceum.load_recipe("grpo", [(key.replace("__", "."), value) for key, value in TINY.items()][:-1])
    run = lyceum.train(recipe, name="named", progress="silent")
    assert run.path == Path("runs/named")
    assert lyceum.evaluate(run, n=2, k=(1,), progress="silent")["model"] == "runs/named/model"
    assert lyceum.load_model(run).module.num_parameters()
    further = lyceum.train("grpo", **TINY | {"model": run}, name="further")
    assert lyceum.load_recipe(str(further.path / "recipe.yaml")).model.path == "runs/named/model"


def test_a_run_that_learnt_nothing_warns():
    with pytest.warns(NothingLearntWarning, match="nothing was learnt: every reward was 1"):
        lyceum.train("grpo", reward=lambda completion: 1.0, **TINY | {"steps": 1, "evaluate__n": 0})


def test_a_run_with_a_python_function_is_resumed_by_handing_it_over_again(monkeypatch):
    graded = []

    def length(completion):
        graded.append(completion)
        if len(graded) == 1:
            signal.raise_signal(signal.SIGINT)  # the run stops at the end of its first step
        return len(completion) / 8

    given = {"reward": length, "name": "kept", **TINY}
    with pytest.raises(Interrupted):
        lyceum.train("grpo", **given)
    assert len(lyceum.train("grpo", resume=True, **given).metrics) == 2
    # Its own process knows it, and asks for no trust.
    assert lyceum.Trained("runs/kept").evaluate(k=(1,), n=2)["reward"] is not None
    monkeypatch.setattr("lyceum.reward.function_registry.FUNCTIONS", {})  # as in another process
    said = r"'reward_length' was passed in from Python, and not in this process; allowed: .*reward=FILE\.py:FUNCTION"
    for trust in ([], ["trust_code=true"]):
        with pytest.raises(RecipeError, match=said):
            lyceum.train("runs/kept/recipe.yaml", trust, name="again")
        with pytest.raises(RecipeError, match=said):
            lyceum.evaluate("runs/kept", overrides=trust)
    assert "reward.0.function=FILE.py:FUNCTION --name again" in Path("runs/kept/model/README.md").read_text()


def test_functions_for_trl_and_verl_are_known_by_their_parameters():
    def trl(prompts, completions, **columns):
        return [1.0 for _ in completions]

    def compute_score(data_source, solution_str, ground_truth, extra_info):
        return 1.0

    parts = reward_settings([trl, compute_score, "task"])
    assert [part if isinstance(part, str) else part["kind"] for part in parts] == ["trl", "verl", "task"]
    weighted = reward_settings({"function": trl, "weight": 0.5})
    assert weighted == parts[0] | {"weight": 0.5}
    with pytest.raises(RecipeError, match="reward: got a tuple"):
        reward_settings([(trl, 0.5)])
    # Two functions of one name in one reward are two functions.
    first, second = reward_settings([lambda completion: 1.0, lambda completion: 2.0])
    assert first["function"] != second["function"]


def test_recipes_compare_from_python(tmp_path):
    found = lyceum.compare(["grpo", "rloo"], seeds=1, each={"rloo": {"learner.lr": 1e-3}}, **TINY)
    assert [metrics.recipe for metrics in found.recipes] == ["grpo", "rloo"]
    assert (tmp_path / "runs/compare-grpo-rloo/rloo-seed0/report.html").exists()
    # The curve goes from before the run to after it.
    assert len(found.recipes[0].curve) >= 2


def test_a_comparison_has_the_same_evaluation_and_budget():
    from lyceum.analysis.comparison.run import labels_of, plan, split_own

    assert labels_of(["grpo", "grpo@wide", "dir/mine.yaml", "grpo"]) == {
        "grpo": "grpo",
        "wide": "grpo",
        "mine": "dir/mine.yaml",
        "grpo-2": "grpo",
    }
    words = ["grpo", "rloo", "steps=3", "rloo:tasks=reasoning-gym:x"]
    assert split_own(words) == (["grpo", "rloo"], ["steps=3"], {"rloo": ["tasks=reasoning-gym:x"]})
    given = ["model=scratch", "tasks_per_step=4", "rollout.samples=2"]
    planned = plan(["grpo", "dapo"], given, {}, seeds=2, tokens=1000, name="x", output="runs")
    assert [recipe.name for recipe in planned.recipes] == ["grpo-seed0", "dapo-seed0", "grpo-seed1", "dapo-seed1"]
    assert len({recipe.evaluate.model_dump_json() for recipe in planned.recipes}) == 1
    # 4 tasks x 2 samples of at least a token each: 125 steps at most.
    assert {(stage.max_tokens, stage.steps) for recipe in planned.recipes for stage in recipe.stages} == {(1000, 125)}
    fixed = plan(["grpo"], [*given, "steps=5"], {}, seeds=1, tokens=1000, name=None, output="runs")
    assert fixed.recipes[0].stages[0].steps == 5


def test_lyceum_is_light_until_it_is_used():
    code = "import sys, lyceum; sys.exit('torch' in sys.modules or 'pydantic' in sys.modules or 'rich' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_threads_wait_passively_where_lyceum_is_used_before_torch_is_imported():
    code = (
        "import os, sys, lyceum; lyceum.train; assert 'torch' not in sys.modules; print(os.environ['GOMP_SPINCOUNT'])"
    )
    own = {key: value for key, value in os.environ.items() if not key.startswith(("GOMP", "OMP_WAIT"))}
    done = subprocess.run([sys.executable, "-c", code], env=own, capture_output=True, text=True)
    assert done.stdout.strip() == SPINS, done.stderr


def test_the_packages_names_are_those_that_it_lists():
    with pytest.raises(RecipeError, match="did you mean 'grpo'"):
        lyceum.train("gpro")
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        _ = lyceum.trian
    assert set(lyceum.__all__) <= set(dir(lyceum))
    assert all(getattr(lyceum, name) is not None for name in lyceum.__all__)


def test_a_model_is_loaded_and_saved_without_a_bar_whoever_asks(capsys, tmp_path):
    from transformers.utils import logging

    from lyceum.models.load import ModelSettings, load_policy, save_policy

    logging.enable_progress_bar()
    save_policy(load_policy(ModelSettings()), tmp_path / "model")
    assert capsys.readouterr().err == ""


def test_other_libraries_settings_are_put_back():
    from transformers.utils import logging

    from lyceum.utils.library_messages import quiet

    logging.set_verbosity_info()
    logging.enable_progress_bar()
    try:
        with quiet():
            assert logging.get_verbosity() == logging.ERROR
            assert not logging.is_progress_bar_enabled()
        assert logging.get_verbosity() == logging.INFO
        assert logging.is_progress_bar_enabled()
    finally:
        logging.set_verbosity_warning()
