"""Arguments of a wrong type or name are refused by name before anything runs, in each function of ``import lyceum``."""

import inspect
import pickle

import pytest

import lyceum
from lyceum.utils.errors import RecipeError

ROWS = [{"prompt": "1+1=", "completion": "2", "answer": "2"}]
WHOLE = "a whole number"


def rows_of(source):
    return ROWS


class Lazy:
    """As a polars.LazyFrame."""

    def collect(self):
        return ROWS


class Indexed:
    """As a torch.utils.data.Dataset."""

    def __len__(self):
        return 1

    def __getitem__(self, number):
        return ROWS[number]


WRONG = [
    ("train", {"progress": "off"}, "progress: got 'off'; allowed: auto, live, plain, json, silent"),
    ("train", {"resum": True}, "resum: unknown argument of lyceum.train (did you mean 'resume'?)"),
    ("train", {"recipe": ["grpo"]}, "recipe: got ['grpo']; allowed: a recipe's name or file"),
    ("train", {"overrides": "steps=3"}, "overrides: got 'steps=3'; allowed: a list of texts, such as [\"steps=50\"]"),
    ("train", {"overrides": ROWS}, 'allowed: a list of texts, such as ["steps=50"]; rows are tasks=ROWS'),
    ("boundary", {"models": "base", "overrides": "runs/a"}, "; models are one list, lyceum.boundary([BASE, MODEL])"),
    ("train", {"recipe": lyceum.load_recipe("grpo"), "seed": 1}, "allowed: name=NAME, or load_recipe(NAME, overrides)"),
    ("train", {"resume": "yes"}, "resume: got 'yes'; allowed: True, False or 'auto'"),
    ("train", {"began": 5}, "began: got 5; allowed: a function"),
    ("train", {"train_dataset": ROWS}, "train_dataset: unknown key (tasks is TRL's train_dataset)"),
    ("train", {"beta": 0.1}, "beta: unknown key (objective.kl.coefficient is TRL's beta"),
    ("train", {"reward_funcs": [len]}, "reward_funcs: unknown key (reward is TRL's reward_funcs"),
    ("train", {"tasks": ["1+1=", "2+2="]}, 'allowed: a list of rows, such as {"prompt": "1+1=", "answer": "..."}'),
    ("train", {"tasks": rows_of}, "tasks: got the function rows_of; allowed: what it returns, rows_of()"),
    ("train", {"tasks": Lazy()}, "tasks: got a Lazy, which is not computed yet; allowed: Lazy.collect()"),
    ("train", {"tasks": Indexed()}, "cannot be iterated over; allowed: [data[i] for i in range(len(data))]"),
    ("train", {"tasks": [("1+1=", "2")]}, 'with a tuple in it; allowed: a list of mappings such as {"prompt": "1+1="'),
    ("train", {"tasks": [ROWS, "chain"]}, "tasks: got rows within a mixture; allowed: all rows in one list"),
    ("evaluate", {"tasks": {"kind": "mixture", "parts": [{"tasks": ROWS}]}}, "tasks: got rows within a mixture"),
    ("train", {"tasks": 5}, "tasks: got a value of type 'int'; allowed: a kind, a file, settings, or rows: a list"),
    ("train", {"reward": rows_of}, "reward.function: 'rows_of' asks for 'source'; allowed: level"),
    ("train", {"args": {}}, "args: unknown key (TRL's args: each setting is a keyword of its own"),
    ("train", {"tasks": {"prompt": ["1+1="]}}, "tasks: got a mapping of columns; allowed: rows, such as"),
    ("train", {"reward": 5}, "reward: got 5; allowed: a kind, FILE.py:FUNCTION, settings, or a list of these"),
    (
        "train",
        {"model": 5},
        "model: got 5; allowed: base, base-stories, scratch, scratch-pictures, scratch-stories, scratch-worlds, "
        "scratch-archive, a folder, owner/name of a hub",
    ),
    ("evaluate", {"progress": "off"}, "progress: got 'off'; allowed: auto, live, plain, json, silent"),
    ("evaluate", {"k": 8}, "k: got 8; allowed: a list of whole numbers, such as [1, 8]"),
    ("evaluate", {"k": "1,8"}, "k: got '1,8'; allowed: a list of whole numbers"),
    ("evaluate", {"n": "20"}, f"n: got '20'; allowed: {WHOLE}"),
    ("evaluate", {"greedy": "no"}, "greedy: got 'no'; allowed: True or False"),
    ("evaluate", {"output": 5}, "output: got 5; allowed: a path, or None"),
    ("evaluate", {"sample": 4}, "sample: unknown argument of lyceum.evaluate (did you mean 'samples'?)"),
    (
        "evaluate",
        {"num_samples": 4, "max_new_tokens": 9},
        "num_samples: unknown key (samples, on the command line --samples, is other libraries' num_samples)",
    ),
    ("evaluate", {"num_samples": 4, "max_new_tokens": 9}, "(max_completion_tokens is OpenRLHF's max_new_tokens)"),
    ("search", {"n_samples": 4}, "(sizes, on the command line --sizes, is other libraries' num_samples)"),
    ("grade", {"file": 5}, "file: got 5; allowed: a file, rows, or a run"),
    ("grade", {"file": ROWS, "reward": "math", "progress": "off"}, "progress: got 'off'; allowed: auto"),
    ("grade", {"file": ROWS, "rewards": "math"}, "rewards: unknown argument of lyceum.grade (did you mean 'reward'?)"),
    ("grade", {"file": ROWS}, "reward: got none; allowed: a kind, FILE.py:FUNCTION, or a recipe"),
    ("search", {"sizes": 4}, "sizes: got 4; allowed: a list of whole numbers"),
    ("search", {"tokens": 200}, "tokens: got 200; allowed: a list of numbers, such as [200, 800]"),
    ("search", {"value": 5}, "value: got 5; allowed: a kind, a folder, settings, or None"),
    ("compare", {"recipes": "grpo"}, "recipes: got 'grpo'; allowed: a list of texts"),
    (
        "compare",
        {"recipes": "grpo", "overrides": "rloo"},
        "recipes are one list, lyceum.compare([RECIPE, 'rloo'])",
    ),
    ("compare", {"recipes": ["grpo"], "seeds": 1.5}, f"seeds: got 1.5; allowed: {WHOLE}"),
    (
        "compare",
        {"recipes": ["grpo"], "each": {"grpo": "steps=1"}},
        "each: got {'grpo': 'steps=1'}; allowed: a mapping",
    ),
    ("replay", {"run": "runs/none", "step": "first"}, f"step: got 'first'; allowed: {WHOLE}"),
    ("boundary", {"models": 5}, "models: got 5; allowed: a list"),
    (
        "push",
        {"run": "runs/none", "repository": "me/it", "which": "last"},
        "which: got 'last'; allowed: 'model' or 'best'",
    ),
    ("sparsity", {"model": 5}, "model: got 5; allowed: a run, or its folder"),
    ("sparsity", {"base": "base", "model": "base", "atol": "x"}, "atol: got 'x'; allowed: a number"),
    ("doctor", {"samples": "x"}, f"samples: got 'x'; allowed: {WHOLE}"),
    ("push", {"run": "runs/none", "repository": 5}, "repository: got 5; allowed: a text"),
    ("load_recipe", {"name": 5}, "recipe: got 5 with (); allowed: a name or file, and a list of texts"),
]


@pytest.mark.parametrize(("function", "arguments", "said"), WRONG)
def test_a_wrong_argument_is_named_before_anything_runs(function, arguments, said, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for place in ("training.train", "analysis.measure", "analysis.grading.grade", "models.load"):
        monkeypatch.setattr(f"lyceum.{place}.load_policy", lambda *_: pytest.fail("a model was loaded"))
    with pytest.raises(RecipeError) as caught:
        getattr(lyceum, function)(**arguments)
    assert said in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_the_functions_keep_their_signatures_and_can_be_pickled():
    assert list(inspect.signature(lyceum.evaluate).parameters)[:4] == ["model", "tasks", "overrides", "k"]
    assert pickle.loads(pickle.dumps(lyceum.train)) is lyceum.train
