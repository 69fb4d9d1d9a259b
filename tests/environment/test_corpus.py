"""A corpus answers queries with its own passages, and takes the place of self-search without another transcript."""

import json

import numpy as np
import pytest
from fake_task import FakeTask

from lyceum.core.tree import Node
from lyceum.core.types import Task
from lyceum.environment._notation import Notation
from lyceum.environment.corpus import NOTHING, Corpus, read_passages
from lyceum.recipe.schema import load_recipe
from lyceum.training.train import train
from lyceum.utils.aio import run_async
from lyceum.utils.errors import RecipeError
from lyceum.utils.ranking import MANY, words_of

FACTS = [
    {"title": "Paris", "text": "Paris is the capital of France."},
    {"title": "Lyon", "text": "Lyon is a city in France, and Paris is another."},
    {"title": "37+8", "text": "45"},
    {"text": "The Danube flows through Vienna."},
]


class Letters(FakeTask):
    def encode_after(self, path, text):
        return list(map(ord, text))


def corpus(tmp_path, rows=FACTS, **more) -> Corpus:
    file = tmp_path / "corpus.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    return Corpus(path=str(file), **more)


def answer(settings: Corpus, said: str):
    environment = settings.build()
    seen = run_async(environment.step(environment.reset(Task("t", ())), Node.prompt([1]), said, Letters()))
    return seen, "".join(map(chr, seen.tokens))


def test_the_passage_of_that_title_comes_first_then_the_most_similar_ones(tmp_path):
    found, text = answer(corpus(tmp_path, passages=2), "<search>paris</search>")
    assert text == f"<information>{FACTS[0]['text']}\n{FACTS[1]['text']}</information>"
    assert (found.calls, found.failed) == (1, 0)
    assert answer(corpus(tmp_path, passages=1), "<search>which river: the Danube</search>")[1].count("Vienna") == 1
    assert answer(corpus(tmp_path, notation=Notation()), "37+8=")[1] == "45"
    assert answer(corpus(tmp_path, max_characters=5, passages=1), "<search>Paris</search>")[1].count("Paris") == 1


ENGLISH = [
    {"title": "Paris", "text": "Paris, the capital of France, lies on the Seine."},
    {"title": "Berlin", "text": "Berlin is the capital and largest city of Germany."},
    {"title": "Hamlet", "text": "A tragedy by William Shakespeare, written about 1600."},
    {"title": "Macbeth", "text": "'Macbeth' is another of Shakespeare's tragedies."},
]


@pytest.mark.parametrize(
    ("query", "title"),
    [
        ("Who wrote Hamlet?", "Hamlet"),
        ("Who wrote 'Macbeth'?", "Macbeth"),
        ("capital of Germany", "Berlin"),
        ("What is the capital of Germany?", "Berlin"),
        ("Shakespeare", "Macbeth"),  # the shorter of two that name him
        ("the river SEINE", "Paris"),
    ],
)
def test_a_question_in_english_finds_its_passage(query, title, tmp_path):
    assert corpus(tmp_path, ENGLISH).build().search(query)[0].title == title


def test_punctuation_is_no_part_of_a_word_and_an_operation_is_one_word():
    assert words_of('Who wrote "Hamlet"?') == ["who", "wrote", "hamlet"]
    assert words_of("37+8=45, 3.5 and well-known") == ["37+8", "45", "3.5", "and", "well", "known"]


def test_equal_scores_are_in_the_order_of_the_file_and_no_more_than_asked(tmp_path):
    rows = [{"text": f"alike {'zeta' if i % 2 else 'eta'}"} for i in range(10)]
    places = corpus(tmp_path, rows).build().ranked.places
    assert places("zeta", 3) == [1, 3, 5]
    assert places("zeta", 100) == [1, 3, 5, 7, 9]
    assert places("alike zeta", 7) == [1, 3, 5, 7, 9, 0, 2]
    assert corpus(tmp_path, [{"text": "?"}]).build().search("what?") == []


def test_the_scores_are_the_librarys(tmp_path):
    ranked = corpus(tmp_path, ENGLISH).build().ranked
    scores = ranked.index.get_scores(words_of("the capital of Shakespeare"))
    assert ranked.places("the capital of Shakespeare", 4) == np.argsort(-scores, kind="stable").tolist()


def test_in_a_large_corpus_common_words_do_not_hide_a_rare_one(tmp_path):
    rows = [{"text": f"the town number {i}"} for i in range(MANY)] + [{"text": "Oslo"}]
    search = corpus(tmp_path, rows).build().search
    assert [passage.text for passage in search("the town of Oslo")] == ["Oslo"]
    assert [passage.text for passage in search("the town")] == [row["text"] for row in rows[:3]]


def test_a_device_without_an_end_is_refused_at_once():
    with pytest.raises(RecipeError, match=r"environment.path: .*no regular file"):
        read_passages("/dev/zero")


def test_nothing_similar_is_said_and_counted_and_no_query_ends_the_trajectory(tmp_path):
    found, text = answer(corpus(tmp_path), "<search>xylophone</search>")
    assert (text, found.failed) == (f"<information>{NOTHING}</information>", 1)
    assert answer(corpus(tmp_path), "<answer>45</answer>")[0].end


@pytest.mark.parametrize("content", ["", "[1]", '{"title": "no text"}', '{"text": 3}', "{", '{"text": ""}'])
def test_a_file_that_is_no_corpus_is_refused_before_a_model_loads(content, tmp_path):
    file = tmp_path / "corpus.jsonl"
    file.write_text(content)
    for path in (file, tmp_path / "missing.jsonl"):
        real = f"evaluate.environment={{kind: corpus, path: {path}}}"
        with pytest.raises(RecipeError, match=r"environment.path: .*allowed: a text file"):
            load_recipe("ssrl", [real])


def test_self_search_is_swapped_for_a_corpus_at_evaluation(tmp_path):
    facts = [{"title": f"{a}{b:+d}", "text": str((a + b) % 100)} for a in range(100) for b in range(-9, 10) if b]
    settings = corpus(tmp_path, facts, notation=Notation(), passages=1)
    swapped = json.dumps(settings.model_dump(mode="json"))
    tiny = ["steps=1", "tasks_per_step=2", "rollout.samples=2", "tasks.levels=[2]", f"output={tmp_path}"]
    tiny += ["evaluate.n=3", "evaluate.samples=1", "evaluate.k=[1]", "evaluate.greedy=false"]
    path = train(load_recipe("ssrl", [*tiny, f"evaluate.environment={swapped}"]))
    for example in json.loads((path / "examples.json").read_text()):
        asked, _, rest = example["before"]["completion"].partition("=")
        at = max(asked.rfind("+"), asked.rfind("-"))
        right = (int(asked[:at]) + int(asked[at:])) % 100
        assert rest.startswith(str(right)), "the corpus answers what was asked"
