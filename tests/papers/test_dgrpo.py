import pytest
from levelled import Source, assert_resumes, graded

from lyceum.core.types import Task
from lyceum.papers.dgrpo.curriculum_family_difficulty import FamilyDifficulty, relative_difficulty
from lyceum.utils.errors import RecipeError


def build(seed=0, **settings):
    return FamilyDifficulty(**{"by": "level"} | settings).build(Source(40, levels=("easy", "hard")), seed=seed)


def tree(family, *outcomes):
    return graded(Task("t", (), "", {"level": family}), list(outcomes))


def test_a_familys_difficulty_is_relative_to_the_others():
    # Difficulties 1/4 and 3/4, mean 1/2.
    assert relative_difficulty(0.75, [0.75, 0.25], most=4) == pytest.approx(0.5)
    assert relative_difficulty(0.25, [0.75, 0.25], most=4) == pytest.approx(1.5)
    assert relative_difficulty(0.25, [0.75, 0.25], most=1.2) == 1.2
    assert relative_difficulty(1.0, [1.0, 1.0], most=4) == 1.0


def test_a_group_is_weighted_by_its_family_and_by_itself():
    curriculum = build(decay=0.0)
    # Without an outcome of any family only the group's own difficulty counts: 2 (1 - 1/4).
    assert curriculum.weight(tree("hard", True, False, False, False)) == pytest.approx(1.5)
    curriculum.observe([tree("easy", True, True, True, False), tree("hard", True, False, False, False)])
    assert curriculum.reward == {"easy": 0.75, "hard": 0.25}
    # Families 0.5 and 1.5; the groups themselves 2 (1 - 1/2) = 1.
    assert curriculum.weight(tree("easy", True, False)) == pytest.approx(0.5)
    assert curriculum.weight(tree("hard", True, False)) == pytest.approx(1.5)
    assert curriculum.metrics()["weight/hard"] == pytest.approx(1.5)  # what the observed group was trained with


def test_each_difficulty_can_be_left_out():
    for settings, weight in (({"family": False}, 0.5), ({"item": False}, 0.5), ({"family": False, "item": False}, 1.0)):
        curriculum = build(decay=0.0, **settings)
        curriculum.observe([tree("easy", True, True, True, False), tree("hard", True, False, False, False)])
        assert curriculum.weight(tree("easy", True, True, True, False)) == pytest.approx(weight)


def test_graded_rewards_count_and_a_running_mean_is_kept():
    curriculum = build(decay=0.75)
    curriculum.observe([tree("easy", 0.5, 0.75)])
    assert curriculum.reward == {"easy": pytest.approx(0.625)}
    curriculum.observe([tree("easy", 0.25, 3.0)])  # 1.625, more than a reward of 0 to 1 can be
    assert curriculum.reward == {"easy": pytest.approx(0.75 * 0.625 + 0.25)}
    assert curriculum.weight(tree("easy", None)) == 1.0  # the only family, and nothing known of the group


def test_a_resumed_run_weights_as_the_first_would_have():
    first = build(1)
    first.observe([tree("easy", True), tree("hard", True, False)])
    resumed = build(2)
    assert_resumes(first, resumed, [tree("hard", False)])
    assert resumed.weight(tree("hard", True, False)) == first.weight(tree("hard", True, False))
    with pytest.raises(RecipeError, match="has None in column 'domain'"):
        FamilyDifficulty(by="domain").check_tasks(Source(8))
