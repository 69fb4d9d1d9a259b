"""Everything that cannot work is said before a model loads, with exit code 2, and nothing is written over."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path

import pytest

from lyceum.cli import main
from lyceum.models.scratch import build_scratch

SMALL = ["steps=1", "tasks_per_step=2", "evaluate.n=2", "evaluate.samples=2", "evaluate.k=[1]", "model=scratch"]


@pytest.fixture(autouse=True)
def no_model_is_loaded(monkeypatch, tmp_path):
    def loaded(*args, **kwargs):
        pytest.fail("a model was loaded")

    for place in ("lyceum.training.train", "lyceum.analysis.measure", "lyceum.api", "lyceum.models.load"):
        monkeypatch.setattr(f"{place}.load_policy", loaded)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "not-a-folder").write_text("")


def refused(capsys, *argv: str) -> str:
    """What was said; the exit code is 2, nothing but an empty run folder was written, and there is no traceback."""
    assert main(list(argv)) == 2
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    written = [path for path in Path.cwd().glob("runs/**/*") if path.is_file()]
    assert written == []
    return " ".join((out + err).split())


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    """A model folder: small, and with a context of 64 tokens."""
    folder = tmp_path_factory.mktemp("model")
    module, tokenizer = build_scratch(width=16, layers=1, heads=2, feed_forward=32, context=64)
    module.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def rows(path: Path, *found: dict) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in found))
    return str(path)


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (["stepz=3"], "stepz: unknown key (did you mean 'steps'?)"),
        (["objective.clip_hihg=0.3"], "objective.clip_hihg: unknown key (did you mean 'clip_high'?)"),
        (["tasks.levls=[1]"], "tasks.levls: unknown key (did you mean 'levels'?)"),
        (["steps=many"], "steps: got 'many'"),
        (["learner.lr=-1"], "learner.lr: got -1"),
        (["credit=grop"], "credit.kind: got 'grop' (did you mean 'group'?)"),
        (["guidance=[begun]"], "guidance.0.kind: got 'begun', which is called 'prefix' now"),
        (["objective=guide"], "objective.kind: got 'guide', which is called 'guide-grpo' now"),
        (["rollout.samples=1"], "rollout.samples: got 1, but credit.kind 'group' compares"),
        (["credit=gae"], "objective.value_coefficient: got 0, but credit.kind 'gae'"),
        (["objective.aggregate=constant"], "constant: got None with aggregate 'constant'"),
        (["model=no/such/folder"], "model.path: got 'no/such/folder'"),
        (["tasks=missing.jsonl"], "tasks.path: got 'missing.jsonl', which does not exist"),
        (["tasks=chian"], "tasks.kind: got 'chian' (did you mean 'chain'?)"),
        (["steps"], "override: got 'steps'; allowed: key=value"),
        (["trust_code=perhaps"], "trust_code: got 'perhaps'"),
        (["stages.3.steps=1"], "stages.3: got '3'; allowed: 0 to 0"),
        (["stages={kind: online}", "steps=2"], "stages: got {'kind': 'online'}; allowed: a list, such as"),
        (
            ["evaluate.sampling.temprature=1"],
            "temprature: unknown key (did you mean 'temperature'?)",
        ),
        (["model.lora.rnak=1"], "model.lora.rnak: unknown key (did you mean 'rank'?)"),
        (["evaluate.k=[0]"], "evaluate.k.0: got 0"),
        (["evaluate.samples=1001"], "evaluate.samples: got 1001; allowed: 1000 or less"),
        (["learner.lr=.inf"], "learner.lr: got inf"),
        (["learner=null"], "learner: got None; allowed: a kind, or a mapping with a kind"),
        (["guidance=scaffold"], "guidance: got 'scaffold'; allowed: a list"),
        (["rollout.sampling=5"], "rollout.sampling: got 5; allowed: constraint, max_completion_tokens, min_p, stop"),
        (["model="], "model.path: got ''"),
        (["steps=1:30"], "steps: got '1:30'; allowed: a whole number"),
        (["credit={kind: [a]}"], "credit.kind: got ['a']; allowed: action-gae, aepo"),
        (["tasks=&a [*a]"], "an alias is inside the value that it refers to"),
        (['output="a\\0b"'], "output: got 'a\\x00b'; allowed: text of Unicode characters, without NUL"),
        ([f"reward={'x' * 5000}.py:f"], "File name too long"),
        (
            ["output=not-a-folder"],
            "output: not-a-folder/grpo cannot be made (Not a directory); allowed: another folder",
        ),
    ],
)
def test_a_wrong_key_names_itself_what_was_given_and_what_is_allowed(capsys, keys, said):
    assert said in refused(capsys, "train", "grpo", *SMALL, *keys)


def test_an_unknown_recipe_names_the_nearest(capsys):
    assert "recipe: got 'gpro' (did you mean 'grpo', 'gspo', 'ghpo'?)" in refused(capsys, "train", "gpro")


def test_a_recipe_file_that_is_no_yaml(capsys, tmp_path):
    (tmp_path / "mine.yaml").write_text("steps: [1")
    assert "mine.yaml is not YAML" in refused(capsys, "train", "mine.yaml")


def test_a_key_that_stands_twice_is_not_silently_its_last_value(capsys, tmp_path):
    (tmp_path / "mine.yaml").write_text("extends: grpo\nseed: 1\nsteps: 3\nseed: 2\n")
    assert "key 'seed' appears twice" in refused(capsys, "train", "mine.yaml")


def test_a_recipe_extends_one_recipe(capsys, tmp_path):
    (tmp_path / "mine.yaml").write_text("extends: [grpo, rloo]\n")
    assert "extends: mine.yaml says ['grpo', 'rloo']; allowed: one" in refused(capsys, "train", "mine.yaml")


def test_a_gpu_that_is_not_there(capsys, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert "model.device: got 'cuda', but torch finds no GPU" in refused(
        capsys, "train", "grpo", *SMALL, "model.device=cuda"
    )


def test_a_folder_without_a_suffix_is_read_as_a_dataset(capsys, tmp_path):
    (tmp_path / "questions").mkdir()
    assert "the folder 'questions' cannot be read" in refused(capsys, "train", "grpo", *SMALL, "tasks=questions")


def test_an_empty_dataset(capsys, tmp_path):
    assert "has no rows" in refused(capsys, "train", "grpo", *SMALL, f"tasks={rows(tmp_path / 'data.jsonl')}")


def test_a_missing_column_names_the_nearest_one_there_is(capsys, tmp_path):
    data = rows(tmp_path / "data.jsonl", *({"text": f"{i}?", "answer": "1"} for i in range(40)))
    said = refused(capsys, "train", "grpo", *SMALL, f"tasks={data}")
    assert "tasks.columns.prompt: line 1 of 'data.jsonl' has no column 'prompt'" in said
    said = refused(capsys, "train", "grpo", *SMALL, f"tasks={data}", "tasks.columns.prompt=txet")
    assert "(did you mean 'text'?)" in said


def test_a_prompt_that_cannot_fit_is_refused_without_its_tokens(capsys, monkeypatch, tmp_path, model):
    # The longest token of this vocabulary has 5 characters: 64 * 5 + 1 characters are more than 64 tokens.
    data = rows(tmp_path / "data.jsonl", *({"prompt": f"{i:0321d}", "answer": "1"} for i in range(40)))
    monkeypatch.setattr("lyceum.models.renderer.Renderer.render", lambda *_: pytest.fail("it was read"))
    said = refused(capsys, "train", "grpo", *SMALL, f"model={model}", f"tasks={data}")
    assert "has 321 characters, but the model's context of 64 tokens holds at most 320" in said


def test_one_prompt_longer_than_the_context_far_down_in_the_rows(capsys, tmp_path, model):
    # 300 short rows and a long one: a look at the first few would find it in the middle of the training.
    long = {"prompt": "9" * 70, "answer": "1"}
    short = [{"prompt": f"{i}+1=", "answer": str(i + 1)} for i in range(300)]
    data = rows(tmp_path / "data.jsonl", *short, long)
    said = refused(capsys, "train", "grpo", *SMALL, f"model={model}", f"tasks={data}")
    assert "has 70 tokens, the model's context 64" in said


def test_the_context_is_read_from_the_models_configuration_too(capsys, tmp_path, model):
    import shutil

    folder = tmp_path / "model"
    shutil.copytree(model, folder)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    settings.pop("model_max_length")  # transformers then says 1e30
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    data = rows(tmp_path / "data.jsonl", *({"prompt": f"{i:070d}", "answer": "1"} for i in range(40)))
    assert "the model's context 64" in refused(capsys, "train", "grpo", *SMALL, f"model={folder}", f"tasks={data}")


def test_a_model_folder_without_a_tokenizer(capsys, tmp_path, model):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text((model / "config.json").read_text())
    assert "has no tokenizer" in refused(capsys, "train", "grpo", *SMALL, f"model={folder}")
    assert "has no tokenizer" in refused(capsys, "eval", str(folder), "--tasks", "chain")


def test_a_models_folder_that_lacks_something_is_refused_by_what_it_lacks(capsys, tmp_path, model):
    import shutil

    shutil.copytree(model, tmp_path / "run" / "model")
    said = refused(capsys, "train", "grpo", *SMALL, "model=run")
    assert "run has no config.json" in said
    assert "(did you mean 'run/model'?)" in said
    (tmp_path / "run/model/model.safetensors").unlink()
    assert "run/model has no weights" in refused(capsys, "train", "grpo", *SMALL, "model=run/model")
    (tmp_path / "broken.gguf").write_bytes(b"GGUF nonsense")
    assert "the tokenizer of broken.gguf cannot be" in refused(capsys, "train", "grpo", *SMALL, "model=broken.gguf")


def test_a_vocabulary_that_is_larger_than_the_model(capsys, tmp_path, model):
    import shutil

    folder = tmp_path / "model"
    shutil.copytree(model, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"vocab_size": 50}))
    said = refused(capsys, "train", "grpo", *SMALL, f"model={folder}")
    assert "the vocabulary does not fit: the tokenizer of" in said
    assert "has token ids up to 98, the model embeds 50" in said


def test_a_character_that_the_vocabulary_lacks(capsys, tmp_path):
    data = rows(tmp_path / "data.jsonl", *({"prompt": f"{i} €", "answer": "1"} for i in range(40)))
    assert "no token for: '€'" in refused(capsys, "train", "grpo", *SMALL, f"tasks={data}")


def test_tasks_without_a_demonstration_cannot_be_imitated(capsys, tmp_path):
    data = rows(tmp_path / "data.jsonl", *({"prompt": f"{i}+1=", "answer": ["1", "one"]} for i in range(40)))
    said = refused(capsys, "train", "sft", "steps=1", "model=scratch", f"tasks={data}", "evaluate.n=2")
    assert "has no column 'demonstration'" in said


@pytest.mark.parametrize("kind", ["function", "trl", "verl"])
def test_a_recipe_cannot_run_code_that_nobody_typed(capsys, tmp_path, kind):
    (tmp_path / "evil.py").write_text("raise SystemExit('it ran')")
    reward = {"kind": kind, "function": "evil.py:reward"}
    (tmp_path / "mine.yaml").write_text(json.dumps({"extends": "grpo", "reward": [reward]}))
    assert "the recipe wants to run evil.py:reward" in refused(capsys, "train", "mine.yaml", *SMALL)
    verifier = {"tasks": {"kind": "dataset", "path": "data.jsonl", "verifier": reward}}
    (tmp_path / "mine.yaml").write_text(json.dumps({"extends": "grpo", **verifier}))
    assert "the recipe wants to run evil.py:reward" in refused(capsys, "train", "mine.yaml", *SMALL)


@pytest.mark.parametrize("trust", [{"trust_code": True}, {"model": {"trust_remote_code": True}}])
def test_a_recipe_cannot_trust_itself(capsys, tmp_path, trust):
    (tmp_path / "mine.yaml").write_text(json.dumps({"extends": "grpo", **trust}))
    assert "a recipe cannot trust itself" in refused(capsys, "train", "mine.yaml")


def test_a_run_that_is_there_is_not_written_over(capsys, tmp_path):
    run = tmp_path / "runs" / "grpo"
    run.mkdir(parents=True)
    (run / "notes.txt").write_text("mine")
    assert main(["train", "grpo", *SMALL]) == 2
    assert "is not a run" in capsys.readouterr().err
    assert [path.name for path in run.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["eval", "scratch", "--k", "1,x"], "--k: got '1,x'"),
        (["eval", "scratch", "--k", "0"], "k: got [0]; allowed: numbers of 1 or more"),
        (["eval", "scratch", "--k", "8", "--samples", "4"], "samples: got 4, but k is up to 8"),
        (["eval", "scratch", "--temperature", "-1"], "evaluate.sampling.temperature: got -1.0"),
        (["eval", "scratch", "--tasks", "missing.jsonl"], "'missing.jsonl', which does not exist"),
        (["eval", "scratch", "--tasks", "reasoning-gym:chain_summ"], "(did you mean 'chain_sum'?)"),
        (["eval", "scratch", "tasks.levls=[1]"], "tasks.levls: unknown key"),
        (["eval", str(files("lyceum.models") / "base")], "is not a run with its own tasks"),
        (["eval", "scratch", "--n", "0"], "n: got 0"),
        (["eval", "scratch", "--k", "2000"], "samples: got 2000 per task; allowed: 1000 or fewer"),
        (["eval", "scratch", "--output", "."], "output: got '.', but . is a folder; allowed: a file to write"),
        (["eval", "scratch", "--output", "not-a-folder/f.json"], "not-a-folder is a file; allowed: a file to write"),
        (
            ["eval", "scratch", "name=x"],
            "name: unknown key; allowed: model, tasks, reward, engine, environment, trust_code, temperature",
        ),
        (["eval", "scratch", "tempreature=1"], "tempreature: unknown key (did you mean 'temperature'?)"),
        (["eval", "scratch", "evaluate.n=3"], "evaluate.n: unknown key (here it is the option --n); allowed: model"),
        (["eval", "scratch", "model=base"], "model: got 'base' as a key; allowed: the model's name before the keys"),
        (["eval", "scratch", "tasks=cliff", "--tasks", "chain"], "tasks: got 'cliff' as a key, and 'chain' before it"),
        (["eval", "nowhere"], "model.path: got 'nowhere'"),
        (["compare", "grpo", "--name", "../x"], "name: got '../x'; allowed: letters"),
        (["compare", "grpo", "grpo@a b"], "label: got 'a b'; allowed: letters"),
        (["compare", "grpo", "rloo", "rolo:steps=2"], "rolo: no such recipe here (did you mean 'rloo'?)"),
        (["compare", "grpo", "--seeds", "0"], "seeds: got 0"),
        (["compare", "grpo", "--seeds", "99999999999"], "seeds: got 99999999999; allowed: 1 to 1000"),
        (["compare", "grpo", "--tokens", "9" * 30], "allowed: 1 to 1000000000000000"),
        (["compare", "grpo", "grpo@easy", "easy:tasks.levels=[1]"], "tasks: recipe 'easy' has levels [1], 'grpo' has"),
        (["compare", "grpo", "sft", "--tokens", "100"], "has a stage of kind 'sft', which samples nothing"),
        (["compare", "grpo", "output=there"], "output: got 'there' as a recipe's key; allowed: --output DIR"),
        (["compare", "grpo", "name=x"], "name: got 'x' as a recipe's key; allowed: --name NAME"),
        (["compare", "grpo", "grpo:label=x"], "grpo:label: got 'x' as a recipe's key; allowed: RECIPE@LABEL"),
        (
            ["compare", "grpo", "max_tokens=9", "--tokens", "100"],
            "max_tokens: got 9 as a recipe's key; allowed: --tokens",
        ),
        (
            ["compare", "grpo", "rloo", "rloo:evaluate.n=4"],
            "rloo:evaluate.n: got 4 for 'rloo' alone; allowed: evaluate.n=",
        ),
        (["recipes", "shwo", "grpo"], "recipes: got 'shwo grpo'"),
        (["components", "credits"], "slot: got 'credits' (did you mean 'credit'?)"),
        (["components", "credit", "gea"], "kind: got 'gea' (did you mean 'gae'?)"),
        (["view", "runs/none"], "run: runs/none is not a run's folder"),
        (["train"], "Missing argument 'recipe'"),
        (["train", "grpo", "--no-such-option"], "No such option: --no-such-option"),
        (["tran", "grpo"], "No such command 'tran'"),
    ],
)
def test_every_command_says_what_is_wrong(capsys, argv, said):
    assert said in refused(capsys, *argv)


@pytest.mark.parametrize(
    "argv", [["train", "gpro"], ["eval", "scratch", "--k", "x"], ["view", "none"], ["train", "-x"]]
)
def test_errors_are_json_for_machines(capsys, argv):
    assert main([*argv, "--json"]) == 2
    document = json.loads(capsys.readouterr().out)
    assert document["error"]
    assert all(isinstance(line, str) for line in document["error"])
