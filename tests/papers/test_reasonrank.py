import math

import pytest
from leaves import leaf

from lyceum.papers.reasonrank.reward_ranking_views import RankingViews, ndcg, rank_biased_overlap, recall
from lyceum.papers.reasonrank.tasks_rankings import Rankings, grade, make_task
from lyceum.tasks.chain import Chain
from lyceum.utils.errors import RecipeError

TASK = make_task("t", 48, [37, 44, 46], 10)


def test_a_task_says_who_is_relevant_and_how_one_finds_out():
    assert TASK.messages[-1]["content"] == "48?a37,b44,c46="
    assert TASK.columns["demonstration"] == "a11,b4,c2#c>b>a"
    assert TASK.columns["relevance"] == {"c": 2, "b": 1}  # a is 11 away
    assert make_task("t", 48, [37, 80], 10) is None
    assert grade(TASK, leaf("a11,b4,c2#c>b>a")).correct


def test_what_is_ranked_second_counts_by_the_logarithm_of_its_rank():
    # Gains 2^2 - 1 = 3 for c, 1 for b. Best: 3 + 1 / log2 3. With b first: 1 + 3 / log2 3.
    best = 3 + 1 / math.log2(3)
    assert ndcg("cba", TASK.columns["relevance"], 10) == 1
    assert ndcg("bca", TASK.columns["relevance"], 10) == pytest.approx((1 + 3 / math.log2(3)) / best)
    assert ndcg("bca", TASK.columns["relevance"], 1) == pytest.approx(1 / 3)
    assert recall("bac", ["c", "b"], 2) == 0.5


def test_overlap_counts_the_first_ranks_most():
    # Orders c b a and b c a, p = 1/2: nothing in common at depth 1, 2 of 2 and 3 of 3 below: (1/2)(1/2 + 1/4).
    assert rank_biased_overlap("bca", "cba", 0.5) == pytest.approx(0.375)
    assert rank_biased_overlap("cba", "cba", 0.5) == pytest.approx(1 - 0.5**3)


@pytest.mark.parametrize("answer", ["c>b", "c>b>b", "c,b,a", "", "c>b>a>d"])
def test_what_is_not_every_passage_once_earns_less_than_nothing(answer):
    assert RankingViews().grade(TASK, leaf(f"a11#{answer}")).outcome == -1


def test_the_views_are_added_up_by_their_weights():
    found = RankingViews(recall=0.5, overlap=2, persistence=0.5, top=1).grade(TASK, leaf("#b>c>a"))
    assert found.outcome == pytest.approx(1 / 3 + 0.5 * 0.5 + 2 * 0.375)
    assert not found.correct


def test_tasks_without_an_order_are_refused():
    with pytest.raises(RecipeError, match="has no column 'order'; allowed: tasks with columns 'order' and 'relevance'"):
        RankingViews().check_tasks(Chain().build("train", 0))


def test_drawn_tasks_have_a_relevant_passage_and_different_distances():
    for task in (Rankings().build("train", 0)[i] for i in range(50)):
        assert task.columns["relevance"]
        assert grade(task, leaf(task.columns["demonstration"])).correct
