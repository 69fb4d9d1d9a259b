"""What needs neither torch nor transformers loads neither: recipes, their mistakes, lists of what there is."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from lyceum.utils import lazy_imports

HEAVY = ("torch", "transformers", "peft", "tokenizers", "datasets", "pyarrow", "pandas", "scipy", "sklearn", "sympy")


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [
        (
            "import lyceum.recipe.schema as s\nfor name in s.recipe_names(): s.load_recipe(name).resolved()",
            0,
        ),
        ("from lyceum.cli import main; sys.exit(main(['train', 'grpo', 'lr=1']))", 2),
        ("from lyceum.cli import main; sys.exit(main(['compare', 'grpo', 'lr=1']))", 2),
        ("from lyceum.cli import main; sys.exit(main(['eval', 'scratch', '--k', 'x']))", 2),
        ("from lyceum.cli import main; sys.exit(main(['components']))", 0),
        ("from lyceum.cli import main; sys.exit(main(['recipes', 'show', 'grpo']))", 0),
    ],
)
def test_a_recipe_is_checked_without_a_models_library(code, exit_code):
    at_the_end = f"print('loaded:', *(name for name in {HEAVY} if name in sys.modules))"
    script = f"import sys\ntry:\n exec({code!r})\nfinally:\n {at_the_end}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == exit_code, done.stderr
    assert done.stdout.splitlines()[-1] == "loaded:"


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
