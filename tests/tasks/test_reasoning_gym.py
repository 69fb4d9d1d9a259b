import asyncio
import inspect
import re
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from lyceum.component import RecipeError, explain
from lyceum.tasks.reasoning_gym import EVALUATED, PARSED_BY_SYMPY, ReasoningGym, checker, level_in_ranges, shield
from lyceum.tree import Node
from lyceum.types import Grade, Origin, Task, TaskSource

SUMS = {"min_terms": 2, "max_terms": 3, "min_digits": 1, "max_digits": 1}


def sums(**settings) -> ReasoningGym:
    return ReasoningGym(dataset="chain_sum", config=SUMS, **settings)


def ask(source: TaskSource, task: Task, *texts: str) -> list[Grade]:
    prompt = Node(None, [1], Origin.PROMPT)
    leaves = [Node(prompt, [2], Origin.POLICY, finish="stop", text=text) for text in texts]

    async def grade():
        return await source.grader()(task, leaves)

    return asyncio.run(grade())


def test_the_datasets_own_verifier_grades_the_answer_in_its_tags():
    source = sums().build("train", 0)
    task = source[3]
    # Its verifier takes "+07.0" for 7; comparing texts would not.
    right, padded, wrong, none = ask(
        source,
        task,
        f"so <answer>{task.answer}</answer>",
        f"<answer>{float(task.answer):+.1f}</answer>",
        "<answer>99999</answer>",
        task.answer,
    )
    assert (right.outcome, right.correct) == (1.0, True)
    assert padded.outcome == 1.0
    assert wrong.correct is False
    assert none.correct is False


def test_a_task_follows_from_seed_split_and_index_alone():
    settings = sums()
    forwards = [settings.build("heldout", 1)[index] for index in range(10)]
    source = settings.build("heldout", 1)
    assert [source[index] for index in reversed(range(10))] == forwards[::-1]
    # reasoning-gym draws entry i from seed + i: with neighbouring seeds the runs would see each other's tasks.
    questions = [task.messages[-1]["content"] for task in forwards]
    others = [settings.build("heldout", 0)[index].messages[-1]["content"] for index in range(1, 11)]
    assert sum(a == b for a, b in zip(questions, others, strict=True)) < 3


def test_train_and_heldout_share_no_question():
    def questions(split, seed):
        source = sums().build(split, seed)
        return {source[index].messages[-1]["content"] for index in range(300)}

    train, heldout = questions("train", 0) | questions("train", 1), questions("heldout", 2)
    assert len(heldout) > 50
    assert not train & heldout


def test_the_level_is_an_entry_of_the_metadata():
    task = sums(level="num_terms").build("train", 0)[0]
    assert task.columns["level"] == task.columns["metadata"]["num_terms"] in (2, 3)
    with pytest.raises(RecipeError, match=r"tasks.level: got 'num_term' \(did you mean 'num_terms'\?\)"):
        sums(level="num_term").build("train", 0)


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"dataset": "chain_sums"}, "dataset: got 'chain_sums' (did you mean 'chain_sum'?); allowed: "),
        (
            {"dataset": "chain_sum", "config": {"min_term": 2}},
            "config.min_term: unknown key (did you mean 'min_terms'?) of 'chain_sum'; allowed: min_terms",
        ),
        ({"dataset": "chain_sum", "config": {"seed": 2}}, "config.seed: unknown key"),
    ],
)
def test_a_wrong_name_is_named_with_its_nearest(settings, line):
    with pytest.raises(ValidationError) as error:
        ReasoningGym.model_validate(settings)
    assert explain(error.value, ReasoningGym)[0].startswith(line)


def test_settings_that_the_dataset_refuses_are_named():
    with pytest.raises(RecipeError, match=r"reasoning-gym refuses .* max_terms must be >= min_terms"):
        ReasoningGym(dataset="chain_sum", config={"min_terms": 5, "max_terms": 2}).build("train", 0)


def test_an_answer_that_the_verifier_cannot_read_is_wrong():
    # This one reads whole numbers and raises at anything else. Ungraded, what a model writes at first would teach it
    # nothing.
    source = ReasoningGym(dataset="prime_factorization").build("train", 0)
    right, word = ask(source, source[0], f"<answer>{source[0].answer}</answer>", "<answer>none</answer>")
    assert (right.outcome, right.correct) == (1.0, True)
    assert (word.outcome, word.correct) == (0.0, False)


def test_a_verifier_that_fails_on_the_entry_itself_grades_nothing(monkeypatch):
    import reasoning_gym.arithmetic.prime_factorization as module

    def fail(self, answer):
        raise ValueError("broken")

    monkeypatch.setattr(module.PrimeFactorizationDataset, "_normalize_answer", fail)
    with pytest.raises(ValueError, match="broken"):
        checker("prime_factorization", {}, "test", 10)({"try": 0, "index": 0, "answer": "2"})


def test_a_verifier_that_finds_everything_right_is_refused():
    with pytest.raises(ValidationError) as error:
        ReasoningGym(dataset="game_of_life_halting")
    assert explain(error.value, ReasoningGym) == [
        "dataset: got 'game_of_life_halting', whose verifier in reasoning-gym finds any answer right; allowed: "
        "another dataset"
    ]


def test_a_groups_entry_is_made_once(monkeypatch):
    import reasoning_gym.arithmetic.chain_sum as module

    made = []
    make = module.ChainSumDataset.__getitem__
    monkeypatch.setattr(module.ChainSumDataset, "__getitem__", lambda self, i: (made.append(i), make(self, i))[1])
    check = checker("chain_sum", SUMS, "test", 10)
    for index in (3, 3, 4, 4, 3):
        check({"try": 0, "index": index, "answer": "1"})
    assert made == [3, 4, 3]


def test_a_verifier_that_raises_is_ungraded():
    source = sums().build("train", 0)
    task = source[0].with_messages(source[0].messages, entry=[0, "nowhere"])
    [grade] = ask(source, task, "<answer>1</answer>")
    assert grade.outcome is None
    assert (grade.reason or "").startswith("TypeError")


def test_every_dataset_that_evaluates_answers_is_known():
    # A new release of reasoning-gym may add one: then look at what its verifier does with a model's text.
    import reasoning_gym.factory

    evaluating = set()
    for name, (dataset, _) in reasoning_gym.factory.DATASETS.items():
        text = Path(inspect.getfile(dataset)).read_text()
        score = text.partition("def score_answer")[2].partition("\n    def ")[0]
        if re.search(r"(?<!_)\beval\(|\bexec\(|parse_expr\(|sympify\(|parse_latex\(|simplify\(answer", score):
            evaluating.add(name)
    # number_sorting evaluates the entry's own answer, propositional_logic has a parser of its own.
    assert evaluating - {"number_sorting", "propositional_logic"} == {*EVALUATED, *PARSED_BY_SYMPY}


@pytest.mark.parametrize("name", [*EVALUATED, *PARSED_BY_SYMPY])
def test_a_models_text_is_never_run(name: str, tmp_path: Path):
    witness = tmp_path / "run"
    attack = f"__import__('pathlib').Path({str(witness)!r}).touch()"
    check = checker(name, {}, "test", 10)
    for answer in (attack, f"[{attack}]", f"1+len(str({attack}))", f"({attack},)"):
        assert check({"try": 0, "index": 0, "answer": answer}) < 0.2
    assert not witness.exists()


@pytest.mark.parametrize("name", [*EVALUATED, *PARSED_BY_SYMPY])
def test_the_shield_lets_right_answers_through(name: str):
    from reasoning_gym import create_dataset

    check = checker(name, {}, "test", 10)
    dataset = create_dataset(name, seed=1, size=1)
    readable = shield(name, dataset)
    assert readable(dataset[0]["answer"])
    from lyceum.tasks.reasoning_gym import Entries

    answer = Entries(name, {}, "test", 10)(0, 0)["answer"]
    assert check({"try": 0, "index": 0, "answer": answer}) == 1.0


def test_plain_mathematics_is_read_in_linear_time():
    readable = shield("countdown", None)
    assert readable("(3 + 4.5)*x**2 - sin(x)/2")
    for text in ("x.real", "__import__", "'a'", "x[0]", "lambda: 1", "os", "1.__class__", "9" * 100_000 + "!"):
        assert not readable(text)
    assert "reasoning_gym.games.countdown" not in sys.modules or "eval" not in vars(
        sys.modules["reasoning_gym.games.countdown"]
    )


def test_the_level_is_where_the_entry_s_figures_stand_in_their_ranges():
    # 5 of 2 to 6 terms is 3/4 of the way, 4 of 1 to 4 digits all of it: 7/8 on average, the fifth fifth
    ranges = {"num_terms": [2, 6], "num_digits": [1, 4]}
    assert level_in_ranges({"num_terms": 5, "num_digits": 4, "difficulty": ranges}) == 5
    assert level_in_ranges({"num_terms": 2, "num_digits": 1, "difficulty": ranges}) == 1
    assert level_in_ranges({"num_terms": 4, "difficulty": ranges}) == 3
    assert level_in_ranges({"num_terms": 2, "difficulty": {"num_terms": [2, 2]}}) == 1
    assert level_in_ranges({"difficulty": {"depth": 3}}) is None
    assert level_in_ranges({"difficulty": "hard"}) is None
