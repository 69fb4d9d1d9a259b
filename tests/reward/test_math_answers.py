import asyncio
import time
from collections import Counter

import pytest
from leaves import grades, task
from maths_answers import FAMILIES, Case, cases, sample

from lyceum.reward._mathematics.answer import answer_of, boxes, stated
from lyceum.reward._mathematics.notation import (
    LONGEST,
    UnreadableAnswer,
    cleaned,
    explicit,
    in_base,
    is_huge,
    items,
    without_units,
)
from lyceum.reward.math import FACTORY, Math
from lyceum.reward.math_worker import checker
from lyceum.reward.pool import WorkerCpuError, WorkerError, WorkerPool

check = checker()


def right(answer: str, completion: str) -> bool:
    return check({"answers": [answer], "found": completion, "boxed": False})


def boxed(inside: str) -> str:
    return f"\\boxed{{{inside}}}"


def test_the_last_box_counts():
    assert boxes(r"First \boxed{3}, no wait, \boxed{\frac{1}{2}} .") == r"\frac{1}{2}"
    assert boxes(r"\boxed{3 \text{ or } \boxed{5}}") == r"3 \text{ or } \boxed{5}"  # the outer one
    assert boxes(r"\boxed{3} and \boxed{5") == ""
    assert boxes(r"an open \boxed{ and \boxed{5}") == "5"
    assert boxes("no box") is None


def test_boxes_are_one_answer_where_they_are_joined():
    assert boxes(r"$\boxed{3}$ or $\boxed{5}$") == "3 or 5"
    assert boxes(r"\boxed{3}, \boxed{4}, and \boxed{5}") == "3 , 4 , 5"
    assert boxes(r"\boxed{3} apples and \boxed{5} pears") == "5"
    assert boxes(r"\boxed{3} apples and \boxed{5} pears", parts=True) == "3 , 5"
    assert boxes(r"First \boxed{3}, no wait, \boxed{5}", parts=True) == "5"


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("The answer is $x = 5$, since $2 + 3 = 5$.", "$x = 5$"),
        ("The answer is 5, or maybe 3.", "5 or 3"),
        ("The largest $n$ in the answer: $n$ is 34.", "34"),
        ("so 3 or 5", "3 or 5"),
        ("She makes 9 * $2 = $18 per day", "9 * $2 = $18"),
        ("The answer is not 5.", None),
        ("answer: 2,74 metres", "2.74"),
        ("answer: 5x", "5x"),
        ("no idea", None),
    ],
)
def test_a_text_without_a_box_states_its_answer(text: str, answer: str | None):
    assert stated(text) == answer


def test_an_answer_is_parted_outside_of_brackets():
    sides = [[side.text for side in item.sides] for item in items(r"x = 2 + 3 = 5, (1, 2) \text{ or } \{3; 4\}")]
    assert sides == [["x", "2 + 3", "5"], ["(1, 2)"], [r"\{3; 4\}"]]
    assert [item.separator for item in items("1, 2; 3, 4")] == [",", ",", ";", ","]
    assert [side.approximate for side in items(r"\pi \approx 3.14")[0].sides] == [False, True]


def test_notation_is_made_plain():
    assert cleaned(r"$\left(1{,}234{,}567\right)$") == "(1,234,567 )"  # in brackets it may be a list
    assert cleaned(r"1\,234\,567.") == "1234567"
    assert cleaned(r"\boxed{5}") == "5"
    assert cleaned(r"5 \\ 3") == r"5 \\ 3"  # a line break, and not an escaped space
    assert cleaned(r"5 \text{ million}") == r"5 \cdot 10^{6}"
    assert without_units(r"5 \mathrm{kg}\cdot\mathrm{m}/\mathrm{s}^2") == "5"
    assert without_units(r"5 \text{ or more}") == r"5 \text{ or more}"
    assert explicit("2(3)") == r"2\cdot (3)"
    assert explicit("1 1/2") == r"1\frac{1}{2}"
    assert explicit("5 3") is None
    assert explicit("2^3^2") == "2^{3^{2}}"
    assert in_base("101_{2}") == ("101", 2)


def test_what_is_too_long_or_too_deep_is_refused():
    for text in ("1" * (LONGEST + 1), "(" * 100 + "1" + ")" * 100):
        with pytest.raises(UnreadableAnswer):
            cleaned(text)


@pytest.mark.parametrize(
    ("formula", "huge"),
    [
        ("9**9**9**9", True),
        ("10^{10^{10}}!", True),
        ("2^{10^{400}}", True),
        ("2^{4^{9}}", False),  # 78,914 digits
        ("2^{2^{3}} + 10^{100}", False),
        ("1^{9^{9}}", False),
        ("x^{9}", False),
    ],
)
def test_powers_that_take_forever_are_not_computed(formula: str, huge: bool):
    assert is_huge(cleaned(formula)) is huge


def test_a_power_that_takes_forever_is_a_wrong_answer():
    check = checker()
    for said in ("\\boxed{9**9**9**9}", "\\boxed{10^{10^{10}}!}"):
        assert check({"answers": ["5"], "found": said, "boxed": False}) is False
    # The same formula needs no computing.
    assert check({"answers": ["9^{9^{9}}"], "found": "\\boxed{9^{9^{9}}}", "boxed": False}) is True


@pytest.mark.parametrize(
    "said",
    [
        *("4!!!", "20!!", "100!!!", "1001!!", "100000000!", "((4!)!)!", r"\binom{10^9}{5\cdot 10^8}"),
        *(r"\binom{1000000000}{500000000}", r"{1000000000 \choose 500000000}", r"\prod_{k=1}^{10^8} k"),
        *(r"\sum_{k=1}^{10^9} \frac{1}{k^k}", "e^{e^{e^{e^{e}}}}", r"\sin(e^{e^{e^{e}}})", "(x+1)^{5000}"),
        r"\int_0^\infty \frac{\sin(x^x)}{x^{x+1}}dx",
        r"\begin{vmatrix}" + r"\\".join("&".join("abcdefghklmn") for _ in range(12)) + r"\end{vmatrix}",
        "5''''",
        *(r"\sum_{k=1}^{9999} \frac{1}{k}", r"\prod_{k=1}^{9999} k", r"\sum_{k=1}^{2000} \frac{1}{k^k}"),
        *("(a+b+c+d+e+f+g)^{200}", r"\frac{x^{100000}-1}{x-1}", r"\Gamma(10^9)", r"\binom{x}{100000}", r"\sinh(10^9)"),
        r"\begin{vmatrix}"
        + r"\\".join("&".join(f"a_{{{row}{column}}}" for column in range(7)) for row in range(7))
        + r"\end{vmatrix}",
    ],
)
def test_what_takes_forever_to_compute_is_wrong_at_once(said: str):
    # Each held a worker for its whole time and was left ungraded (the last one passed: the parser drops primes).
    begin = time.process_time()
    assert check({"answers": ["5"], "found": boxed(said), "boxed": False, "cpu_seconds": 60}) is False
    assert time.process_time() - begin < 3  # 0.4 s at most here; the parser is imported by the first


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("3715891200", "20!!"),  # 20 * 18 * ... * 2 = 2^10 * 10!
        ("945", "9!!"),  # 9 * 7 * 5 * 3
        ("28", "7!!!"),  # 7 * 4 * 1
        ("20!!", r"2^{10} \cdot 10!"),
        ("24", "4!"),
        ("10", r"\binom{5}{2}"),
        ("6", r"\prod_{k=1}^{3} k"),
        ("2036662", r"\sum_{k=1}^{2018} k - 509"),  # 2018 * 2019 / 2 = 2037171
        ("5", "5'"),  # feet
    ],
)
def test_what_is_short_to_compute_is_computed(answer: str, said: str):
    assert right(answer, boxed(said))


# The exception may come while a callback of the garbage collector runs, which swallows it: it comes again.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_answer_over_its_time_is_wrong_unless_the_tasks_own_is():
    # Not less: at twice this time the process itself is ended, which a busy garbage collector could use up.
    job = {"found": boxed("(x+1)^{5000}"), "boxed": False, "cpu_seconds": 0.5}
    assert check({**job, "answers": ["(x+2)^{5000}"]}) is False  # as large itself, so that it is computed
    with pytest.raises(TimeoutError, match="the task's own answer"):
        check({**job, "answers": [" + ".join(f"\\frac{{{n}}}{{x^{{{n}}}}}" for n in range(10, 400))]})


def test_a_computation_in_c_or_a_crash_is_wrong_unless_the_tasks_own_is(monkeypatch: pytest.MonkeyPatch):
    # CPython's powers see the alarm; the sum of a range does not. Its process ends, and another one goes on.
    monkeypatch.setattr("lyceum.reward.math.FACTORY", "worker_jobs:checker")
    part = Math.model_validate({"timeout_seconds": 0.3, "workers": 1})
    found = grades(part, task("5"), "in C", "right", "dies")
    assert [grade.outcome for grade in found] == [0.0, 1.0, 0.0]
    # Where the task's own answer is the cause, there is no verdict.
    found = grades(part, task("own"), "in C", "dies")
    assert [grade.outcome for grade in found] == [None, None]


def test_a_job_at_its_limit_of_cpu_time_is_told_apart():
    pool = WorkerPool("worker_jobs:checker", {}, workers=1, timeout_seconds=60)
    try:
        job = {"found": "in C", "answers": ["5"], "cpu_seconds": 0.1}
        with pytest.raises(WorkerCpuError):
            asyncio.run(pool.run(job))
        assert asyncio.run(pool.run({**job, "found": "in Python"})) == "over its time"
        assert asyncio.run(pool.run({**job, "found": "right"})) is True
    finally:
        pool.close()


@pytest.mark.parametrize("said", ["7" * (LONGEST + 1), "(" * 100 + "5" + ")" * 100, "0x" + "f" * 999])
def test_what_cannot_be_read_is_a_wrong_answer_unless_the_tasks_own_cannot(said: str):
    # Ungraded it would leave its group, whose mean would then count the other samples alone.
    check, boxed = checker(), f"\\boxed{{{said}}}"
    assert check({"answers": ["5"], "found": boxed, "boxed": False}) is False
    for answer in ("1" * (LONGEST + 1), "(" * 100 + "5" + ")" * 100):
        with pytest.raises(UnreadableAnswer):
            check({"answers": [answer], "found": boxed, "boxed": False})


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("5", "1=2=3=4=5"),
        ("5", r"5 \text{ (or 3)}"),
        ("D", "A=B=C=D"),
        ("5", r"5 \text{apples}, 6 \text{pears}"),
        ("5", r"x = 5 \\ x = 3"),
        ("5", r"3 \lor 5"),
        ("5", r"5 \approx 3"),
        ("5", r"3 @ 5"),
        ("8", "5(3)"),
        (r"\frac{1}{2^{99}}", r"\frac{1}{2^{98}}"),
        (r"1 - \frac{1}{\mathrm{e}}", r"1 + \frac{1}{\mathrm{e}}"),
        ("4343_6", "4343_7"),
        ("3, 5", "3 = 5, 5 = 3"),
        ("x = 1, y = 2", "2, 1"),
        (r"5 \text{ apples}, 6 \text{ pears}", "5"),
        ("3ab", "3"),
    ],
)
def test_an_answer_that_says_more_than_one_thing_or_another_one_is_wrong(answer: str, said: str):
    assert not right(answer, boxed(said))


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("5", "x = 5"),
        ("5", "x=2+3=5"),
        ("5", r"5 \text{ apples}"),
        ("5", r"5\%"),
        ("5", "5 cm"),
        ("5", r"\boxed{5}"),
        (r"\frac{1}{2}", "0.5"),
        (r"\frac{3}{2}", r"1 \frac{1}{2}"),
        (r"\sqrt{2}", r"\sqrt{2} \approx 1.41"),
        ("2x+1", "f(x) = 2x + 1 = 1 + 2x"),
        ("3, 5", r"x = 5 \text{ or } x = 3"),
        ("x^2/4 + y^2/3 = 1", "x^2/16 + y^2/12 = 1/4"),
        ("p=5,q=2", "5, 2"),
        (r"\text{Tuesday}", "Tuesday"),
    ],
)
def test_one_value_is_right_however_it_is_written(answer: str, said: str):
    assert right(answer, boxed(said))


def test_a_list_is_right_only_where_one_was_asked_for():
    both = r"First \boxed{3}, no wait, \boxed{5}"
    assert right("5", both)
    assert not right("3, 5", both)
    assert right("3, 5", r"\boxed{3} and \boxed{5}")
    assert not right("5", r"\boxed{3} and \boxed{5}")


def test_the_answer_may_be_asked_for_in_a_box():
    assert not check({"answers": ["5"], "found": "The answer is 5", "boxed": True})
    assert check({"answers": ["5"], "found": r"The answer is 3, \boxed{5}", "boxed": True})


def verdicts(chosen: list[Case], seconds: float) -> list[bool | str]:
    pool = WorkerPool(FACTORY, {}, workers=2, timeout_seconds=seconds, memory_mb=2048)

    async def ask(case: Case) -> bool | str:
        try:
            return await pool.run({"answers": [case.answer], "found": case.completion, "boxed": False})
        except WorkerError as error:
            return str(error)

    async def all_of_them() -> list[bool | str]:
        return await asyncio.gather(*map(ask, chosen))

    return asyncio.run(all_of_them())


def test_generated_answers_are_the_same_every_time_and_of_every_family():
    families = Counter(case.family for case in cases())
    assert cases() == cases()
    assert set(families) == set(FAMILIES)
    assert families.total() >= 2000
    assert min(families.values()) >= 70


def test_no_generated_answer_is_right_that_is_made_wrong():
    chosen = [case for case in sample(cases(), every=41) if case.family not in ("hostile", "written_otherwise")]
    found = dict(zip(chosen, verdicts(chosen, seconds=20), strict=True))
    assert not [case for case, verdict in found.items() if verdict is not case.right]


def test_no_hostile_answer_is_right_or_ends_the_run():
    chosen = [case for case in sample(cases(), every=17) if case.family == "hostile"]
    found = dict(zip(chosen, verdicts(chosen, seconds=1), strict=True))
    assert not [case for case, verdict in found.items() if verdict is True]
    # A lone surrogate is no reason to fail either.
    assert answer_of("\ud800 \\boxed{5}") == "5"
