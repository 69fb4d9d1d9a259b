"""What needs neither torch nor transformers loads neither: recipes, their mistakes, lists of what there is."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from lyceum.utils import lazy_imports

HEAVY = ("torch", "transformers", "peft", "tokenizers", "datasets", "pyarrow", "pandas", "scipy", "sklearn", "sympy")


CODES = {
    "from lyceum.cli import main; given = main(['train', 'grpo', 'lr=1'])": 2,
    "from lyceum.cli import main; given = main(['compare', 'grpo', 'lr=1'])": 2,
    "from lyceum.cli import main; given = main(['eval', 'scratch', '--k', 'x'])": 2,
    "from lyceum.cli import main; given = main(['recipes', 'show', 'grpo'])": 0,
    "from lyceum.cli import main; given = main(['components'])": 0,
    "import lyceum.recipe.schema as s\nfor name in s.recipe_names(): s.load_recipe(name).resolved()": None,
}
"""What is run, one after another in a process that begins with nothing, and what it gives."""

SCRIPT = """
for code in sys.argv[1:]:
    names = {"given": None}
    exec(code, names)
    print("\\nended:", names["given"], *(name for name in HEAVY if name in sys.modules))
"""


@pytest.fixture(scope="module")
def ended():
    script = f"import sys\nHEAVY = {HEAVY}\n{SCRIPT}"
    done = subprocess.run([sys.executable, "-c", script, *CODES], capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("ended: ")]
    assert len(lines) == len(CODES), done.stderr
    return dict(zip(CODES, lines, strict=True))


@pytest.mark.parametrize(("code", "given"), CODES.items())
def test_a_recipe_is_checked_without_a_models_library(code, given, ended):
    assert ended[code] == f"ended: {given}"


def test_a_lazy_module_is_the_module_itself_once_used(monkeypatch):
    assert lazy_imports.torch.float32 is torch.float32
    monkeypatch.setattr(torch, "added_later", 1, raising=False)
    assert lazy_imports.torch.added_later == 1
    monkeypatch.setattr(lazy_imports.torch, "added_later", 2)
    assert torch.added_later == 2  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(AttributeError, match="no_such_name"):
        lazy_imports.torch.no_such_name  # noqa: B018  # pyright: ignore[reportAttributeAccessIssue]


def test_a_tensor_is_one():
    assert isinstance(torch.zeros(1), lazy_imports.Tensor)
    assert isinstance(torch.nn.Parameter(torch.zeros(1)), lazy_imports.Tensor)
    assert not isinstance([0.0], lazy_imports.Tensor)
