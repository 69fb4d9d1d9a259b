"""DeepMath-103K: what was planted is left out, all of it and nothing else; without the filter it is drawn."""

import functools
import random
from collections import Counter

import pytest

from lyceum.core.types import Task
from lyceum.curriculum.subset import Subset
from lyceum.papers.deepmath_103k._same_problem import same_numbers
from lyceum.papers.deepmath_103k.tasks_crawled_chains import CrawledChains, is_evaluated, one_other
from lyceum.recipe.schema import load_recipe
from lyceum.tasks.chain import results_of

SEEDS = [0, 1, 2]


def text(task: Task) -> str:
    return task.messages[-1]["content"]


@functools.cache  # a second of a core each
def of_recipe(*keys, seed=0):
    return load_recipe("deepmath-103k", list(keys)).tasks.build("train", seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_leak_and_every_wrong_answer_is_left_out_and_no_clean_problem_is(seed):
    source = of_recipe(seed=seed)
    kept = Counter(task.columns["planted"] for task in source)
    raw = Counter(task.columns["planted"] for task in source.source)
    assert min(raw[planted] for planted in ("leak", "neighbour", "wrong", "")) > 40
    assert kept == {"": raw[""], "neighbour": raw["neighbour"]}
    assert (source.left_out.chosen["judged"], source.left_out.chosen["disputed"]) == (raw["leak"], raw["wrong"])


def test_without_the_filter_leaks_are_trained():
    def drawn(source):
        tasks = Subset(only=(5, 6, 7, 8)).build(source, seed=0).draw(1000)
        return Counter(task.columns["planted"] for task in tasks)

    filtered = drawn(of_recipe())
    assert filtered["leak"] == filtered["wrong"] == 0
    assert drawn(of_recipe("tasks.near=null"))["leak"] > 80
    assert drawn(of_recipe("tasks.solutions=null"))["wrong"] > 20


def test_likeness_alone_cannot_tell_leaks_from_problems_with_another_number():
    # The judge is what tells them apart: a likeness that finds all leaks leaves out most of the rest, too.
    alone = ("tasks.near.judge=null", "tasks.solutions=null")
    source = of_recipe(*alone, "tasks.near.same_from=0.8")
    kept, raw = (Counter(task.columns["planted"] for task in of) for of in (source, source.source))
    assert kept["leak"] == 0
    assert kept["neighbour"] < raw["neighbour"] / 4
    assert kept[""] < raw[""] / 2
    # Copies alone, as runs of eight words find them, are not what was planted.
    strict = of_recipe(*alone, "tasks.near.same_from=0.5", "tasks.near.words=8")
    assert Counter(task.columns["planted"] for task in strict)["leak"] > 0.9 * raw["leak"]


def test_a_leak_is_a_held_out_problem_in_other_words_with_the_same_answer():
    settings = CrawledChains(size=600)
    train, heldout = settings.build("train", 0), settings.build("heldout", 0)
    evaluated = [heldout[i] for i in range(len(heldout))]
    leaks = [task for task in train if task.columns["planted"] == "leak"]
    assert leaks
    for leak in leaks:
        originals = [task for task in evaluated if same_numbers(text(leak), text(task))]
        assert originals
        assert {task.answer for task in originals} == {leak.answer}
        assert text(leak) not in map(text, evaluated)


def test_a_problem_is_in_one_split_in_whichever_order():
    settings = CrawledChains(size=600)
    for split in ("train", "heldout"):
        for task in settings.build(split, 1):
            evaluated = is_evaluated(task.columns["start"], task.columns["operations"])
            assert evaluated == (split == "heldout" or task.columns["planted"] == "leak")


def test_a_neighbour_has_one_other_operand():
    other = one_other(random.Random(0), 37, [8, -2, 5])
    assert sum(a != b for a, b in zip(other, [8, -2, 5], strict=True)) == 1


def test_solutions_are_right_and_a_wrong_answer_is_not_theirs():
    train = CrawledChains(size=400).build("train", 0)
    wrong = 0
    for task in train:
        ends = {solution.partition("#")[2] for solution in task.columns["solutions"]}
        assert ends == {str(results_of(task.columns["start"], task.columns["operations"])[-1])}
        assert len(task.columns["solutions"]) == 3
        assert (task.answer in ends) == (task.columns["planted"] != "wrong")
        wrong += task.columns["planted"] == "wrong"
    assert wrong


def test_a_task_is_a_function_of_its_index():
    one, other = (CrawledChains().build("train", 3) for _ in range(2))
    assert [one[i] for i in (7, 3)] == [other[i] for i in (3, 7)][::-1]
