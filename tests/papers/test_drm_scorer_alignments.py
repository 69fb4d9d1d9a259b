"""What the scorers of pairs of texts add up: reasoning and question, answer, documents."""

from dataclasses import replace

import pytest
from reasonings import PROMPT, TASK, Characters, reasoned

from lyceum.papers.drm._pairs import PairScorer
from lyceum.papers.drm.scorer_lexical import LexicalScorer
from lyceum.tasks.chain import Chain
from lyceum.utils.aio import run_async

ONE, OTHER = reasoned("37+8=45#43"), reasoned("91#85")


def with_documents(found):
    return replace(TASK, columns={"documents": found})


def graded(scorer, task, *of):
    return run_async(scorer(task, list(of), Characters()))


def lengths(pairs):
    """An alignment that shows what it was given: 100 times the first text's length and the second's."""
    return [100.0 * len(a) + len(b) for a, b in pairs]


def test_the_three_terms_are_weighted_and_added_up():
    # Question "37+8-2=" (7), reasoning "37+8=45" (7), answer "43" (2), documents of 1 and 3 characters:
    # 707 for the question, 702 for the answer, the mean of 701 and 703 for the documents.
    # 2 * 707 + 3 * 702 + 5 * 702 = 1414 + 2106 + 3510 = 7030.
    [grade] = graded(PairScorer(lengths, 2, 3, 5), with_documents(["a", "bcd"]), ONE)
    assert len(PROMPT) == 7
    assert grade.parts == {"question": 707, "answer": 702, "documents": 702}
    assert grade.outcome == 7030


def test_each_reasoning_has_its_own_documents_term():
    # Reasonings of 7 and 2 characters, one document of 4: 704 and 204.
    grades = graded(PairScorer(lengths, 0, 0, 1), with_documents("abcd"), ONE, OTHER)
    assert [grade.outcome for grade in grades] == [704, 204]


@pytest.mark.parametrize("found", [None, "", "  ", [], [""], 7, {"text": "a"}])
def test_a_task_without_documents_has_two_terms(found):
    [grade] = graded(PairScorer(lengths, 2, 3, 5), with_documents(found), ONE)
    assert grade.parts == {"question": 707, "answer": 702}
    assert grade.outcome == 2 * 707 + 3 * 702


def test_a_term_of_weight_0_is_not_asked_for():
    asked = []
    scorer = PairScorer(lambda pairs: asked.extend(pairs) or lengths(pairs), 0, 0, 1)
    graded(scorer, with_documents(["a", "b"]), ONE)
    assert asked == [("37+8=45", "a"), ("37+8=45", "b")]


def test_lexical_relevance_rises_with_a_document_that_the_reasoning_uses():
    scorer = LexicalScorer(question=0, answer=0, column="context").build(Chain(levels=(1, 2, 3)).build("train", 0))
    task = replace(TASK, columns={"context": ["the river Elbe", "37+8=45"]})
    uses, ignores = graded(scorer, task, ONE, OTHER)
    # The mean over both documents: the one that it is has a cosine of 1, the other none of its characters.
    assert uses.parts["documents"] == pytest.approx(0.5)
    assert ignores.parts["documents"] == 0
