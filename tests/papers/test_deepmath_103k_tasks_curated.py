"""What tasks ``curated`` leave out, why, and how it is counted; judges are a rule, a scripted server, a tiny model."""

import json
from pathlib import Path

import pytest
from judges import Server, says
from pydantic import ValidationError

from lyceum.core.component import kinds
from lyceum.core.sources import FromRows, left_out, of_rows, prompt_hashes, sources_of, without
from lyceum.core.types import LeftOut
from lyceum.models.scratch import build_scratch
from lyceum.papers.deepmath_103k._same_problem import QUESTION, SameProblem, read_verdict, same_numbers
from lyceum.papers.deepmath_103k.tasks_curated import Curated
from lyceum.recipe.schema import load_recipe
from lyceum.training.train import check, train
from lyceum.utils.errors import RecipeError, RunError

EVALUATED = ["Ann has 3 pens and buys 4 pens. How many pens has Ann?", "Bob runs 5 laps a day. How many in 6 days?"]
PARAPHRASE = "Buying 4 pens, Ann, who has 3 pens, has how many?"
OTHER_NUMBERS = "Ann has 2 pens and buys 9 pens. How many pens has Ann?"
UNLIKE = "What is the square of 12?"
ROWS = [
    {"prompt": PARAPHRASE, "answer": "7"},
    {"prompt": OTHER_NUMBERS, "answer": "11"},
    {"prompt": UNLIKE, "answer": "144"},
]


def written(file: Path, rows) -> str:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(file)


def curated(folder: Path, *, rows=ROWS, **more) -> Curated:
    train = {"kind": "dataset", "path": written(folder / "train.jsonl", rows), "heldout_share": 0}
    evaluated = [{"prompt": text, "answer": "1"} for text in EVALUATED]
    against = {"kind": "dataset", "path": written(folder / "evaluated.jsonl", evaluated)}
    return Curated.model_validate({"kind": "curated", "tasks": train, "against": against} | more)


def prompts(source) -> list[str]:
    return [source[i].messages[-1]["content"] for i in range(len(source))]


def near(**more):
    return {"words": 1, "same_from": None} | more


def reads(asked) -> str:
    """The problems in a question to a judge, without the instructions before them."""
    content = asked["messages"][0]["content"]
    assert content.startswith(QUESTION)
    return content.removeprefix(QUESTION).partition("Problem A:")[2]


def test_a_copy_is_left_out_by_its_likeness_alone(tmp_path):
    rows = [{"prompt": f"Please: {EVALUATED[0]}", "answer": "7"}, *ROWS]
    source = curated(tmp_path, rows=rows, near={"words": 8}).build("train", 0)
    # At 8 words only what was copied is alike: neither the paraphrase nor other numbers.
    assert prompts(source) == [PARAPHRASE, OTHER_NUMBERS, UNLIKE]
    assert left_out(source).chosen == {"alike": 1, "judged": 0, "unread": 0, "disputed": 0}


def test_no_likeness_tells_a_paraphrase_from_other_numbers_and_a_judge_does(tmp_path):
    by_likeness = curated(tmp_path, near={"words": 1, "same_from": 0.6}).build("train", 0)
    assert prompts(by_likeness) == [UNLIKE]
    by_rule = curated(tmp_path, near=near(judge={"rule": "numbers"})).build("train", 0)
    assert prompts(by_rule) == [OTHER_NUMBERS, UNLIKE]
    assert left_out(by_rule).chosen == {"alike": 0, "judged": 1, "unread": 0, "disputed": 0}
    assert "is judged to be 'Ann has 3 pens" in left_out(by_rule).not_taken[0]


def test_a_model_is_asked_in_both_orders_and_one_yes_is_enough(tmp_path):
    def prefers_the_second(asked):
        first, _, second = reads(asked).partition("Problem B:")
        return says("They differ.\nsame: no" if "Buying" not in second or "5 laps" in first else "same: yes")

    judge = {"model": "judge"}
    with Server(prefers_the_second) as server:
        endpoint = judge | {"url": server.url, "retries": 0}
        settings = near(nearest=2, judge={"endpoint": endpoint, "replies": str(tmp_path / "replies")})
        source = curated(tmp_path, near=settings).build("train", 0)
        assert prompts(source) == [OTHER_NUMBERS, UNLIKE]
        calls = len(server.asked)
        # A no is asked for twice, of each of the neighbours; the paraphrase has its yes at the second question.
        of_paraphrase = [asked for _, _, asked in server.asked if "Buying" in reads(asked)]
        assert len(of_paraphrase) == 2
        # The same tasks again, as a resumed run makes them, ask nothing.
        assert prompts(curated(tmp_path, near=settings).build("train", 0)) == prompts(source)
        assert len(server.asked) == calls
        once = near(nearest=2, judge={"endpoint": endpoint, "replies": str(tmp_path / "other"), "both_orders": False})
        assert prompts(curated(tmp_path, near=once).build("train", 0)) == [PARAPHRASE, OTHER_NUMBERS, UNLIKE]


def test_what_no_reply_can_be_read_of_is_left_out_and_counted_apart(tmp_path):
    with Server(says("I cannot say.")) as server:
        endpoint = {"url": server.url, "model": "judge", "retries": 0}
        settings = near(nearest=1, judged_from=0.5, judge={"endpoint": endpoint, "replies": str(tmp_path / "replies")})
        source = curated(tmp_path, near=settings).build("train", 0)
        assert prompts(source) == [UNLIKE]
        assert left_out(source).chosen["unread"] == 2


def test_an_endpoint_that_fails_ends_the_command(tmp_path):
    with Server((500, {})) as server:
        endpoint = {"url": server.url, "model": "judge", "retries": 0}
        settings = near(judge={"endpoint": endpoint, "replies": str(tmp_path / "replies")})
        source = curated(tmp_path, near=settings).build("train", 0)
        with pytest.raises(RunError, match="HTTP status 500"):
            len(source)


def test_a_frozen_model_judges_too(tmp_path):
    # One of random weights writes nothing that can be read: all of which it is asked is left out.
    model, tokenizer = build_scratch(seed=0)
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    judge = {"model": str(tmp_path / "model"), "max_reply_tokens": 4, "question": "Same?", "both_orders": False}
    rows = [{"prompt": "1+2=", "answer": "3"}, {"prompt": "no", "answer": "4"}]
    settings = curated(tmp_path, rows=rows, near=near(nearest=1, judge=judge))
    written(tmp_path / "evaluated.jsonl", [{"prompt": "2+1=", "answer": "3"}])
    source = settings.build("train", 0)
    assert (prompts(source), left_out(source).chosen["unread"]) == (["no"], 1)


@pytest.mark.parametrize(
    ("reply", "verdict"),
    [
        ("same: yes", True),
        ("Well.\n**Same: No.**", False),
        ("same: yes\nor not", None),
        ("same: perhaps", None),
        ("", None),
    ],
)
def test_the_verdict_is_the_last_line(reply, verdict):
    assert read_verdict(reply) is verdict


def test_the_same_numbers_have_the_same_signs_in_any_order():
    assert same_numbers("37+8-2=", "37-2+8~lr=")
    assert not same_numbers("37+8-2=", "37+2-8=")
    assert not same_numbers("3+3=", "3+3+3=")
    assert not same_numbers("no number", "none at all")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "got nobody"),
        ({"rule": "numbers", "model": "base"}, "got model and rule"),
        ({"endpoint": {"url": "http://localhost/v1", "model": "m"}}, "replies: got null"),
        ({"rule": "numbers", "form": "turns"}, "form: got 'turns'"),
    ],
)
def test_a_judge_is_one(given, says):
    with pytest.raises(ValidationError, match=says):
        SameProblem.model_validate(given)


def test_somebody_decides(tmp_path):
    with pytest.raises(ValidationError, match="same_from: got null without a judge"):
        curated(tmp_path, near={"same_from": None})


def test_solutions_have_to_be_right_by_the_tasks_own_verifier(tmp_path):
    def row(answer, *solutions):
        return {"prompt": f"{answer}?", "answer": answer, "solutions": [f"\\boxed{{{text}}}" for text in solutions]}

    rows = [row("1/2", "0.5", "\\frac12", "1/2"), row("3", "3", "3", "4"), row("5", "5", "5"), row("6", "6", "6", "6")]
    source = curated(tmp_path, rows=rows, near=None, solutions={"columns": ["solutions"]}).build("train", 0)
    assert prompts(source) == ["1/2?", "6?"]
    found = left_out(source)
    assert found.chosen["disputed"] == 2
    assert "2 of 3 solutions have its answer" in found.not_taken[0]
    assert "2 solutions in solutions, not 3" in found.not_taken[1]


def test_nothing_left_is_refused_in_a_line(tmp_path):
    source = curated(tmp_path, rows=ROWS[:1], near=near(judge={"rule": "numbers"})).build("train", 0)
    with pytest.raises(RecipeError, match="every task is left out, the first are"):
        len(source)


def test_the_rest_is_as_it_was(tmp_path):
    settings = curated(tmp_path, near=near(judge={"rule": "numbers"}))
    source, plain = settings.build("train", 0), settings.tasks.build("train", 0)
    assert [task.id for task in source] == [plain[i].id for i in (1, 2)]
    assert source.row(0) == ROWS[1]
    assert source.imitated(source[1]) == plain.imitated(plain[2])
    assert sources_of(source) == [source.source]
    assert isinstance(of_rows(source)[0], FromRows)
    # Rows that are left out by others afterwards do not move what was chosen.
    asked = prompt_hashes(source)
    apart = without(source, asked[1:2])
    assert prompts(apart) == [UNLIKE]
    assert left_out(apart).chosen["judged"] == left_out(apart).shared == 1


def test_held_out_tasks_are_the_sources_own_and_nothing_is_compared_for_a_grader(tmp_path):
    with Server((500, {})) as server:
        judge = {"endpoint": {"url": server.url, "model": "judge"}, "replies": str(tmp_path / "replies")}
        settings = Curated.model_validate({"tasks": {"kind": "chain"}, "near": near(judge=judge)})
        heldout = kinds("tasks")["chain"]().build("heldout", 0)
        assert settings.build("heldout", 0)[3] == heldout[3]
        settings.build("train", 0).grader()
        assert server.asked == []


def test_generated_tasks_are_compared_with_so_many_of_their_held_out_ones():
    tasks = {"kind": "chain", "levels": [1], "size": 300}
    settings = Curated.model_validate({"tasks": tasks, "benchmark": 200, "near": near(judge={"rule": "numbers"})})
    source, plain = settings.build("train", 0), settings.tasks.build("train", 0)
    assert prompts(source) == prompts(plain)  # of one operation there is one order
    assert left_out(source) == LeftOut()


def test_the_first_steps_metrics_and_the_summary_say_what_was_left_out(tmp_path, caplog):
    keys = ["steps=2", "tasks_per_step=2", "evaluate.n=0", "track=[]", f"output={tmp_path}", "name=run"]
    tasks = {
        "kind": "curated",
        "tasks": {"kind": "crawled-chains", "size": 60},
        "near": near(judge={"rule": "numbers"}),
    }
    recipe = load_recipe("grpo", [*keys, ("tasks", tasks)])
    source, _ = check(recipe)
    run = train(recipe)
    first, second = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert first["tasks/judged"] == left_out(source).chosen["judged"] > 0
    assert first["tasks/alike"] == first["tasks/unread"] == first["tasks/disputed"] == 0
    assert "tasks/judged" not in second
    summary = json.loads((run / "summary.json").read_text())["left_out"]
    assert summary["chosen"]["judged"] == first["tasks/judged"]
    assert summary["not_taken"][0] in caplog.text
