import signal

import pytest
from pydantic import ValidationError

import lyceum
from lyceum.recipe.schema import load_recipe
from lyceum.training.stages.stopping import Ending, Until, UntilHeldOut, UntilOnline, ends_in_words
from lyceum.utils.errors import Interrupted, RecipeError

pytestmark = pytest.mark.usefixtures("small_scratch")


def seen(settings, *shares):
    ending = Ending(settings)
    ends = []
    for share in shares:
        ending.observe({"correct/mean": share, "heldout/overall": 1.0})
        ends.append(ending.reached)
    return ends


def test_a_stage_ends_when_a_whole_window_is_solved_well_enough():
    # windows of 2: (.9) too short, (.9 .6) .75, (.6 1) .8
    assert seen(Until(solved=0.8, window=2), 0.9, 0.6, 1.0) == [False, False, True]


def test_a_stage_ends_when_a_window_is_no_better_than_the_one_before():
    # means .1 -> .3 (rises by .2), then .2 -> .3, then .2 -> .25
    assert seen(Until(least_rise=0.1, window=2), 0.0, 0.2, 0.2, 0.4, 0.1) == [False] * 3 + [False, True]


def test_a_step_that_nobody_judged_does_not_count():
    assert seen(Until(solved=0.5, window=1), None, 0.5) == [False, True]


def test_without_a_rule_nothing_ends_early():
    assert seen(None, 1.0, 1.0) == [False, False]


def test_a_resumed_stage_remembers_its_windows():
    first, second = (Ending(Until(solved=0.8, window=2)) for _ in range(2))
    first.observe({"correct/mean": 0.9})
    second.load_state_dict(first.state_dict())
    second.observe({"correct/mean": 0.9})
    assert second.reached


def test_held_out_accuracy_is_of_the_steps_that_evaluate():
    ending = Ending(UntilHeldOut(least_rise=0.1, window=1))
    for metrics in ({"heldout/overall": 0.5}, {"correct/mean": 0.0}, {"heldout/overall": 0.5625}):
        assert not ending.reached
        ending.observe(metrics)
    assert ending.why == "held-out accuracy (mean of 1) rose by 0.0625 (until.least_rise=0.1)"


def test_a_rule_that_can_never_end_a_stage_is_refused():
    with pytest.raises(ValidationError, match="neither solved nor least_rise"):
        Until()
    with pytest.raises(ValidationError, match="less than or equal to 1"):
        Until(solved=1.2)
    with pytest.raises(RecipeError, match=r"until\.window: got 30"):
        load_recipe("grpo", ["steps=60", "until.least_rise=0.01", "until.window=30"])
    assert load_recipe("grpo", ["steps=61", "until.least_rise=0.01", "until.window=30"])


def test_a_curriculum_without_an_end_cannot_end_a_stage():
    with pytest.raises(RecipeError, match=r"curriculum\.kind 'uniform' has no end; .* angles, .*phases, posterior"):
        load_recipe("grpo", ["until.curriculum=true"])
    with pytest.raises(RecipeError, match="neither solved nor least_rise nor curriculum"):
        load_recipe("grpo", ["until.curriculum=false"])
    # One step is less than a window, but accuracy does not end it.
    assert load_recipe("grpo", ["steps=1", "until.curriculum=true", "curriculum=hard-filter"])
    with pytest.raises(RecipeError, match=r"until\.curriculum: unknown key"):
        load_recipe("cascade-rl", ["stages.offline.until.curriculum=true"])


def test_a_rule_in_words():
    assert ends_in_words(UntilOnline(curriculum=True)) == ["ends early if its curriculum is through"]
    assert ends_in_words(UntilOnline(curriculum=True, solved=0.5, window=1)) == [
        "ends early if training accuracy (mean of 1) reaches 0.5, or its curriculum is through"
    ]
    assert seen(UntilOnline(curriculum=True), *[1.0] * 9) == [False] * 9, "accuracy alone ends nothing"


def test_a_stage_ends_with_its_curriculum_also_when_it_is_resumed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # Of 4 and of 5 characters: two phases of a step.
    (tmp_path / "rows.jsonl").write_text("".join(f'{{"prompt": "{i}+1=", "answer": "x"}}\n' for i in range(30)))
    keys = {
        "model": "scratch", "evaluate.n": 0, "tasks_per_step": 2, "rollout.samples": 2, "track": [], "steps": 9,
        "rollout.sampling.max_completion_tokens": 4, "progress": "silent", "checkpoint_every": 1, "name": "stopped",
        "curriculum": {"kind": "phases", "lengths": [4, 5], "every_steps": 1}, "until": {"curriculum": True},
    }  # fmt: skip
    graded = 0

    def reward(completion: str, answer: str) -> float:
        nonlocal graded
        graded += 1
        if graded == 1:  # the first step is finished
            signal.raise_signal(signal.SIGINT)
        return len(completion) / 4

    with pytest.raises(Interrupted):
        lyceum.train("grpo", tasks="rows.jsonl", reward=reward, **keys)
    run = lyceum.train("grpo", tasks="rows.jsonl", reward=reward, resume=True, **keys)
    assert run.summary["ended"] == {"online": {"steps": 2, "why": "all 2 phases are over"}}
    assert graded == 8
