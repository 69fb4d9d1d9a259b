"""``lyceum push``: what reaches the hub, here a local fake of its API, and what is refused before anything does."""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub import constants

from lyceum.analysis.push import push
from lyceum.cli.outcome import main
from lyceum.utils.errors import RecipeError


class FakeHub:
    """Repositories, each private or not, and the files of each."""

    private: dict[str, bool]
    files: dict[str, list[str]]
    fails = False

    def __init__(self) -> None:
        pass

    def repo_exists(self, repo: str) -> bool:
        if self.fails:
            raise ConnectionError("no route")
        return repo in self.private

    def model_info(self, repo: str) -> Any:
        return SimpleNamespace(private=self.private[repo])

    def create_repo(self, repo: str, *, private: bool, exist_ok: bool) -> str:
        self.private.setdefault(repo, private)
        return f"https://hub/{repo}"

    def upload_folder(self, *, repo_id: str, folder_path: Path, allow_patterns: list[str], commit_message: str) -> None:
        names = [file.relative_to(folder_path).as_posix() for file in folder_path.rglob("*") if file.is_file()]
        self.files[repo_id] = sorted(name for name in names if any(fnmatch(name, one) for one in allow_patterns))


@pytest.fixture(autouse=True)
def hub(monkeypatch: pytest.MonkeyPatch) -> type[FakeHub]:
    FakeHub.private, FakeHub.files, FakeHub.fails = {"me/open": False}, {}, False
    monkeypatch.setattr(huggingface_hub, "HfApi", FakeHub)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    return FakeHub


@pytest.fixture
def run(tmp_path: Path) -> Path:
    for name in ("model/config.json", "model/model.safetensors", "model/README.md", "model/.env", "model/notes.key"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}")
    (tmp_path / "summary.json").write_text('{"finished": true}')
    (tmp_path / "recipe.yaml").write_text("{}")
    return tmp_path


def test_a_model_goes_to_a_private_repository_and_nothing_else_of_its_folder_does(run: Path, hub: type[FakeHub]):
    assert push(run, "me/new") == "https://hub/me/new"
    assert hub.private["me/new"] is True
    assert hub.files["me/new"] == ["README.md", "config.json", "model.safetensors"]
    push(run, "me/public", public=True)
    assert hub.private["me/public"] is False


def test_a_public_repository_does_not_get_a_model_that_was_to_be_private(run: Path, hub: type[FakeHub]):
    with pytest.raises(RecipeError, match=r"me/open is there and public, and a private one was asked for; .* --public"):
        push(run, "me/open")
    push(run, "me/new")
    with pytest.raises(RecipeError, match="me/new is there and private"):
        push(run, "me/new", public=True)
    assert list(hub.files) == ["me/new"]


@pytest.mark.parametrize("repo", ["", "me", "me/a/b", "../x", "me/a b", "me/" + "a" * 200])
def test_what_is_no_name_is_refused(run: Path, hub: type[FakeHub], repo: str):
    with pytest.raises(RecipeError, match="which is no name on the hub; allowed: owner/name"):
        push(run, repo)
    assert not hub.files


def test_runs_without_the_model_are_refused(run: Path, hub: type[FakeHub]):
    with pytest.raises(RecipeError, match=r"no model in best/; a run keeps it with evaluate.save_best=true"):
        push(run, "me/new", which="best")
    (run / "summary.json").write_text("{}")
    with pytest.raises(RecipeError, match="has not finished"):
        push(run, "me/new")
    with pytest.raises(RecipeError, match="is not a run's folder"):
        push(run / "model", "me/new")
    assert not hub.files


def test_a_dry_run_shows_what_would_go_and_asks_nothing(
    run: Path, hub: type[FakeHub], capsys: pytest.CaptureFixture[str]
):
    hub.fails = True
    push_it = ["push", str(run), "me/new", "--dry-run"]
    assert main(push_it) == 0
    out = capsys.readouterr().out.splitlines()
    assert [line.split()[-1] for line in out[:-2]] == ["README.md", "config.json", "model.safetensors"]  # and no .env
    assert "6 B" in out[-2]  # of two each
    assert "you alone could read" in out[-2]
    assert not hub.files
    assert main([*push_it, "--best"]) == 2
    assert "no model in best/" in capsys.readouterr().err


def test_the_command_prints_the_address_or_why_not(
    run: Path, hub: type[FakeHub], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    assert main(["push", str(run), "me/new"]) == 0
    assert capsys.readouterr().out == "https://hub/me/new\n"
    hub.fails = True
    assert main(["push", str(run), "me/new"]) == 1
    assert "me/new: the hub refused it or cannot be reached: ConnectionError: no route" in capsys.readouterr().err
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert main(["push", str(run), "me/new"]) == 2
