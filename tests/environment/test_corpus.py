"""A corpus answers queries with its own passages, and takes the place of self-search without another transcript."""

import json

import pytest
from fake_task import FakeTask

from lyceum.core.tree import Node
from lyceum.core.types import Task
from lyceum.environment._notation import Notation
from lyceum.environment.corpus import NOTHING, Corpus
from lyceum.recipe.schema import load_recipe
from lyceum.training.train import train
from lyceum.utils.aio import run_async
from lyceum.utils.errors import RecipeError

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
