"""Components of the user's own: named by file and class, imported only where the user has typed the name."""

import subprocess
import sys
from typing import Literal

import pytest
import yaml

from lyceum.cli.outcome import main
from lyceum.core import component, own_components
from lyceum.core.own_components import is_code
from lyceum.credit.base import CreditWithKL
from lyceum.recipe.schema import load_recipe, parse
from lyceum.training.train import check
from lyceum.utils.errors import RecipeError

MEDIAN = """
from typing import Literal
from lyceum.core.settings import CreditSettings

open("imported", "a").close()

class Median(CreditSettings):
    '''Each row's reward minus its group's median.'''

    kind: Literal["{kind}"] = "{kind}"
    window: int = 1
    '''How many.'''

    def build(self):
        return None

class NoBuild(CreditSettings):
    kind: Literal["{kind}-unbuilt"] = "{kind}-unbuilt"

class NoKind(CreditSettings):
    def build(self):
        return None

def function():
    return None
"""


@pytest.fixture(autouse=True)
def no_other_test_knows_them(monkeypatch):
    monkeypatch.setattr(own_components, "_loaded", {})
    before = {of for known in component._registry.values() for of in known.values()}
    yield
    for known in component._registry.values():
        for kind in [kind for kind, of in known.items() if own_components.is_own(of) and of not in before]:
            del known[kind]


@pytest.fixture
def file(tmp_path, monkeypatch):
    """A file of components, whose kinds no other test has."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_adv.py").write_text(MEDIAN.format(kind=f"a{abs(hash(tmp_path))}"))
    return tmp_path / "my_adv.py"


def test_a_class_is_named_on_the_command_line(file):
    credit = load_recipe("grpo", ["credit=my_adv.py:Median", "credit.window=3"]).stages[0].credit
    assert (type(credit).__name__, credit.window) == ("Median", 3)


def test_a_recipe_file_is_not_believed(file, tmp_path):
    recipe = tmp_path / "mine.yaml"
    recipe.write_text("extends: grpo\nstages:\n  - credit: {kind: 'my_adv.py:Median', window: 2}\n")
    for keys in ([], ["credit.window=3"], ["title=Median"], ["title=*"]):
        with pytest.raises(RecipeError, match=r"credit\.kind: the recipe wants to run my_adv\.py:Median; .*trust_code"):
            load_recipe(str(recipe), keys)
    assert not (tmp_path / "imported").exists()
    assert load_recipe(str(recipe), ["trust_code=true"]).stages[0].credit.window == 2


def test_the_resolved_recipe_makes_it_again(file, tmp_path):
    recipe = load_recipe("grpo", ["credit=my_adv.py:Median", "credit.window=3"])
    resolved = recipe.resolved()
    assert resolved["stages"][0]["credit"] == {"kind": f"{file}:Median", "window": 3}
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(resolved))
    assert parse(resolved).resolved() == resolved  # as a resumed run reads its own
    own_components._loaded.clear()  # as another process
    with pytest.raises(RecipeError, match="wants to run"):
        load_recipe(str(tmp_path / "recipe.yaml"), ["title=other.py:Median"])
    # The resolved recipe has the file's whole path; what is typed in the second is the same file.
    for key in ("trust_code=true", "title=my_adv.py:Median"):
        assert load_recipe(str(tmp_path / "recipe.yaml"), [key]).resolved()["stages"] == resolved["stages"]
        own_components._loaded.clear()


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("credit=my_adv.py:Medain", r"has no class 'Medain' \(did you mean 'Median'\?\)"),
        ("credit=my_adv.py:function", "a function; allowed: a class that derives from .*CreditSettings or"),
        (
            "objective=my_adv.py:Median",
            "a component of 'credit'; allowed: a class that derives from .*ObjectiveSettings or",
        ),
        ("credit=my_adv.py:NoBuild", r"NoBuild; allowed: a class that also has build\(...\)"),
        ("credit=my_adv.py:NoKind", "NoKind; allowed: a class with a kind, a line such as"),
        ("credit=none.py:Median", "does not exist"),
        ("credit=~nobody-of-this-name/my_adv.py:Median", "does not exist"),
        (f"credit={'a' * 5000}.py:Median", "does not exist"),
        ("credit=my_adv.py:1st", "allowed: path/to/file.py:name or package.module:name"),
        ("credit=my-adv", "leave-one-out.*, FILE.py:CLASS or package.module:CLASS"),
        ("rollout.environment=my_adv.py:Median", "environment"),
    ],
)
def test_what_is_no_component_of_the_slot(file, key, said):
    with pytest.raises(RecipeError, match=said):
        load_recipe("grpo", ["rollout=turns", key])


def test_a_class_where_a_reward_function_is_named_says_how_it_is_given(file):
    with pytest.raises(RecipeError, match=r"a component's class; allowed: .*reward={kind: my_adv.py:Median}"):
        check(load_recipe("grpo", ["reward=my_adv.py:Median"]))


def test_one_of_the_session_says_where_to_put_it(tmp_path):
    class Own(CreditWithKL):
        kind: Literal["own-of-session"] = "own-of-session"

        def build(self):
            raise NotImplementedError

    with pytest.raises(RecipeError, match=r"got the class Own; allowed: an instance, Own\(\.\.\.\)"):
        load_recipe("grpo", [("credit", Own)])
    with pytest.raises(RecipeError, match=r"got Own, a component of 'credit'; allowed: .*ObjectiveSettings"):
        load_recipe("grpo", [("objective", Own())])
    resolved = load_recipe("grpo", [("credit", Own())]).resolved()
    assert resolved["stages"][0]["credit"]["kind"] == "__main__:Own"
    assert type(parse(resolved).stages[0].credit) is Own
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(resolved))
    program = f"import lyceum; lyceum.load_recipe({str(tmp_path / 'recipe.yaml')!r}, ['trust_code=true'])"
    other = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "allowed: the class in a file of its own, and FILE.py:Own in the place of this kind" in other.stderr


def test_one_kind_twice():
    def define(kind):
        values = {"__annotations__": {"kind": Literal[kind]}, "kind": kind, "__module__": __name__}
        return type("Same", (CreditWithKL,), values)

    with pytest.raises(
        RecipeError, match=r"credit kind .group. is lyceum\.credit\.group\.GroupRelative already; allowed"
    ):
        define("group")
    first = define("same-kind-twice")
    assert define("same-kind-twice") is not first  # a cell that is run again


def test_a_shipped_kind_that_is_not_imported_yet_is_taken_too(tmp_path):
    (tmp_path / "my_adv.py").write_text(MEDIAN.format(kind="leave-one-out"))
    program = (
        "from lyceum.recipe.schema import load_recipe\n"
        "try: load_recipe('grpo', ['credit=my_adv.py:Median'])\n"
        "except Exception as error: print(error)\n"
        "print(type(load_recipe('rloo').stages[0].credit).__module__)"
    )
    found = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    first, second = found.stdout.splitlines()[0], found.stdout.splitlines()[-1]
    assert "credit kind 'leave-one-out' is lyceum.credit.leave_one_out." in first
    assert "already; allowed: another kind for" in first
    assert second == "lyceum.credit.leave_one_out"


def test_check_returns_lines(tmp_path):
    class Text(CreditWithKL):
        kind: Literal["text-of-check"] = "text-of-check"

        def build(self):
            raise NotImplementedError

        def check(self, stage):
            return "no good"

    with pytest.raises(RecipeError, match="credit 'text-of-check': check returned 'no good'; allowed: a list of lines"):
        load_recipe("grpo", [("credit", Text())])


def test_its_settings_are_shown(file, capsys):
    assert main(["components", "credit", "my_adv.py:Median"]) == 0
    assert "window" in capsys.readouterr().out


def test_what_looks_like_code():
    assert all(map(is_code, ("a/b c.py:name", "package.module:Name", "__main__:Name")))
    assert not any(map(is_code, ("reasoning-gym:chain_sum", "reasoning_gym:chain_sum", "group", "data.jsonl", None)))
