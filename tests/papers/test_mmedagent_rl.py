import random

import pytest
from leaves import leaf

from lyceum.papers.mmedagent_rl.reward_advice import Advice, treated
from lyceum.papers.mmedagent_rl.tasks_advised_chains import AdvisedChains, advised, most_say
from lyceum.papers.mmedagent_rl.tasks_advised_pictures import FIELDS, AdvisedPictures
from lyceum.tasks.chain import Chain
from lyceum.utils.errors import RecipeError


@pytest.mark.parametrize(("trust", "right"), [("easy", {3}), ("medium", {1, 2}), ("hard", {0})])
def test_so_many_advisers_are_right(trust, right):
    found = {advised(random.Random(seed), 43, 3, trust).count(43) for seed in range(40)}
    assert found == right


def test_ties_go_to_the_first_adviser():
    assert most_say([7, 43, 43]) == 43
    assert most_say([7, 43, 5]) == 7


def test_a_prompt_holds_the_advice_and_a_demonstration_follows_it_or_works_the_chain():
    source = AdvisedChains(levels=(2,), follows=0.5).build("train", 0)
    tasks = [source[i] for i in range(90)]
    for task in tasks:
        chain, *advice = task.messages[-1]["content"].removesuffix("=").split(";")
        assert [int(one) for one in advice] == task.columns["advice"]
        assert chain.startswith(str(task.columns["start"]))
    following = [task for task in tasks if task.columns["demonstration"] == f"#{task.columns['majority']}"]
    assert len(following) == pytest.approx(45, abs=12)
    assert [task.columns["trust"] for task in tasks[:3]] == ["easy", "medium", "hard"]


def test_what_is_made_of_advice_is_counted_by_whether_it_was_right():
    source = AdvisedChains(levels=(2,)).build("train", 0)
    easy, hard = source[0], source[2]
    wrong = hard.columns["majority"]
    assert treated(hard, leaf(f"#{wrong}"), False).parts == {"corrected": 0, "misled": 1}
    assert treated(hard, leaf(f"#{hard.answer}"), True).parts == {"corrected": 1, "misled": 0}
    assert treated(easy, leaf(f"#{easy.answer}"), True).parts == {"spoilt": 0}
    assert treated(easy, leaf(f"#{easy.answer}"), True).outcome == 1


def test_tasks_without_advice_are_refused():
    with pytest.raises(RecipeError, match="has no column 'majority'; allowed: tasks with one"):
        Advice().check_tasks(Chain().build("train", 0))


def drawn(n=128, **settings):
    source = AdvisedPictures(**settings).build("train", 0)
    return [source[i] for i in range(n)]


@pytest.mark.parametrize(("trust", "right"), [("easy", {3}), ("medium", {1, 2}), ("hard", {0})])
def test_so_many_specialists_are_right_about_a_picture(trust, right):
    for task in drawn(trust=[trust]):
        assert task.columns["advice"].count(task.answer) in right
        assert task.messages[0]["content"][1]["text"].endswith(" ".join(task.columns["advice"]))
        if task.columns["ask"] == "compare":
            asked = task.messages[0]["content"][1]["text"].split("?")[0].split(" or ")
            assert set(task.columns["advice"]) <= set(asked)


def test_a_specialist_that_is_more_reliable_is_right_more_often():
    # Some are right and some are not. P(right | neither all nor none) of 0.9, 0.7, 0.5, of 1 - 0.315 - 0.015 = 0.67:
    # (0.9 - 0.315, 0.7 - 0.315, 0.5 - 0.315) / 0.67 = 0.873, 0.575, 0.276.
    found = drawn(600, trust=["medium"])
    shares = [sum(task.columns["advice"][k] == task.answer for task in found) / 600 for k in range(3)]
    assert shares == pytest.approx([0.873, 0.575, 0.276], abs=0.06)


def test_triage_asks_whose_field_a_picture_is_of():
    for task in drawn(16, trust=["triage"], asks=["count", "chart", "path", "sum"]):
        assert task.answer == FIELDS[task.columns["ask"]] == task.columns["majority"]
        assert task.messages[0]["content"][1]["text"] == "whose?"
        assert task.columns["demonstration"] == f"#{task.answer}"
    Advice().check_tasks(AdvisedPictures().build("train", 0))
