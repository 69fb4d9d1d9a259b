import pytest
from huggingface_hub import HfApi, constants
from huggingface_hub.errors import RepositoryNotFoundError

from lyceum.core.hub import check_on_hub
from lyceum.utils.errors import RecipeError


class NotFound(RepositoryNotFoundError):
    def __init__(self, name):  # the hub's own takes a response
        Exception.__init__(self, name)


@pytest.fixture(autouse=True)
def hub(monkeypatch):
    """Answers without a network; ``asked`` are the names that were asked for."""
    asked = []

    def info(self, name, *, timeout):
        asked.append(name)
        if name == "owner/there":
            return
        if name == "owner/offline":
            raise OSError("no network")
        raise NotFound(name)

    for what in ("model", "dataset"):
        monkeypatch.setattr(HfApi, f"{what}_info", info)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    check_on_hub.cache_clear()
    yield asked
    check_on_hub.cache_clear()


def test_a_name_on_the_hub_is_asked_for_once(hub):
    for _ in range(2):
        check_on_hub("model.path", "owner/there", "model")
    assert hub == ["owner/there"]


@pytest.mark.parametrize("what", ["model", "dataset"])
@pytest.mark.parametrize(
    ("name", "line", "asks"),
    [
        (
            "models/smollm2-135m-instruct",
            "smollm2-135m-instruct; in a clone make smollm2",
            False,
        ),
        ("runs/mine", "there is no file or folder runs/mine", False),
        ("here/mine", "there is no file or folder here/mine", False),
        ("!!owner/gone", "it can be no name on the hub", False),
        ("owner/gone", "and no such", True),
        ("owner/offline", "the hub cannot be asked for it: OSError: no network", True),
    ],
)
def test_what_is_not_there_is_said_at_once(hub, what, name, line, asks, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    with pytest.raises(RecipeError, match=line):
        check_on_hub("key", name, what)
    assert bool(hub) == asks


def test_offline_the_hub_is_not_asked(hub, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(RecipeError, match="HF_HUB_OFFLINE is set"):
        check_on_hub("key", "owner/gone", "model")
    assert hub == []
