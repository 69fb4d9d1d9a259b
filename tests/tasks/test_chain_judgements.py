import asyncio

import pytest
from fake_task import NO_MODEL
from pydantic import ValidationError

from lyceum.core.tree import Node
from lyceum.core.types import Continuation
from lyceum.papers.writing_zero.reward_brpo import Brpo
from lyceum.tasks.chain import grade as grade_chain
from lyceum.tasks.chain import make_task
from lyceum.tasks.chain_judgements import ChainJudgements, points, with_errors

FORMS = ("met", "better", "critique", "refine")


def leaf(text):
    return Node.prompt([1]).add_drawn(Continuation([2], [0.0], [0.0], [0], "stop"), text)


def tasks(form, n=40, **settings):
    source = ChainJudgements(forms=(form,), **settings).build("train", 0)
    return source, [source[i] for i in range(n)]


def grade(source, task, reply):
    [found] = asyncio.run(source.grader()(task, [leaf(reply)], NO_MODEL))
    return found


def is_right(task, attempt):
    """By the rule of the chains themselves."""
    text = task.messages[0]["content"].removesuffix("=")
    start, *_ = text.replace("-", "+").split("+")
    operations = [int(sign) for sign in text[len(start) :].replace("+", " +").replace("-", " -").split()]
    return bool(grade_chain(make_task("", int(start), operations), leaf(attempt)).correct)


@pytest.mark.parametrize("form", ["met", "better", "critique"])
def test_the_verdict_is_what_the_rule_says_of_the_attempts(form):
    source, found = tasks(form)
    verdicts = set()
    for task in found:
        attempts = [message["content"] for message in task.messages if message["role"] == "assistant"]
        right = [is_right(task, attempt) for attempt in attempts]
        verdict = task.answer
        said = {
            "met": [verdict == "1"],
            "better": [verdict == "A", verdict == "B"],
            "critique": [verdict == "ok"],
        }
        assert right == said[form]
        verdicts.add(tuple(right))
        assert grade(source, task, task.columns["demonstration"]).correct
        assert not grade(source, task, "5,5").correct
    assert len(verdicts) == 2, "both verdicts occur"


def test_a_critique_names_the_first_wrong_step_and_counts_where_it_finds_one():
    source, found = tasks("critique")
    wrong = next(task for task in found if task.answer != "ok")
    assert [grade(source, wrong, reply).correct for reply in (wrong.answer, "!99", "ok", "")] == [
        True,
        True,
        False,
        False,
    ]
    right = next(task for task in found if task.answer == "ok")
    assert [grade(source, right, reply).correct for reply in ("ok", "!1", "okay", "o")] == [True, False, False, False]


def test_prompts_are_those_that_judges_and_critics_are_asked_in_turns():
    def content(form, i=0):
        return tasks(form)[1][i].messages[-1]["content"]

    assert content("met") == "1. sound\nmet:"
    assert content("better") == "sound\nbetter:"
    assert content("critique") == "?="
    assert {content("refine", i)[0] for i in range(40)} == {"o", "!"}
    assert Brpo(principles="sound").principles + "\nbetter:" == content("better")


def test_what_is_revised_after_a_critique_is_the_chain_worked_correctly():
    source, found = tasks("refine")
    for task in found:
        assert is_right(task, task.answer)
        assert grade(source, task, task.answer).correct


def test_splits_do_not_share_chains_and_forms_take_turns():
    source = ChainJudgements(forms=FORMS, levels=(1, 2)).build("train", 0)
    assert [source[i].columns["form"] for i in range(4)] == list(FORMS)
    assert [source[i].columns["level"] for i in (0, 4, 8)] == [1, 2, 1]
    heldout = ChainJudgements(levels=(1,)).build("heldout", 0)
    train = ChainJudgements(levels=(1,)).build("train", 0)
    assert not {heldout[i].messages[0]["content"] for i in range(100)} & {
        train[i].messages[0]["content"] for i in range(100)
    }
    with pytest.raises(ValidationError):
        ChainJudgements(forms=())


def test_scores_rank_the_one_correct_attempt_first_and_name_the_first_mistake_of_the_others():
    source, found = tasks("scores", answers=3)
    for task in found:
        attempts = [message["content"] for message in task.messages if message["role"] == "assistant"]
        right, labels = [is_right(task, attempt) for attempt in attempts], task.columns["labels"]
        assert (sum(right), [label == 9 for label in labels]) == (1, right)
        principle, scores = task.answer.split("\n")
        assert principle.split(";")[0] == f"{task.columns['level']} steps"
        assert [critique == "ok" for critique in principle.split(";")[1:]] == right
        assert scores == "scores:" + ",".join(map(str, labels))
        assert grade(source, task, task.answer).correct
        assert not grade(source, task, "5,5,5").correct, "the best one has to stand above all others"
    # Two of four steps hold before the third, a wrong one: 8 * 2 / 4.
    assert (points(3, 4), points(1, 4), points(4, 4), points(None, 4)) == (4, 0, 6, 9)
    assert found[0].messages[-1]["content"] == "sound\nscores:"


def test_a_principle_holds_unless_the_attempt_violates_that_one():
    _, found = tasks("principle", n=120)
    seen = set()
    for task in found:
        chain, attempt = task.messages[0]["content"], task.messages[1]["content"]
        operations = len([sign for sign in chain if sign in "+-"])
        whole = attempt.count("=") == operations
        sound = is_right(task, attempt) or not whole  # what lacks a step has no wrong result
        holds = {"sound": sound, "whole": whole}[task.columns["principle"]]
        assert task.answer == ("yes" if holds else "no")
        assert task.messages[2]["content"] == f"{task.columns['principle']}?"
        seen.add((task.columns["principle"], holds))
    assert len(seen) == 4, "both principles are kept and violated"


def test_a_judgement_is_consistent_where_its_points_follow_from_its_critiques():
    source, found = tasks("consistent")
    for task in found:
        critiques, scores = task.messages[-2]["content"].split("\n")
        best = [critique == "ok" for critique in critiques.split(";")[1:]].index(True)
        given = [int(score) for score in scores.removeprefix("scores:").split(",")]
        assert task.answer == ("yes" if given[best] == 9 else "no")
        assert task.messages[-1]["content"] == "consistent?"
        assert grade(source, task, task.answer).correct
    assert {task.answer for task in found} == {"yes", "no"}


def test_the_steps_that_were_taken_back_are_those_before_a_correction():
    source, found = tasks("steps", n=80)
    seen = set()
    for task in found:
        attempt, asked = (message["content"] for message in task.messages[1:])
        assert asked == ("corrected\nsteps:" if is_right(task, attempt) else "unused\nsteps:")
        ends = [i + 1 for i, letter in enumerate(attempt) if letter in "+-!#"] + [len(attempt)]
        listed = [n for n, end in enumerate(ends, 1) if attempt[end - 1] == "!"]
        assert task.answer == (",".join(map(str, listed)) or "none")
        assert grade(source, task, task.answer).correct
        seen.add((asked[0], bool(listed)))
    assert len(seen) == 4, "correct and incorrect attempts, with and without a correction"


def test_segments_are_marked_by_kind_of_error():
    # 37+8-2: the second operation written is another one, its result follows from it; 10 too large after the first.
    text, marks = with_errors(37, [8, -2], {"operation": 1, "result": 0})
    assert text == "37+8=55+8=63#63"
    assert marks == {"operation": "+-00", "result": "0-+0", "answer": "000+"}
    assert with_errors(37, [8], {"answer": 0}) == ("37+8=45#55", {"operation": "+00", "result": "0+0", "answer": "00-"})
    source, found = tasks("errors", n=120)
    for task in found:
        assert task.messages[-1]["content"] == f"{task.columns['error']}\nsegments:"
        assert len(task.answer) == 2 + task.columns["level"]
        assert grade(source, task, task.answer).correct
    kinds = {(task.columns["error"], "-" in task.answer) for task in found}
    assert len(kinds) == 6, "each kind with and without an error"


def test_one_problem_is_shown_with_many_attempts_and_their_critiques():
    settings = {"forms": ("critique", "refine"), "levels": (6,), "problems": 1}
    source = ChainJudgements.model_validate(settings).build("train", 0)
    tasks = [source[i] for i in range(60)]
    assert len({task.messages[0]["content"] for task in tasks}) == 1
    attempts = {task.messages[1]["content"] for task in tasks[::2]}
    # Right, the last step missing, or a slip at one of six steps.
    assert 6 <= len(attempts) <= 8
    assert {task.answer for task in tasks[::2]} <= {"ok", *(f"!{step}" for step in range(1, 7))}
    several = ChainJudgements.model_validate(settings | {"problems": 3}).build("train", 0)
    assert len({several[i].messages[0]["content"] for i in range(60)}) == 3
