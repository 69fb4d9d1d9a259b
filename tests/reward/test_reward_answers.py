from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from leaves import grades, leaf, outcomes, task
from pydantic import ValidationError

from lyceum.core.component import explain
from lyceum.core.tree import Node
from lyceum.core.types import Origin
from lyceum.reward.choice import Choice, chosen_letter
from lyceum.reward.exact import Exact
from lyceum.reward.extract import Extract, after_last, inside_last_tags, last_boxed
from lyceum.reward.number import Number, last_number, to_number
from lyceum.reward.overlong import Overlong, soft_overlong


def extract(form: object) -> Extract:
    return Extract.model_validate(form)


def test_a_box_ends_where_its_braces_balance():
    # The first closing brace would give "\frac{1".
    assert last_boxed(r"\boxed{7} or rather \boxed{\frac{1}{2}} .") == r"\frac{1}{2}"
    assert last_boxed(r"\boxed{\{1, 2\}}") == r"\{1, 2\}"
    assert last_boxed(r"\boxed{7} \boxed{8") is None


def test_the_answer_after_a_mark_is_the_last_and_ends_with_its_line():
    assert after_last("#### 1\nno:\n#### 42 \nbye", "####") == "42"
    assert after_last("no mark", "####") is None
    assert after_last("####   ", "####") is None


def test_a_place_that_is_empty_is_no_answer_and_a_whole_text_does_not_say():
    assert extract({"after": "####"}).answered("so #### 5") is True
    assert extract({"after": "####"}).answered("so ####") is False
    assert extract("whole").answered("so 5") is None
    boxed = grades(Exact(extract=extract("boxed")), task("5"), "\\boxed{6}", "6")
    assert [grade.answered for grade in boxed] == [True, False]


def test_tags_must_be_closed():
    assert inside_last_tags("<answer>1</answer> <answer> 2 </answer>", "answer") == "2"
    assert inside_last_tags("<answer>1</answer> <answer>2", "answer") == "1"
    assert inside_last_tags("2</answer>", "answer") is None


@given(st.text(alphabet="\\boxed{}<answer>/#12\n ", max_size=60))
def test_extraction_takes_any_text(text: str):
    for form in ("whole", "boxed", {"after": "#"}, {"tags": "answer"}):
        found = extract(form)(text)
        assert found is None or (found in text and found.strip() == found != "")


@pytest.mark.parametrize("form", ["whole", "boxed", {"after": "####"}, {"tags": "answer"}])
def test_a_place_is_written_out_as_it_was_written_in(form: object):
    # The run folder's recipe.yaml must load again.
    assert extract(form).model_dump() == form
    assert Exact.model_validate(Exact(extract=extract(form)).model_dump()).extract == extract(form)


def test_an_unknown_place_names_what_is_allowed():
    with pytest.raises(ValidationError) as error:
        Exact.model_validate({"extract": {"afterr": "####"}})
    [line] = explain(error.value, Exact)
    assert line.startswith("extract: got {'afterr': '####'}; allowed: whole, boxed")


def test_exact_compares_text_up_to_white_space():
    part = Exact(extract=extract({"tags": "answer"}))
    assert outcomes(part, task("New York"), "<answer>New\n York</answer>", "New York", "<answer>new york</answer>") == [
        1.0,
        0.0,
        0.0,
    ]
    assert outcomes(Exact(case=False), task("New York"), "new york") == [1.0]
    assert outcomes(Exact(), task(["4", "four"]), "four", "five") == [1.0, 0.0]


def test_any_of_several_right_answers_is_right():
    assert outcomes(Number(), task(["1/2", 7]), "0.5", "7.0", "2") == [1.0, 1.0, 0.0]
    assert outcomes(Choice(), task(["A", 2]), "(A)", "(B)", "(C)") == [1.0, 0.0, 1.0]
    # One that no verifier of numbers can read says that the data is not what it should be.
    for part in (Number(), Choice()):
        assert "of task 't/1' is no" in (grades(part, task(["B", "1", "Paris"]), "1")[0].reason or "")


def test_a_task_without_an_answer_is_ungraded():
    for part in (Exact(), Number(), Choice()):
        [grade] = grades(part, task(None), "42")
        assert grade.outcome is None
        assert "t/1" in (grade.reason or "")


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("5-3=2", "2"),
        ("it is 5-3", "3"),  # the minus of a difference is no sign
        ("it is -3.", "-3"),
        ("about 1,234.50 dollars", "1234.50"),
        ("1,2", "2"),  # a list, and not twelve
        ("3/4", "0.75"),
        ("1e3", "1E+3"),
        ("\N{MINUS SIGN}5", "-5"),
        ("9" * 500, None),
        ("none", None),
        ("1/0", None),
    ],
)
def test_the_last_number_of_a_text(text: str, number: str | None):
    assert last_number(text) == (None if number is None else Decimal(number))


@given(st.integers(-(10**12), 10**12), st.sampled_from(["{}", "{:,}", "so {}.", "#### {}", "x={:,}!"]))
def test_a_written_integer_is_read_back(value: int, form: str):
    assert last_number(form.format(value)) == value


def test_a_number_is_right_within_its_tolerance():
    assert outcomes(Number(), task("0.5"), "1/2", "0.5000001", "0.501") == [1.0, 1.0, 0.0]
    assert outcomes(Number(relative_tolerance=0.01), task(200), "201.9", "202.1") == [1.0, 0.0]
    assert outcomes(Number(), task("$1,000"), "1000.00", "1e9999") == [1.0, 0.0]
    assert to_number("about 5") is None


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("The answer is (B).", "B"),
        ("Answer: C, because A is wrong", "C"),
        ("A dog barks. D", "D"),
        ("I take a guess", None),
    ],
)
def test_the_letter_that_a_completion_settles_on(text: str, letter: str | None):
    assert chosen_letter(text, "ABCD") == letter


def test_a_choice_may_be_given_as_its_number():
    part = Choice(extract=extract("boxed"))
    assert outcomes(part, task(2), r"\boxed{C}", r"\boxed{(c)}", r"\boxed{C) Paris}", r"\boxed{2}") == [1, 1, 1, 0]
    assert outcomes(part, task("(C) Paris"), r"\boxed{C}") == [1.0]
    assert grades(part, task("Paris"), r"\boxed{C}")[0].outcome is None


def test_overlong_is_dapo_equation_13():
    # L_max 20, L_cache 4: nothing up to 16, then a quarter a token, -1 at 20 and beyond.
    lengths = [0, 16, 17, 18, 20, 50]
    assert [soft_overlong(n, max_tokens=20, buffer_tokens=4) for n in lengths] == [0, 0, -0.25, -0.5, -1, -1]


def test_overlong_counts_what_the_policy_wrote_and_no_hint():
    prompt = Node(None, [1], Origin.PROMPT)
    hint = prompt.add([1] * 100, Origin.HINT)
    written = Node(hint, [1] * 18, Origin.POLICY, finish="stop")
    assert outcomes(Overlong(max_tokens=20, buffer_tokens=4), task(), written) == [-0.5]


def test_an_overlong_buffer_beyond_the_longest_completion_is_refused():
    with pytest.raises(ValidationError, match="allowed: 1 to 20"):
        Overlong(max_tokens=20, buffer_tokens=21)


def test_a_text_that_is_cut_off_has_no_closed_answer():
    assert outcomes(Exact(extract=extract({"tags": "answer"})), task(), leaf("<answer>42", finish="length")) == [0.0]
