from collections import Counter

import pytest
from levelled import Source, assert_resumes, tree_of

from lyceum.papers.sec.curriculum_self_evolving import SelfEvolving, td_update


def build(seed=0, *, levels=(1, 2, 3), **settings):
    return SelfEvolving(**settings).build(Source(60, levels=levels), seed=seed)


def test_a_value_moves_by_its_rate_towards_what_was_gained():
    # 0.2 + 0.25 (0.6 - 0.2) = 0.3; with the shares the other way round it would be 0.5
    assert td_update(0.2, 0.6, 0.25) == pytest.approx(0.3)


def test_values_follow_the_mean_advantage_of_each_categorys_rollouts():
    curriculum = build(learning_rate=0.5)
    # Level 1: four rollouts at 0.9 and two at 0.3 are 0.7 a rollout (0.6 if trees counted the same); half of it 0.35.
    # Level 2: 1.0 by half is 0.5. Level 3 was not seen and stays 0.
    curriculum.observe([tree_of(1, [True, False] * 2, 0.9), tree_of(1, [True, False], 0.3), tree_of(2, advantage=1.0)])
    assert curriculum.value == {"1": pytest.approx(0.35), "2": 0.5, "3": 0.0}
    # Level 2 was solved throughout: 0.5 + 0.5 (0 - 0.5). The others stay.
    curriculum.observe([tree_of(2, [True, True], 0.0)])
    assert curriculum.value == {"1": pytest.approx(0.35), "2": 0.25, "3": 0.0}


def test_a_category_that_was_not_drawn_keeps_its_value_however_long():
    curriculum = build(learning_rate=0.5)
    curriculum.observe([tree_of(3, advantage=0.8)])
    for _ in range(3):
        curriculum.observe([tree_of(1, advantage=0.0)])
    # 0.8 by half is 0.4. Taking 0 for what was not drawn, it would be 0.4 / 2^3 = 0.05 by now.
    assert curriculum.value == {"1": 0.0, "2": 0.0, "3": pytest.approx(0.4)}


def test_a_tree_that_nobody_could_grade_says_nothing():
    curriculum = build()
    curriculum.observe([tree_of(1, advantage=1.0)])
    before = dict(curriculum.value)
    curriculum.observe([tree_of(1, [None, None], 0.0)])
    assert curriculum.value == before


def test_the_category_that_teaches_is_drawn():
    curriculum = build(learning_rate=1.0, temperature=0.05)
    # Values 0, 1, 0 at temperature 0.05: exp(20) to 1.
    curriculum.observe([tree_of(1, advantage=0.0), tree_of(2, advantage=1.0), tree_of(3, advantage=0.0)])
    assert {task.columns["level"] for task in curriculum.draw(30)} == {2}


def test_all_categories_are_drawn_alike_before_anything_was_learnt():
    drawn = Counter(task.columns["level"] for task in build().draw(900))
    assert all(240 < drawn[level] < 360 for level in (1, 2, 3))  # 300 each; 4 standard deviations are 57


def test_figures_say_values_shares_and_what_was_drawn():
    curriculum = build(levels=(2, 10), learning_rate=1.0)
    curriculum.observe([tree_of(10, advantage=0.5), tree_of(10, advantage=0.5)])
    metrics = curriculum.metrics()
    assert metrics["drawn/2"] == 0
    assert metrics["drawn/10"] == 2
    assert metrics["value/10"] == 0.5
    assert metrics["share/2"] + metrics["share/10"] == pytest.approx(1)


def test_a_resumed_run_draws_what_the_first_would_have():
    first = build(1)
    first.draw(10)
    first.observe([tree_of(2, advantage=0.8), tree_of(3, advantage=0.1)])
    assert_resumes(first, build(2), [tree_of(1, advantage=0.7)])


def test_a_state_that_lacks_its_values_is_refused():
    state = {key: value for key, value in build().state_dict().items() if key != "value"}
    with pytest.raises(ValueError, match=r"state lacks \['value'\]"):
        build().load_state_dict(state)
