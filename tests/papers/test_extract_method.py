import pytest
from leaves import leaf

from lyceum.papers.extract_method.reward_refactored import Refactored
from lyceum.papers.extract_method.tasks_extractions import Extractions, grade, read
from lyceum.tasks.chain import Chain
from lyceum.utils.errors import RecipeError

GOOD = "g=lambda x:x+3\nf=lambda x:g(x)*2-g(x)"


def test_a_program_that_calls_what_it_extracted_has_the_values_of_the_expression():
    # (x + 3) 2 - (x + 3) = x + 3 at 0, 1, 7, -4
    assert read(GOOD) == (True, True, (3, 4, 10, -1))


@pytest.mark.parametrize(
    ("program", "extracted"),
    [
        ("f=lambda x:(x+3)*2-(x+3)", False),
        ("g=lambda x:x+3\nf=lambda x:x+3", False),  # it is not called
        ("g=lambda x:x\nf=lambda x:g(x)+3", False),  # it computes nothing
        ("g=lambda x:g(x)+1\nf=lambda x:g(x)", True),  # which has no value
    ],
)
def test_the_detector_wants_a_function_that_computes_something_and_is_called(program, extracted):
    found = read(program)
    assert found.parses
    assert found.extracted == extracted


@pytest.mark.parametrize(
    "text", ["", "g=lambda x:(x+3", "(" * 150, "f=" + "9" * 5000, "\0", "f=lambda x:__import__('os')"]
)
def test_what_a_model_writes_is_never_run_and_never_fails(text):
    assert read(text).values is None


def test_a_program_is_paid_for_its_form_and_not_for_what_it_computes():
    task = Extractions().build("train", 0)[0]
    wrong = "g=lambda x:x+1\nf=lambda x:g(x)*2-g(x)*9"
    assert Refactored(parses=0.25, extracted=0.5).grade(task, leaf(wrong)).outcome == 0.75
    assert Refactored().grade(task, leaf("f=lambda x:x")).outcome == 0.5
    assert Refactored().grade(task, leaf("f=")).outcome == 0
    assert not grade(task, leaf(wrong)).correct


def test_demonstrations_are_refactored_and_compute_the_same():
    source = Extractions().build("train", 0)
    assert all(grade(task, leaf(task.columns["demonstration"])).correct for task in (source[i] for i in range(20)))


def test_tasks_without_a_program_are_refused():
    with pytest.raises(RecipeError, match="has no column 'before'; allowed: tasks with one"):
        Refactored().check_tasks(Chain().build("train", 0))
