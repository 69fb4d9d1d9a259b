"""Papers of the user's own are folders: recipes are known by name, components by kind, without being imported."""

import json
import subprocess
import sys

import pytest
import yaml

from lyceum.analysis.papers import found, papers
from lyceum.cli.outcome import main
from lyceum.core import component, own_components, paper_folders
from lyceum.core.component import find, kinds
from lyceum.core.paper_folders import SLOTS, shipped, use
from lyceum.recipe.files import recipe_names
from lyceum.recipe.schema import load_recipe
from lyceum.utils.errors import RecipeError

CREDIT = """
from typing import Literal
from lyceum.core.settings import CreditSettings
{extra}

open("{imported}", "a").close()

class Median(CreditSettings):
    '''Each row's reward minus its group's median.'''

    kind: Literal["{kind}"] = "{kind}"
    window: int = 1
    '''How many.'''

    def build(self):
        return None
"""
RECIPE = """
extends: grpo
title: A paper of tomorrow (Tomorrow)
paper: arXiv:2701.00001
summary: Medians
stages:
  - credit: {{kind: {kind}, window: 2}}
"""


@pytest.fixture(autouse=True)
def no_other_test_knows_them(monkeypatch):
    monkeypatch.setattr(own_components, "_loaded", {})
    monkeypatch.setattr(paper_folders, "_used", [])
    before = {of for known in component._registry.values() for of in known.values()}
    yield
    for known in component._registry.values():
        for kind in [kind for kind, of in known.items() if own_components.is_own(of) and of not in before]:
            del known[kind]


@pytest.fixture
def kind(tmp_path):
    """One that no other test has."""
    return f"k{abs(hash(tmp_path))}"


@pytest.fixture
def folder(tmp_path, kind):
    """A paper's folder, in one of several."""
    made = tmp_path / "mine" / "of_tomorrow"
    made.mkdir(parents=True)
    text = CREDIT.format(kind=kind, imported=tmp_path / "imported", extra="")
    (made / f"credit_{kind}.py").write_text(text)
    (made / "recipe.yaml").write_text(RECIPE.format(kind=kind))
    return made


def test_its_recipe_and_components_are_known_by_name_and_kind(folder, kind, tmp_path):
    assert find("credit", kind) is None
    use(folder.parent)
    assert "of-tomorrow" in recipe_names()
    assert not (tmp_path / "imported").exists(), "listed, and not imported"
    credit = load_recipe("of-tomorrow", ["credit.window=3"]).stages[0].credit
    assert (credit.kind, credit.window) == (kind, 3)
    assert load_recipe("grpo", [f"credit={kind}"]).stages[0].credit.window == 1
    assert kinds("credit")[kind] is type(credit)


def test_the_folder_of_one_paper_may_be_named_too_and_twice(folder):
    use(folder)
    use([folder, folder.parent / "of_tomorrow"])
    assert load_recipe("of-tomorrow").title == "A paper of tomorrow (Tomorrow)"


def test_a_resolved_recipe_names_the_class_by_its_file(folder, kind, tmp_path):
    resolved = load_recipe("of-tomorrow", papers=folder).resolved()
    assert resolved["stages"][0]["credit"]["kind"] == f"{folder / f'credit_{kind}.py'}:Median"
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(resolved))
    code = "import sys, lyceum; r = lyceum.load_recipe(*eval(sys.argv[1])); print(r.stages[0].credit.window)"
    for trust in (f"'{tmp_path / 'recipe.yaml'}', ['trust_code=true']", f"'{tmp_path / 'recipe.yaml'}', []"):
        done = subprocess.run([sys.executable, "-c", code, trust], capture_output=True, text=True, check=False)
        assert done.stdout.strip() == ("2" if "true" in trust else ""), done.stderr
    assert "the recipe wants to run" in done.stderr  # who does not name the folder does not trust it
    assert load_recipe(str(tmp_path / "recipe.yaml"), papers=[folder]).stages[0].credit.window == 2


def test_the_commands_know_it(folder, kind, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["recipes", "--papers", str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["of-tomorrow"]["summary"] == "Medians"
    assert main(["components", "credit", "--papers", "mine", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)["credit"]
    assert (shown[kind]["paper"], shown[kind]["file"]) == ("of-tomorrow", str(folder / f"credit_{kind}.py"))
    assert (shown["group"]["paper"], shown["group"]["file"]) == (None, "credit/group.py")
    assert main(["papers", "2701.00001", "--papers", "mine", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["name"], row["recipes"], row["family"]) == ("Tomorrow", ["of-tomorrow"], "other")
    assert main(["papers", "--papers", "nowhere"]) == 2
    assert "which is no folder; allowed: the folder of a paper with recipe.yaml" in capsys.readouterr().err


def test_its_row_is_on_the_list(folder):
    row = {"id": "tomorrow", "name": "T", "title": "T", "scope": "core", "family": "credit", "state": "works"}
    row |= {"does": "Medians of tomorrow", "arxiv": "2701.00001", "after": "paper", "shown": "mechanism"}
    (folder / "row.json").write_text(json.dumps(row))
    use(folder)
    (paper,) = found("medians of tomorrow", papers())
    assert paper.recipes == ("of-tomorrow",)
    (folder / "row.json").write_text(json.dumps(row | {"state": "good"}))
    with pytest.raises(RecipeError, match=r"row\.json \(tomorrow\): state: Input should be 'works'"):
        papers()


@pytest.mark.parametrize(
    ("file", "says"),
    [
        ("median.py", r"median\.py is no SLOT_KIND\.py; allowed: a slot \(tasks, reward, "),
        ("credits_x.py", r"credits_x\.py is no SLOT_KIND\.py \(did you mean 'credit'\?\)"),
        ("credit_X.py", r"credit_X\.py is no SLOT_KIND\.py"),
        ("credit_group.py", r"credit_group\.py: credit kind 'group' is /.*/lyceum/credit/group\.py already"),
        ("grpo.yaml", r"grpo\.yaml: recipe 'grpo' is /.*/lyceum/recipes/grpo\.yaml already; allowed: another name"),
    ],
)
def test_what_no_paper_has_is_refused_by_its_file(folder, file, says):
    (folder / file).write_text("")
    with pytest.raises(RecipeError, match=says):
        use(folder)


def test_two_folders_with_one_kind(folder, kind, tmp_path):
    use(folder)
    other = tmp_path / "other"
    other.mkdir()
    (other / f"credit_{kind}.py").write_text("")
    with pytest.raises(RecipeError, match=rf"other/credit_{kind}\.py: credit kind '{kind}' is /.*/of_tomorrow/credit_"):
        use(other)


def test_a_file_whose_component_is_another_than_its_name_says(folder, kind):
    (folder / "credit_meant.py").write_text((folder / f"credit_{kind}.py").read_text())
    (folder / f"credit_{kind}.py").unlink()
    use(folder)
    line = rf"credit_meant\.py has credit kind '{kind}'; allowed: by its name one component, credit kind 'meant'"
    with pytest.raises(RecipeError, match=line):
        load_recipe("grpo", ["credit=meant"])


def test_a_helper_beside_it_is_imported_relatively_where_the_folder_is_a_package(folder, kind, tmp_path):
    (folder / "_helper.py").write_text("X = 1\n")
    (folder / "__init__.py").write_text("")
    text = CREDIT.format(kind=kind, imported=tmp_path / "imported", extra="from ._helper import X")
    (folder / f"credit_{kind}.py").write_text(text)
    resolved = load_recipe("of-tomorrow", papers=folder).resolved()
    assert resolved["stages"][0]["credit"]["kind"] == f"{folder / f'credit_{kind}.py'}:Median"


def test_an_installed_package_names_its_papers_by_an_entry_point(folder, kind, tmp_path):
    site = tmp_path / "site-packages"
    package = site / f"p{kind}"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    folder.rename(package / "of_tomorrow")
    (site / "mine-1.0.dist-info").mkdir()
    (site / "mine-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (site / "mine-1.0.dist-info" / "entry_points.txt").write_text(f"[lyceum.papers]\nmine = p{kind}\n")
    code = (
        f"import sys, lyceum; sys.path.insert(0, {str(site)!r}); from lyceum.recipe.schema import parse\n"
        "recipe = lyceum.load_recipe('of-tomorrow'); resolved = recipe.resolved()\n"
        "print(resolved['stages'][0]['credit']['kind'], parse(resolved).stages[0].credit.window)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [f"p{kind}.of_tomorrow.credit_{kind}:Median", "2"]


def test_the_files_of_lyceums_papers_are_named_after_their_kinds():
    for slot in SLOTS:
        kinds(slot)  # refuses one that is not
    assert all(folder.recipes and (folder.path / "__init__.py").is_file() for folder in shipped())


def test_a_mistyped_kind_of_a_paper_imports_no_paper_that_was_not_asked_for():
    code = (
        "import sys; from lyceum.recipe.schema import load_recipe; load_recipe('grpo')\n"
        "print(*[name for name in sys.modules if name.startswith('lyceum.papers.')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
