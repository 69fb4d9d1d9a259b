import json

import pytest

from lyceum.analysis.comparison.run import with_budget
from lyceum.papers.relift.stages_interleaved import FineTuner
from lyceum.recipe.schema import load_recipe, parse
from lyceum.training.train import check, train
from lyceum.utils.errors import Interrupted, RecipeError

pytestmark = pytest.mark.usefixtures("small_scratch")

# An untrained model fails at every chain: each step puts its 3 tasks aside, and a batch of 4 is full after 2, 3, 4.
STAGE = {
    "kind": "interleaved",
    "steps": 4,
    "tasks_per_step": 3,
    "rollout": {"kind": "flat", "samples": 2, "sampling": {"max_completion_tokens": 4}},
    "learner": {"lr": 1e-3},
    "fine_tuning": {"batch": 4, "learner": {"lr": 1e-2}},
}
RUN = {"model": "scratch", "tasks": {"kind": "chain", "levels": [1, 2]}, "evaluate": {"n": 0}}


def recipe(tmp_path, name="run", **stage):
    return parse(RUN | {"name": name, "output": str(tmp_path), "stages": [STAGE | stage]})


def metrics(tmp_path, name="run"):
    return [json.loads(line) for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]


def column(lines, name):
    return [line[name] for line in lines]


def test_failed_tasks_wait_until_they_fill_a_fine_tuning_step(tmp_path):
    train(recipe(tmp_path))
    lines = metrics(tmp_path)
    assert column(lines, "fine_tuning/collected") == [3, 3, 3, 3]
    # 3 wait; 6 make one step and leave 2; 5 make one and leave 1; 4 make one and leave none.
    assert column(lines, "fine_tuning/steps") == [0, 1, 1, 1]
    assert column(lines, "fine_tuning/waiting") == [3, 2, 1, 0]
    assert column(lines, "fine_tuning/demonstrations_used") == [0, 4, 8, 12]
    assert [("fine_tuning/nll" in line) for line in lines] == [False, True, True, True]
    # All rewards are 0, so that no gradient comes from the policy's own rollouts: what is trained is fine-tuning's.
    first, *others = column(lines, "tokens_trained")
    assert first == 0 < others[0] < others[1] < others[2]


def test_fine_tuning_learns_the_demonstrations(tmp_path):
    train(recipe(tmp_path, steps=12))
    nll = [line["fine_tuning/nll"] for line in metrics(tmp_path) if "fine_tuning/nll" in line]
    # Half a nat a token at least: catches a step that is taken and changes nothing, such as one without its loss.
    assert nll[-1] < nll[0] - 0.5


def test_the_newest_failures_are_learnt_first(tmp_path, monkeypatch):
    used, put_aside = [], []
    next_batch, aside = FineTuner.next_batch, FineTuner.put_aside

    async def noted(self, task):
        put_aside.append(task.id)
        return await aside(self, task)

    def taken(self):
        used.append([trace.task for trace in self.buffer[:4]])
        return next_batch(self)

    monkeypatch.setattr(FineTuner, "put_aside", noted)
    monkeypatch.setattr(FineTuner, "next_batch", taken)
    train(recipe(tmp_path, steps=2))
    assert used == [put_aside[:1:-1]]
    # An untrained model has no reward but 0: what it learnt it learnt from the demonstrations.
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["highest_reward"], summary["learnt"]) == (0, True)


def test_a_resumed_run_goes_on_with_the_same_buffer_and_optimiser(tmp_path):
    train(recipe(tmp_path, "whole"))
    asked = iter([False, False, True])
    with pytest.raises(Interrupted):
        train(recipe(tmp_path, "cut"), interrupted=lambda: next(asked))
    train(recipe(tmp_path, "cut"), resume=True)

    def untimed(name):
        lines = metrics(tmp_path, name)
        return [{k: v for k, v in line.items() if "second" not in k and k != "time"} for line in lines]

    assert untimed("cut") == untimed("whole")
    weights = [(tmp_path / name / "model" / "model.safetensors").read_bytes() for name in ("whole", "cut")]
    assert weights[0] == weights[1]


def test_a_demonstration_that_the_verifier_refuses_is_not_learnt(tmp_path):
    # The noisy writer's demonstrations, of which some are wrong; chains of level 4 and up slip in one of ten steps.
    noisy = RUN | {"tasks": {"kind": "chain-demonstrations"}, "name": "run", "output": str(tmp_path)}
    train(parse(noisy | {"stages": [STAGE | {"tasks_per_step": 40, "steps": 1}]}))
    (line,) = metrics(tmp_path)
    assert line["fine_tuning/not_right"] > 0
    assert line["fine_tuning/collected"] + line["fine_tuning/not_right"] == 40


def test_a_budget_of_tokens_can_be_set_for_it(tmp_path):
    (stage,) = with_budget(recipe(tmp_path), 600, keep_steps=False).stages
    assert (stage.kind, stage.max_tokens) == ("interleaved", 600)
    assert stage.fine_tuning == recipe(tmp_path).stages[0].fine_tuning


def test_what_cannot_work_is_refused(tmp_path):
    with pytest.raises(RecipeError, match=r"fine_tuning.objective.kind: got 'ppo-clip'.*allowed: sft"):
        recipe(tmp_path, fine_tuning={"objective": "ppo-clip"})
    with pytest.raises(RecipeError, match="no column 'demonstration', which stage 'interleaved' imitates"):
        check(load_recipe("relift", ["tasks=reasoning-gym:chain_sum", "evaluate.tasks=chain", "evaluate.n=1"]))
