"""Word problems: the answer follows from the sentences, steps are judged one by one, and guessing does not pay."""

import asyncio
import os
import re
import subprocess
import sys
from collections import Counter
from dataclasses import replace

import pytest
from fake_task import NO_MODEL
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from lyceum.core.tree import Node
from lyceum.core.types import Hint, Origin
from lyceum.models.scratch_words import story_tokenizer
from lyceum.tasks.stories import Stories

LEVELS = tuple(range(9))
SPLIT = pytest.mark.parametrize("split", ["train", "heldout"])
ANY = {"index": st.integers(0, 99_999), "seed": st.integers(0, 1000), "variety": st.sampled_from([0.0, 0.3, 1.0])}

APPLE_STORY = {
    "asked": "Dan",
    "thing": "shells",
    "facts": [
        ["Dan", "together", ["Bob", "Eve"], 0],
        ["Bob", "fewer", ["Ann"], 3],
        ["Eve", "twice", ["Ann"], 0],
        ["Ann", "number", [], 7],
        ["Gus", "more", ["Ann"], 5],
    ],
}


def solved_from_text(problem: str) -> int:
    """An answer from the sentences alone, by other expressions than the generator's and repeated substitution."""
    thing = re.search(r"[Hh]ow many (\w+)", problem)[1]
    question = re.search(r"(?:does (\w+) have|box of (\w+))\?$", problem)
    rules, known = {}, {}
    for sentence in re.split(r"(?<=[.?]) ", problem)[1:-1]:
        names = re.findall(r"\b(?!Together|There|Compared)[A-Z]\w+", sentence)
        number = next(iter(map(int, re.findall(r"\d+", sentence))), None)
        if thing not in sentence or " also " in sentence:
            continue
        if "ogether" in sentence:
            subject = names[-1] if sentence.startswith("Together") else names[0]
            rules[subject] = [(name, 1) for name in names if name != subject], 0
        elif "twice" in sentence or "two times" in sentence:
            rules[names[0]] = [(names[1], 2)], 0
        elif "more" in sentence or "fewer" in sentence:
            subject, other = reversed(names) if sentence.startswith("Compared") else names
            rules[subject] = [(other, 1)], number if "more" in sentence else -number
        else:
            known[names[0]] = number
    while rules:
        ready = [name for name, (of, _) in rules.items() if all(other in known for other, _ in of)]
        assert ready, rules
        for name in ready:
            of, add = rules.pop(name)
            known[name] = sum(known[other] * times for other, times in of) + add
    return known[question[1] or question[2]]


def text_of(task):
    return task.messages[0]["content"]


def rewards(source, task, text):
    return [step.reward for step in source.judged_steps(task, text)]


def story(**changes):
    source = Stories().build("train", 0)
    task = source[0]
    columns = {**task.columns, **APPLE_STORY, **changes}
    return source, type(task)(task.id, task.messages, "18", columns, provenance="stories")


@SPLIT
@given(**ANY)
def test_the_answer_follows_from_the_sentences_and_every_step_is_right(split, index, seed, variety):
    source = Stories(levels=LEVELS, variety=variety).build(split, seed)
    task = source[index]
    assert task.answer == str(solved_from_text(text_of(task)))
    assert 1 <= int(task.answer) < 50
    assert sum(" = " in step for step in task.columns["steps"]) == task.columns["level"] == LEVELS[index % 9]
    judged = source.judged_steps(task, task.columns["demonstration"])
    assert len(judged) == len(task.columns["steps"]) + 1
    assert all(step.reward == 1 for step in judged)
    assert (judged[0].start, judged[-1].stop) == (0, len(task.columns["demonstration"]))


@given(**ANY, place=st.integers(0, 1000), other=st.integers(1, 99))
def test_a_forged_number_makes_its_step_wrong_and_is_never_the_right_answer(index, seed, variety, place, other):
    source = Stories(levels=LEVELS, variety=variety).build("train", seed)
    task = source[index]
    solution = task.columns["demonstration"]
    numbers = list(re.finditer(r"\d+", solution))
    found = numbers[place % len(numbers)]
    if int(found[0]) == other:
        return
    forged = f"{solution[: found.start()]}{other}{solution[found.end() :]}"
    judged = source.judged_steps(task, forged)
    at = next(n for n, step in enumerate(judged) if step.start <= found.start() < step.stop)
    assert all(step.reward == 1 for step in judged[:at])
    assert judged[at].reward == 0


@given(**ANY, place=st.integers(0, 1000))
def test_no_calculation_can_be_left_out(index, seed, variety, place):
    source = Stories(levels=LEVELS[1:], variety=variety).build("train", seed)
    task = source[index]
    steps = task.columns["steps"]
    calculations = [n for n, step in enumerate(steps) if " = " in step]
    left_out = calculations[place % len(calculations)]
    text = " ".join([*steps[:left_out], *steps[left_out + 1 :], "Answer:", task.answer])
    assert 0 in rewards(source, task, text)


def test_steps_are_right_in_any_order_that_has_its_numbers():
    source, task = story()
    forwards = (
        "Ann has 7. For Eve, 2 * 7 = 14, so Eve has 14. So Bob has Ann's 7 - 3 = 4. So Dan has 14 + 4 = 18. Answer: 18"
    )
    assert rewards(source, task, forwards) == [1] * 5
    # Bob's number is used before it is there; the same sentence is right once it is.
    assert rewards(source, task, "So Dan has 4 + 14 = 18. So Bob has 7 - 3 = 4.") == [0, 1]
    # With other words for the same: the thing, the order of two that are added, a line for each step.
    assert rewards(source, task, "Together, Eve and Bob have as many shells as Dan.\nAnn owns 7 shells.\n") == [1, 1]


def test_a_slip_counts_once_and_what_helps_nothing_is_wrong():
    source, task = story()
    slip = "So Bob has 7 - 3 = 5. So Eve has 7 * 2 = 14. So Dan has 5 + 14 = 19. Answer: 19"
    assert rewards(source, task, slip) == [0, 1, 1, 1]
    assert rewards(source, task, "Answer: 18") == [0]  # right, and found by nothing
    assert rewards(source, task, "Gus has 5 more than Ann. Ann has 7. Ann has 7. So Gus has 7 + 5 = 12.") == [
        0,
        1,
        0,
        0,
    ]
    assert rewards(source, task, "So Bob has 3 - 7 = 4. So Eve has 7 + 7 = 14. Ann has 9 coins.") == [0, 0, 0]
    assert rewards(source, task, "So Bob has Eve's 7 - 3 = 4. For Bob, 7 - 3 = 4, so Eve has 4.") == [0, 0]
    assert rewards(source, task, "Let me think. We look for Dan. We look for Bob.") == [1, 0]  # the first is no step


def test_a_grade_is_the_answers():
    source, task = story()
    prompt = Node(None, [1], Origin.PROMPT)
    texts = ["Answer: 18", "Answer: 18.", "So Dan has 18.", "Answer: 81", "Answer: 18"]
    ends = ["stop", "stop", "stop", "stop", "length"]
    leaves = [Node(prompt, [2], Origin.POLICY, finish=end, text=text) for text, end in zip(texts, ends, strict=True)]

    async def grade():
        return await source.grader()(task, leaves, NO_MODEL)

    grades = asyncio.run(grade())
    assert [grade.outcome for grade in grades] == [1, 1, 0, 0, 0]
    assert [grade.answered for grade in grades] == [True, True, False, True, True]


@given(**ANY)
def test_hints_go_from_how_to_which_to_the_first_steps_and_never_give_the_last(index, seed, variety):
    task = Stories(levels=LEVELS, variety=variety).build("train", seed)[index]
    hints, steps = task.columns["hints"], task.columns["steps"]
    assert [hint["tier"] for hint in hints][:3] == ["knowledge", "planning", "solution"]
    assert re.findall("[A-Z][a-z]+", hints[1]["text"])[1] == task.columns["asked"]
    shown = [hint["text"] for hint in hints[2:]]
    assert shown == sorted(set(shown), key=len)
    assert shown[-1] == " ".join(steps[:-1])


@given(**ANY)
def test_a_word_is_a_token_and_a_text_is_its_tokens(index, seed, variety):
    source = Stories(levels=LEVELS, variety=variety).build("train", seed)
    task = source[index]
    tokenizer = story_tokenizer()
    texts = [text_of(source.hinted(task, Hint(**hint))) for hint in task.columns["hints"]]
    for text in [*texts, task.columns["demonstration"]]:
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == text
        pieces = tokenizer.convert_ids_to_tokens(ids)
        assert {piece for piece in pieces if len(piece) == 1} <= set(".,:?\n")
    prompt, solution = (len(tokenizer.encode(text)) for text in (text_of(task), task.columns["demonstration"]))
    assert solution <= 300
    assert prompt <= 150


@given(**ANY)
def test_who_is_hasty_takes_the_first_number_that_is_found_for_the_answer(index, seed, variety):
    whole, hasty = (
        Stories.model_validate({"levels": [4], "variety": variety, "haste": haste}).build("train", seed)[index]
        for haste in (0, 1)
    )
    assert replace(whole, columns={**whole.columns, "demonstration": ""}) == replace(
        hasty, columns={**hasty.columns, "demonstration": ""}
    )
    # Somebody's number that the problem tells: nothing can be calculated before.
    reasoning, _, answer = hasty.columns["demonstration"].partition(" Answer: ")
    assert whole.columns["demonstration"].startswith(reasoning + " ")
    assert re.findall("[0-9]+", reasoning.rpartition(". ")[2]) == [answer]
    assert not re.search(r"[0-9] [-+*] ", reasoning)


def test_other_text_is_read_letter_by_letter():
    tokenizer = story_tokenizer()
    text = " Annabel has 123 apples, Ann 12.\n"
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.convert_ids_to_tokens(tokenizer.encode(" Anna"))[0] == " "
    assert len(tokenizer.encode(" 123")) == 4


def test_train_and_heldout_share_no_problem():
    def problems(split, seed, count):
        """What is asked, and the facts that the answer needs."""
        source = Stories(levels=(1,), variety=0, distractors=0, tempting=0).build(split, seed)
        return {" ".join(source[n].columns["steps"][:3]) for n in range(count)}

    train, heldout = problems("train", 0, 1000) | problems("train", 1, 1000), problems("heldout", 2, 250)
    assert len(heldout) > 200
    assert not train & heldout


def test_a_task_is_the_same_in_every_process():
    program = "from lyceum.tasks.stories import Stories; print(Stories().build('train', 3)[77])"
    first, second = (
        subprocess.run(
            [sys.executable, "-c", program], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True
        ).stdout
        for seed in "12"
    )
    assert first == second
    assert "Answer:" in first


@pytest.mark.parametrize("level", LEVELS[1:])
def test_guessing_is_right_in_less_than_one_of_twelve(level):
    source = Stories(levels=(level,)).build("train", 0)
    tasks = [source[n] for n in range(400)]
    constant = Counter(task.answer for task in tasks).most_common(1)[0][1]
    assert constant / len(tasks) < 1 / 12
    for place in (0, -1):  # a number of the problem, the first or the last
        hits = sum(re.findall(r"\d+", text_of(task))[place] == task.answer for task in tasks)
        assert hits / len(tasks) < 1 / 12
    # The number that is told of someone who is asked about, or whom the asked one is compared with.
    some = sum(task.answer in re.findall(r"\d+", text_of(task)) for task in tasks)
    assert some / len(tasks) < 1 / 3


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"levels": [9]}, "numbers of calculations from 0 to 8"),
        ({"levels": []}, "at least one"),
        ({"distractors": 5}, "4"),
    ],
)
def test_bad_settings_are_refused(settings, said):
    with pytest.raises(ValidationError, match=said):
        Stories(**settings)
