import pytest
from hypothesis import given
from hypothesis import strategies as st
from leaves import grades, leaf
from pydantic import ValidationError
from some_tokenizers import decode_of, encoded

from lyceum.core.forest import build_forest
from lyceum.core.settings import Composition
from lyceum.core.sources import JudgesSteps, source_of, sources_of
from lyceum.core.tree import Node, Tree
from lyceum.core.types import Continuation, Origin
from lyceum.credit.gae import process_reward
from lyceum.papers.barfi.reward_steps import StepsReward
from lyceum.papers.clip_delta.reward_clip_delta import ClipDelta, refine
from lyceum.recipe.schema import load_recipe
from lyceum.reward.repetition import Repetition
from lyceum.reward.task import TaskReward
from lyceum.tasks.chain import Chain
from lyceum.tasks.countdown import Countdown, make_task
from lyceum.tasks.logic import Logic
from lyceum.tasks.mixture import Mixture
from lyceum.training.train import check
from lyceum.utils.errors import RecipeError


def test_clip_and_delta_by_hand():
    raw = [0.9, 0.2, 0.4, 0.8]
    # Clip at 0.5: what is above is 0, 0.2 - 0.5 and 0.4 - 0.5 remain; the last, the answer, is dropped.
    assert refine(raw, clip=0.5, delta=False, last="dropped") == pytest.approx([0, -0.3, -0.1, 0])
    # Delta: 0.9 - 0.2, 0.2 - 0.4, then the last step before the answer keeps its own.
    assert refine(raw, clip=None, delta=True, last="dropped") == pytest.approx([0.7, -0.2, 0.4, 0])
    # Both, clipped first: 0 + 0.3, -0.3 + 0.1, -0.1.
    assert refine(raw, clip=0.5, delta=True, last="dropped") == pytest.approx([0.3, -0.2, -0.1, 0])
    assert refine(raw, clip=None, delta=True, last="kept") == pytest.approx([0.7, -0.2, -0.4, 0.8])
    assert refine([], clip=0.5, delta=True, last="dropped") == []
    assert refine([0.2], clip=0.5, delta=True, last="dropped") == [0]


@given(st.lists(st.floats(0, 1), max_size=12), st.floats(0, 1), st.sampled_from(["dropped", "kept"]))
def test_what_is_earned_from_a_step_on_is_its_own_clipped_reward(raw, clip, last):
    # So that no number of steps earns more than 0, where their plain sum grows with each.
    both = refine(raw, clip=clip, delta=True, last=last)
    counted = raw[:-1] if last == "dropped" else raw
    for k, reward in enumerate(counted):
        assert sum(both[k:]) == pytest.approx(min(reward - clip, 0), abs=1e-9)
        assert sum(both[k:]) <= 1e-9


def test_repeating_a_true_equation_pays_raw_and_no_longer_when_refined():
    source = Countdown().build("train", 0)
    one = make_task("t", [8, 3, 2], 10, ["8-3=5", "5*2=10"], "(8-3)*2", prompt="{numbers} {target}")
    # 8-3=5 again uses numbers that are gone: the rule of countdown judges it wrong.
    text = "8-3=5, 5*2=10, 8-3=5 <answer>(8-3)*2=10</answer>"
    [raw] = grades([TaskReward(), StepsReward()], one, text, source=source)
    assert (raw.outcome, [step.reward for step in raw.steps]) == (1.0, [1, 1, 0])
    assert [text[step.start : step.stop] for step in raw.steps] == ["8-3=5", "5*2=10", "8-3=5"]
    [refined] = grades([TaskReward(), ClipDelta(last="kept")], one, text, source=source)
    # Clipped 0, 0, -1/2; differences 0, 1/2, -1/2.
    assert (refined.outcome, [step.reward for step in refined.steps]) == (1.0, [0, 0.5, -0.5])
    assert refined.parts["clip-delta/changed"] == 3
    assert (refined.parts["clip-delta/raw"], refined.parts["clip-delta/refined"]) == (2, 0)


@pytest.mark.parametrize("name", ["characters", "byte level", "sentencepiece"])
def test_process_rewards_are_on_the_last_token_of_their_equation_for_any_tokenizer(name):
    source, decode = Countdown().build("train", 0), decode_of(name)
    one = make_task("t", [8, 3, 2], 10, [], "", prompt="{numbers} {target}")
    text = "the answer is 8-3=5. Next 5*3=15, <answer>1</answer>"
    root, tokens = Node(None, [1], Origin.PROMPT), encoded(name, text)
    n = len(tokens)
    written = root.add_drawn(Continuation(tokens, [-1.0] * n, [-1.0] * n, [0] * n, "stop"), decode(tokens))
    [written.grade] = grades([TaskReward(), StepsReward(weight=2)], one, written, source=source)
    forest = build_forest([Tree(one, [root])], decode=decode)
    earned = process_reward(forest, forest.rows())[0].tolist()
    [place] = [at for at, reward in enumerate(earned) if reward]
    assert earned[place] == 2
    upto = len("the answer is 8-3=5")
    assert len(decode(tokens[:place])) <= upto < len(decode(tokens[: place + 1])), "the last token that ends in it"
    judged = forest.segment_reward[~forest.segment_reward.isnan()].tolist()
    assert judged == [2, 0], "5*3=15 is true, and 3 is gone"


def test_rules_of_other_tasks():
    logic = Logic().build("train", 0)
    task = logic[5]
    right, text = task.columns["steps"], ", ".join([*task.columns["steps"], "Z -> Z <answer>A -> B</answer>"])
    assert [step.reward for step in logic.judged_steps(task, text)] == [1.0] * len(right) + [0.0]
    both = Mixture.model_validate({"parts": [{"tasks": "countdown"}, {"tasks": "logic"}]}).build("train", 0)
    assert all(isinstance(one, JudgesSteps) for one in sources_of(both))
    own, same = source_of(both, next(both[i] for i in range(9) if "facts" in both[i].columns))
    assert isinstance(own, JudgesSteps)
    assert [step.reward for step in own.judged_steps(same, "A -> B")]


def test_reasoning_gym_judges_each_equation_by_itself():
    source = load_recipe("clip-delta", ["tasks=reasoning-gym:chain_sum"]).tasks.build("train", 0)
    text = "4 + 3 = 7, so 7+1=9 and 7 - 10 = -3. <answer>4+3=7</answer>"
    found = source.judged_steps(source[0], text)
    assert [(text[step.start : step.stop], step.reward) for step in found] == [
        ("4 + 3 = 7", 1),
        ("7+1=9", 0),
        ("7 - 10 = -3", 1),
    ]


def test_tasks_without_a_rule_and_settings_that_refine_nothing_are_refused():
    with pytest.raises(RecipeError, match=r"reward.steps: no rule judges .* allowed: tasks countdown"):
        ClipDelta().check_tasks(Chain().build("train", 0))
    with pytest.raises(RecipeError, match=r"reward.steps: no rule judges"):
        check(load_recipe("clip-delta", ["reward=clip-delta", "model=scratch"]))
    assert ClipDelta().conflicts(Composition()) == []
    assert "refine nothing" in ClipDelta(clip=None, delta=False).conflicts(Composition())[0]
    with pytest.raises(ValidationError, match="set clip-delta's own"):
        ClipDelta(of=TaskReward(weight=2.0))
    with pytest.raises(ValidationError, match="not told the verdicts"):
        ClipDelta(of=Repetition())


def test_clip_delta_keeps_a_grade_without_steps():
    source = Countdown().build("train", 0)
    one = make_task("t", [8, 3, 2], 10, [], "", prompt="{numbers} {target}")
    [grade] = grades([TaskReward(), ClipDelta()], one, leaf("<answer>8+2</answer>"), source=source)
    assert (grade.outcome, grade.steps) == (1.0, ())
