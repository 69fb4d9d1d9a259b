"""Two answers below the same reasoning, on a task whose options are Rome, Oslo and Bonn, of which Oslo is correct."""

import json
from dataclasses import dataclass, field

import pytest
from leaves import Source as OneTask
from leaves import leaf
from pydantic import ValidationError

from lyceum.core.types import Continuation, Task
from lyceum.papers.acre.reward_answer_consistency import (
    AnswerConsistency,
    reordered,
    right_options,
    shuffled,
    tokens_within,
)
from lyceum.reward.base import combine
from lyceum.tasks.chain_choice import ChainChoice
from lyceum.tasks.dataset import Dataset
from lyceum.utils.aio import run_async
from lyceum.utils.errors import RecipeError

OPTIONS = ["Rome", "Oslo", "Bonn"]
TASK = Task("t", ({"role": "user", "content": "Rome Oslo Bonn"},), "B", {"options": OPTIONS})
VALUES = {"both_right": 1.0, "first_right": 0.5, "second_right": 0.25, "both_wrong": 0.0}


class Source(OneTask):
    def reordered(self, task, order):
        return [{"role": "user", "content": " ".join(task.columns["options"][number] for number in order)}]


def tokens(text):
    return list(map(ord, text))


@dataclass
class Model:
    """Answers with the letter of one town, wherever it now stands, or with a fixed text. A token is a character."""

    town: str = ""
    text: str = ""
    asked: list = field(default_factory=list)

    def render(self, messages):
        return tokens(messages[0]["content"] + "\n")

    def decode(self, tokens):
        return "".join(map(chr, tokens))

    async def ask(self, prefix, n, sampling, *, key):
        self.asked.append((self.decode(prefix), n, sampling, key))
        shown = self.decode(prefix).partition("\n")[0].split()
        answer = self.text or "ABC"[shown.index(self.town)] + "</answer>"
        return [Continuation(tokens(answer), [0.0] * len(answer), [0.0] * len(answer), [0] * len(answer), "stop")]


def written(text):
    node = leaf(text)
    node.tokens = tokens(text)
    return node


def grade(model, *texts, task=TASK, **settings):
    grader = combine([AnswerConsistency(**settings)], Source(task))
    return run_async(grader(task, [written(text) for text in texts], model))


@pytest.mark.parametrize(
    ("first", "town", "outcome", "consistent", "second_right"),
    [
        ("B", "Oslo", 1.0, 1, 1),  # both correct
        ("B", "Rome", 0.5, 0, 0),  # the same reasoning leads elsewhere
        ("A", "Oslo", 0.25, 0, 1),  # the reasoning was good, its answer was not
        ("A", "Rome", 0.0, 1, 0),  # they agree, and are wrong
        ("A", "Bonn", 0.0, 0, 0),
    ],
)
def test_the_reward_is_full_where_both_answers_agree_and_are_right(first, town, outcome, consistent, second_right):
    # The model answers with a town's letter in the shuffled order: without undoing the shuffle the second answer would
    # be another town.
    model = Model(town)
    [given] = grade(model, f"So it is.<answer>{first}</answer>")
    assert given.outcome == outcome
    assert given.correct == (first == "B"), "accuracy is that of the completion's own answer"
    assert given.parts == {
        "answer-consistency": outcome,
        "answer-consistency/asked": 1,
        "answer-consistency/consistent": consistent,
        "answer-consistency/second_right": second_right,
    }


def test_the_model_is_asked_once_below_the_reasoning_without_its_answer_and_with_the_options_shuffled():
    model = Model("Oslo")
    grade(model, "So it is.<answer>A</answer> Yes.", temperature=0.5, max_answer_tokens=7)
    [(prefix, n, sampling, _)] = model.asked
    options, _, reasoning = prefix.partition("\n")
    assert options != "Rome Oslo Bonn"
    assert sorted(options.split()) == sorted(OPTIONS)
    assert reasoning == "So it is.<answer>"
    assert (n, sampling.temperature, sampling.max_completion_tokens) == (1, 0.5, 7)


def test_leaves_of_one_task_are_asked_with_keys_of_their_own():
    model, texts = Model("Oslo"), ["a<answer>B</answer>", "b<answer>B</answer>"]
    leaves = [written(text) for text in texts]
    for address, node in enumerate(leaves):
        node.address = address
    run_async(AnswerConsistency().build(Source(TASK))(TASK, leaves, model))
    assert len({key for _, _, _, key in model.asked}) == 2


@pytest.mark.parametrize("text", ["So it is B.", "<answer>B", "<answer>Oslo</answer>", "<answer>D</answer>"])
def test_without_a_letter_among_the_options_the_model_is_not_asked(text):
    model = Model("Oslo")
    [given] = grade(model, text)
    assert (given.outcome, given.correct, given.answered) == (0.0, False, False)
    assert given.parts["answer-consistency/asked"] == 0
    assert not model.asked


def test_a_second_text_without_an_answer_is_wrong_and_agrees_with_nothing():
    [given] = grade(Model(text="it depends"), "<answer>B</answer>")
    assert (given.outcome, given.parts["answer-consistency/consistent"]) == (0.5, 0)


@pytest.mark.parametrize("n", [2, 3, 4, 10])
def test_the_order_is_another_one_for_every_key_and_the_same_for_the_same(n):
    orders = [shuffled(n, "t", address) for address in range(200)]
    assert all(sorted(order) == list(range(n)) != order for order in orders)
    assert orders == [shuffled(n, "t", address) for address in range(200)]
    if n == 3:  # 3! - 1 orders, each about 40 times of 200
        assert len({tuple(order) for order in orders}) == 5


def test_a_token_that_reaches_into_the_answer_is_written_again():
    # "So", ">B", "C": the reasoning ends at ">", inside the second token.
    pieces = {1: "So", 2: ">B", 3: "C"}
    assert tokens_within([1, 2, 3], 3, lambda some: "".join(pieces[one] for one in some)) == [1]
    assert tokens_within([1, 2, 3], 4, lambda some: "".join(pieces[one] for one in some)) == [1, 2]


@pytest.mark.parametrize(("answer", "right"), [("B", {1}), ("Oslo", {1}), (1, {1}), (["A", "Bonn"], {0, 2})])
def test_a_tasks_answer_is_an_options_text_its_letter_or_its_number(answer, right):
    assert right_options(Task("t", (), answer, {"options": OPTIONS})) == right


@pytest.mark.parametrize(
    ("form", "text", "reasoning"),
    [
        ({"after": "#"}, "1#2 is#B", "1#2 is#"),
        ("boxed", "so \\boxed{B} then", "so \\boxed{"),
        ({"tags": "answer"}, "<answer>A</answer> no <answer>B</answer>", "<answer>A</answer> no <answer>"),
        ({"after": "#"}, "B", None),
        ({"tags": "answer"}, "<answer>B", None),
    ],
)
def test_reasoning_ends_where_the_answer_begins(form, text, reasoning):
    assert AnswerConsistency(extract=form).extract.until_answer(text) == reasoning


def test_tasks_without_options_to_shuffle_are_refused_before_a_model_is_loaded():
    part = AnswerConsistency()
    with pytest.raises(RecipeError, match=r"task 't' is not multiple choice"):
        part.build(Source(Task("t", (), "B")))
    with pytest.raises(RecipeError, match=r"cannot be put in another order"):
        part.build(OneTask(TASK))
    with pytest.raises(RecipeError, match=r"the answer 'Paris' of task 't' is none of its options"):
        part.build(Source(Task("t", (), "Paris", {"options": OPTIONS})))
    with pytest.raises(ValidationError, match="leaves no reasoning"):
        AnswerConsistency(extract="whole")


def test_a_datasets_options_are_shuffled_in_its_template(tmp_path):
    rows = [{"q": f"Capital {number}?", "choices": OPTIONS, "answer": 1, "key": f"k{number}"} for number in range(20)]
    path = tmp_path / "towns.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    given = {"path": str(path), "template": "{q}\n{options}", "verifier": "choice"}
    for columns in ({"prompt": "q", "options": "choices"}, {"prompt": "q", "options": "choices", "id": "key"}):
        source = Dataset.model_validate({**given, "columns": columns}).build("train", 0)
        AnswerConsistency().build(source)
        task = source[1]
        question = task.messages[0]["content"].partition("\n")[0]
        assert task.messages[0]["content"] == f"{question}\nA) Rome\nB) Oslo\nC) Bonn"
        [message] = source.reordered(task, [2, 0, 1])
        assert message["content"] == f"{question}\nA) Bonn\nB) Rome\nC) Oslo"


def test_a_datasets_options_that_cannot_be_used_are_refused(tmp_path):
    path = tmp_path / "towns.jsonl"
    path.write_text(json.dumps({"q": "Capital?", "choices": ["Rome", "Rome"], "answer": 0}) + "\n")
    given = {"path": str(path), "columns": {"prompt": "q", "options": "choices"}}
    with pytest.raises(ValidationError, match=r"the template does not show them"):
        Dataset.model_validate({**given, "template": "{q}"})
    with pytest.raises(RecipeError, match=r"tasks.columns.options: line 1 .* 2 to 10 different texts or numbers"):
        Dataset.model_validate({**given, "template": "{q} {options}"}).build("train", 0)


def test_a_mixture_of_choices_reorders_each_by_its_own_source():
    from lyceum.tasks.mixture import Mixture

    source = Mixture.model_validate({"parts": [{"tasks": "chain-choice"}, {"tasks": "chain"}]}).build("train", 0)
    choice, chain = source[0], source[1]
    own = ChainChoice().build("train", 0)
    assert reordered(source, choice, [3, 2, 1, 0]) == own.reordered(own[0], [3, 2, 1, 0])
    assert reordered(source, chain, [1, 0]) is None
