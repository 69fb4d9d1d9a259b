import sys
from types import SimpleNamespace

import pytest

from lyceum.recipe.schema import load_recipe
from lyceum.run.metrics import Metrics
from lyceum.run.trackers import open_curves, require_login
from lyceum.utils.errors import RecipeError


class Library:
    """What Weights & Biases and trackio have in common, writing down what they are asked."""

    def __init__(self):
        self.runs, self.logged, self.finished = [], [], 0

    def init(self, **settings):
        print("noise")
        self.runs.append(settings)
        return self

    def define_metric(self, *names, step_metric):
        assert (names, step_metric) == (("*",), "step")

    def log(self, numbers, step=None):
        self.logged.append(numbers if step is None else (step, numbers))

    def finish(self):
        print("noise")
        self.finished += 1


@pytest.fixture
def wandb(monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", library := Library())
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    return library


def written(run, kind, steps):
    run.mkdir(exist_ok=True)
    metrics = Metrics(run, open_curves([kind], run, {"seed": 3}))
    for step in steps:
        metrics.append(step, {"loss": 1.0 / step, "stage": "online"})
    metrics.close()


def test_every_figure_of_a_step_is_sent_with_its_step_and_text_is_not(wandb, tmp_path):
    written(tmp_path, "wandb", [1, 2])
    assert wandb.logged == [{"step": 1, "loss": 1.0}, {"step": 2, "loss": 0.5}]
    assert wandb.runs[0]["config"] == {"seed": 3}
    assert (wandb.runs[0]["project"], wandb.runs[0]["name"]) == ("lyceum", tmp_path.name)
    assert wandb.finished == 1


def test_a_resumed_run_goes_on_in_the_same_one(wandb, tmp_path):
    written(tmp_path, "wandb", [1])
    written(tmp_path, "wandb", [1])  # the step is taken again, from an earlier checkpoint
    written(tmp_path / "other", "wandb", [1])
    first, again, other = (run["id"] for run in wandb.runs)
    assert first == again != other
    assert [run["resume"] for run in wandb.runs] == ["allow"] * 3


def test_nothing_is_sent_by_a_run_that_measured_nothing(wandb, tmp_path):
    written(tmp_path, "wandb", [])
    assert wandb.runs == []


def test_a_run_without_a_key_is_refused_before_it_starts(wandb, tmp_path, monkeypatch):
    settings = SimpleNamespace(mode="online", api_key=None, base_url="https://curves.example.org")
    wandb.setup = lambda: SimpleNamespace(settings=settings)
    monkeypatch.setenv("NETRC", str(file := tmp_path / "netrc"))
    file.write_text("machine github.com login user password 1234\n")
    with pytest.raises(RecipeError, match=r"track: got wandb, which has no API key here; allowed: after .*wandb login"):
        require_login(["tensorboard", "wandb"])
    require_login(["tensorboard"])
    file.write_text("machine curves.example.org login user password 1234\n")
    require_login(["wandb"])
    file.unlink()
    for key, value in (("mode", "offline"), ("api_key", "1234")):
        with monkeypatch.context() as patched:
            patched.setattr(settings, key, value)
            require_login(["wandb"])


def test_trackio_is_opened_by_the_runs_name_and_prints_nothing_on_standard_output(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, "trackio", library := Library())
    monkeypatch.setenv("TRACKIO_PROJECT", "sums")
    written(tmp_path, "trackio", [1])
    assert library.logged == [(1, {"loss": 1.0})]  # it has no room for a figure named step
    assert capsys.readouterr().out == ""
    assert library.runs == [{"project": "sums", "name": tmp_path.name, "config": {"seed": 3}, "resume": "allow"}]


def test_a_tracker_that_is_not_installed_is_named_before_anything_is_loaded(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(RecipeError, match=r"track: got \['wandb'\], but wandb cannot be imported; pip install wandb"):
        load_recipe("grpo", ["track=[wandb]"])
