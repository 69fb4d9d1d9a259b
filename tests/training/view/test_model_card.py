"""The README.md beside a trained model: what it says, and that its own block trains again."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from lyceum.recipe.schema import load_recipe
from lyceum.training.view.model_card import model_card

HALF = {"mean": 0.5, "low": 0.25, "high": 0.75}
SUMMARY: dict[str, Any] = {
    "before": {"overall": HALF, "tasks": 4, "samples": 8},
    "after": {"overall": {"mean": 0.75, "low": 0.5, "high": 1.0}, "tasks": 4, "samples": 8},
    "steps": 20,
    "tokens_sampled": 12345,
    "learnt": True,
    "versions": {"lyceum": "0.1.0", "torch": "2.13.0", "command": "/home/me/secret/train.py", "gpu": None},
    "seconds": {"load": 1.5},
}


def metadata(card: str) -> dict[str, Any]:
    return yaml.safe_load(card.split("---\n")[1])


def block(card: str) -> str:
    (fence, text) = re.findall(r"^(`{3,})yaml\n(.*?)^\1$", card, re.MULTILINE | re.DOTALL)[0]
    assert fence
    return text


def test_a_card_has_figures_cost_versions_and_nothing_of_the_machine():
    card = model_card(load_recipe("grpo", ["output=/home/me/secret/runs", "name=mine"]).resolved(), SUMMARY)
    assert "| one sample | 50.0 % [25.0, 75.0] | 75.0 % [50.0, 100.0] |" in card
    assert "20 steps, 12,345 tokens sampled" in card
    assert "Versions: lyceum 0.1.0, torch 2.13.0." in card
    assert "secret" not in card
    assert "mine" not in card
    assert "nothing was learnt" not in card
    assert "nothing was learnt" in model_card(load_recipe("grpo").resolved(), SUMMARY | {"learnt": False})
    assert "Not evaluated." in model_card(load_recipe("grpo").resolved(), {})


def test_the_recipe_of_a_card_is_the_recipe_of_the_run(tmp_path: Path):
    recipe = load_recipe("grpo", ["steps=7", "model.seed=3", "objective.clip_high=0.28"])
    (tmp_path / "recipe.yaml").write_text(block(model_card(recipe.resolved(), SUMMARY)))
    again = load_recipe(str(tmp_path / "recipe.yaml"), [("name", recipe.name), ("label", recipe.label)])
    assert again == recipe


def test_what_only_a_command_line_may_trust_is_on_the_command_line(tmp_path: Path):
    given = load_recipe("grpo", [("trust_code", True), ("model.trust_remote_code", True)])
    card = model_card(given.resolved(), SUMMARY)
    assert "lyceum train recipe.yaml trust_code=true model.trust_remote_code=true --name again" in card
    (tmp_path / "recipe.yaml").write_text(block(card))
    load_recipe(str(tmp_path / "recipe.yaml"))


def test_the_hub_is_told_of_names_on_the_hub_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    resolved = load_recipe("grpo").resolved()
    for path, told in (("owner/name", "owner/name"), ("models/mine", None), ("base", None), ("./a/b", None)):
        (tmp_path / "models/mine").mkdir(parents=True, exist_ok=True)
        card = model_card(resolved | {"model": resolved["model"] | {"path": path}}, SUMMARY)
        assert metadata(card).get("base_model") == told
    tasks = {"kind": "dataset", "path": "owner/data"}
    assert metadata(model_card(resolved | {"tasks": tasks}, SUMMARY))["datasets"] == ["owner/data"]


@pytest.mark.parametrize("name", ["a`b", "```\n# mine", "<script>", "---\nlicense: mit", "| a |"])
def test_a_hostile_text_stays_a_text(name: str):
    resolved = load_recipe("grpo").resolved()
    card = model_card(resolved | {"label": name, "title": name, "summary": name}, SUMMARY)
    assert metadata(card) == metadata(model_card(resolved, SUMMARY))
    assert [line for line in card.splitlines() if line.startswith("#")][1:] == ["## Held-out accuracy", "## Again"]
    assert yaml.safe_load(block(card))["title"] == name
