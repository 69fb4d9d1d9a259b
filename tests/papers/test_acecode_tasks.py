"""Sums as programs: what is asked, what the tests accept, and what is imitated."""

from lyceum.papers.acecode.tasks_sum_demonstrations import SumDemonstrations
from lyceum.papers.acecode.tasks_sums import INPUTS, Sums, make_task, words_of


def test_a_sum_in_words_its_tests_and_its_reference() -> None:
    task = make_task("t", 37)
    assert words_of(task) == "37*i, i<x:"
    assert task.columns["reference"] == "37*x*(x-1)//2"
    # Nothing; 0; 0 + 37; 37 * (0 + ... + 39) = 37 * 780
    assert task.columns["tests"] == [f"assert f({x}) == {y}" for x, y in zip(INPUTS, (0, 0, 37, 28860), strict=True)]


def test_loops_and_formulas_compute_the_sum_and_noise_never_does() -> None:
    clean = SumDemonstrations(wrong=0, formula=0.5).build("train", 0)
    noisy = SumDemonstrations(wrong=1, formula=0.5).build("train", 0)
    shown = [(clean[index], noisy[index]) for index in range(20)]
    assert 0 < sum("range" in task.columns["demonstration"] for task, _ in shown) < 20
    for task, other in shown:
        factor = task.columns["factor"]
        for x in INPUTS:
            assert _computed(task.columns["demonstration"], x) == sum(factor * i for i in range(x))
        assert _computed(other.columns["demonstration"], 2) != factor


def test_a_source_is_a_function_of_seed_split_and_index() -> None:
    train, heldout = (Sums().build(split, 3) for split in ("train", "heldout"))
    assert train[7] == Sums().build("train", 3)[7]
    asked = [{words_of(source[index]) for index in range(300)} for source in (train, heldout)]
    assert not asked[0] & asked[1]
    shown = SumDemonstrations().build("train", 3)
    assert not {words_of(shown[index]) for index in range(300)} & asked[1]


def _computed(text: str, x: int) -> int:
    return eval(text, {"sum": sum, "range": range, "x": x})
