"""A file of the user's that ends the program as it is imported is a line, and not the end of the run."""

import os

import pytest

import lyceum
from lyceum.core.own_code import load_module
from lyceum.utils.errors import RecipeError


@pytest.mark.parametrize("ending", ["import sys\nsys.exit(0)", "import os\nos._exit(0)", "raise SystemExit(3)"])
def test_a_file_that_ends_the_program_is_refused(tmp_path, ending):
    file, kept = tmp_path / "own.py", os._exit
    file.write_text(f"{ending}\n\ndef graded(completion, answer):\n    return 1.0\n")
    with pytest.raises(RecipeError, match="the file ends the program as it is imported"):
        load_module(str(file), key="reward.function")
    assert os._exit is kept


def test_nothing_to_grade_is_a_line():
    with pytest.raises(RecipeError, match="file: got None; allowed: a file, rows, a run or its folder"):
        lyceum.grade(None)
