"""Questions and their queries: what is asked, what is correct, what is imitated and judged."""

from __future__ import annotations

import asyncio
import random

from fake_task import NO_MODEL

from lyceum.core.tree import Node
from lyceum.core.types import Origin
from lyceum.papers.reasoning_sql.tasks_queries import PARTS, Queries, Query, asked, changed
from lyceum.papers.reasoning_sql.tasks_query_demonstrations import QueryDemonstrations
from lyceum.papers.reasoning_sql.tasks_query_judgements import QueryJudgements

QUERY = Query("max", "ml", "cup", "cm>3")


def test_a_query_in_words_and_in_sql() -> None:
    assert QUERY.words() == "max ml, cm>3"
    assert QUERY.sql() == "select max(ml) from cup where cm>3"
    assert QUERY.completion() == f"cup#{QUERY.sql()}"
    assert Query("", "kg", "pet", "age=1").words() == "kg, age=1"


def test_a_change_is_in_its_part_alone() -> None:
    for seed in range(50):
        for part in PARTS:
            query = changed(QUERY, random.Random(seed), [part])
            same = {
                "select": query.column == "ml",
                "table": query.table == "cup",
                "condition": query.condition == "cm>3",
            }
            assert same == {each: each != part for each in PARTS}


def test_references_and_clean_demonstrations_are_correct_and_wrong_ones_hardly_ever() -> None:
    clean = QueryDemonstrations(wrong=0).build("train", 0)
    noisy = QueryDemonstrations(wrong=1).build("train", 0)
    grader = clean.grader()

    def right(source, index: int) -> float | None:
        task = source[index]
        leaf = Node(
            Node(None, [0], Origin.PROMPT), [1], Origin.POLICY, finish="stop", text=task.columns["demonstration"]
        )
        [grade] = asyncio.run(grader(task, [leaf], NO_MODEL))
        return grade.outcome

    assert [right(clean, index) for index in range(20)] == [1.0] * 20
    assert sum(right(noisy, index) == 0 for index in range(20)) >= 15  # by chance 5 is as good a bound as 6


def test_a_judgement_counts_the_parts_that_are_right() -> None:
    source = QueryJudgements(criteria="alike").build("train", 0)
    for index in range(30):
        task = source[index]
        question, attempt, asked_of = (str(message["content"]) for message in task.messages)
        [rubric, reference, label] = asked_of.split("\n")
        assert (rubric, label, question) == ("alike", "points:", asked(source.drawn(index)[0]))
        query = source.drawn(index)[1]
        assert reference == query.sql()
        found = attempt.partition("#")[2]
        of_select = found.split(" from ")[0] == reference.split(" from ")[0]
        of_table = f" from {query.table} " in found
        of_condition = found.endswith(query.condition)
        assert task.answer == task.columns["demonstration"] == str(of_select + of_table + of_condition)


def test_a_source_is_a_function_of_seed_split_and_index() -> None:
    train, heldout = (Queries().build(split, 3) for split in ("train", "heldout"))
    assert train[7] == Queries().build("train", 3)[7]
    told = [{asked(source[index]) for index in range(200)} for source in (train, heldout)]
    assert not told[0] & told[1]
    assert [train[index].columns["level"] for index in range(4)] == [1, 2, 1, 2]
