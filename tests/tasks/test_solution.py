import pytest
from hypothesis import given
from hypothesis import strategies as st

from lyceum.core.solution import Solution, ladder_of, levels_of, written_solution
from lyceum.core.sources import source_of, sources_of
from lyceum.core.types import Hint, Task
from lyceum.papers.ruscarl.guidance_rubric_scaffold import RubricScaffold, rubric_hint
from lyceum.tasks.chain import Chain, make_task
from lyceum.tasks.countdown import Countdown
from lyceum.tasks.logic import Logic
from lyceum.tasks.mixture import Mixture
from lyceum.utils.errors import RecipeError


def task(**columns):
    return Task("t", ({"role": "user", "content": "Q"},), columns=columns)


def written(**columns):
    solution = written_solution(task(**columns))
    assert solution is not None
    return solution


def test_a_share_is_the_nearest_number_of_steps_and_never_the_last():
    solution = Solution(("a", "b", "c"), 4, before=">", between=",")
    # round(0.25 * 4) = 1, round(0.6 * 4) = 2, round(0.75 * 4) = 3, and 4 of 4 would be the answer.
    assert [solution.count(share) for share in (0.0, 0.1, 0.25, 0.6, 0.75, 1.0)] == [0, 0, 1, 2, 3, 3]
    assert solution.hint(2) == Hint("solution", ">a,b")
    assert solution.first(1).count(1.0) == 1


@given(st.lists(st.text("ab", min_size=1), min_size=2, max_size=9), st.floats(0, 1))
def test_what_a_share_gives_is_the_beginning_of_what_a_larger_one_gives(steps, share):
    solution = written(steps=steps)
    less, more = solution.hint(solution.count(share)), solution.hint(solution.count(1.0))
    assert more.text.startswith(less.text)


def test_steps_come_before_a_demonstration_and_that_before_hints():
    ladder = [{"tier": "solution", "text": "h1"}, {"tier": "solution", "text": "h2"}]
    assert written(steps=["s1", "s2"], demonstration="d1 d2", hints=ladder).steps == ("s1",)
    assert written(demonstration="d1 d2", hints=ladder).steps == ("d1 ",)
    only = written(steps=[1, 2], demonstration="d1", hints=ladder)  # numbers are no text, one word has no beginning
    assert [only.hint(count).text for count in (1, 2)] == ["h1", "h1\nh2"]
    assert only.total == 3
    for nothing in ({}, {"demonstration": ""}, {"demonstration": "word"}, {"steps": ["s1"]}, {"hints": ladder[:0]}):
        assert written_solution(task(**nothing)) is None


def test_a_demonstration_is_cut_at_lines_where_it_has_some_and_else_at_words():
    lines = written(demonstration="one line\nanother line\n\nthird\nfourth")
    assert lines.total == 5
    assert lines.hint(2).text == "The solution begins:\none line\nanother line\n"
    words = written(demonstration="first this\nthen that")
    assert words.total == 4
    assert words.hint(3).text == "The solution begins:\nfirst this\nthen "


def test_a_tier_brings_its_own_hints_along_and_no_others():
    ladder = [
        Hint("knowledge", "a"),
        Hint("solution", "x"),
        Hint("knowledge", "b"),
        Hint("solution", "x, y"),
    ]
    assert [level.text for level in levels_of(ladder, ("knowledge", "solution"))] == ["a", "a\nb", "x", "x, y"]
    assert [level.tier for level in levels_of(ladder, ("solution",))] == ["solution"] * 2


def test_built_in_tasks_give_all_their_steps_but_the_last():
    chain = Chain().build("train", 0)
    three = make_task("t", 37, [8, -2, 5])
    assert chain.solution(three) == Solution(("45", "43"), 3, "|", ",")
    # As its own hints say it, so that a model that learnt to read those can read this.
    assert chain.solution(three).hint(1) in ladder_of(three)
    for tasks in (Countdown(), Logic()):
        source = tasks.build("train", 0)
        one = source[2]
        steps = one.columns["steps"]
        solution = source.solution(one)
        assert solution is not None
        assert (solution.steps, solution.total) == (tuple(steps[:-1]), len(steps))
        assert solution.hint(1) in ladder_of(one)


def test_a_mixture_asks_the_tasks_own_source():
    parts = [{"tasks": "chain"}, {"tasks": "countdown"}]
    source = Mixture.model_validate({"parts": parts}).build("train", 0)
    chain, countdown = source[14], source[1]
    assert source.solution(chain).before == "|"
    assert source.solution(countdown).before == "Begin with "
    assert rubric_hint(source, chain, chain.columns["rubric"][:1]).text.startswith("|")
    assert rubric_hint(source, countdown, countdown.columns["rubric"][:1]).text.startswith("A good answer:")
    with pytest.raises(RecipeError, match="got 'random', but a prompt of these tasks shows criteria from the first on"):
        RubricScaffold(order="random").check_tasks(source)


def test_a_mixture_of_mixtures_asks_the_tasks_own_source():
    inner = {"kind": "mixture", "parts": [{"tasks": "countdown"}, {"tasks": "logic"}]}
    source = Mixture.model_validate({"parts": [{"tasks": "chain"}, {"tasks": inner}]}).build("train", 0)
    kinds = [type(one).__name__ for one in sources_of(source)]
    assert kinds == ["ChainSource", "CountdownSource", "LogicSource"]
    for task in (source[i] for i in range(6)):
        own, of = source_of(source, task)
        number, inner_number, *_ = task.id.split(":")
        assert kinds.index(type(own).__name__) == (0 if number == "0" else 1 + int(inner_number))
        assert own.grader() is not None
        assert ":" not in of.id


@pytest.mark.parametrize("tasks", [Countdown(), Logic()])
def test_generated_rubrics_ask_for_each_step_and_the_last_says_the_answer(tasks):
    one = tasks.build("train", 0)[2]
    rubric = one.columns["rubric"]
    assert [criterion["contains"] for criterion in rubric] == one.columns["steps"]
    assert [criterion["leaks"] for criterion in rubric] == [False] * (len(rubric) - 1) + [True]
