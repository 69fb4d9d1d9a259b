"""A file of the user's that ends the program as it is imported is a line, and not the end of the run."""

import os
import subprocess
import sys

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


def test_a_module_that_ends_the_program_is_refused(tmp_path, monkeypatch):
    (tmp_path / "module_that_ends.py").write_text("import os\nos._exit(0)")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(RecipeError, match="the file ends the program as it is imported"):
        load_module("module_that_ends", key="reward.function")


@pytest.mark.parametrize("ending", ["os._exit(7)", "sys.exit(7)"])
def test_a_process_that_the_file_forks_ends_and_does_not_go_on_as_a_second_run(tmp_path, ending):
    (tmp_path / "own.py").write_text(
        f"import os, sys\npid = os.fork()\nif not pid:\n    {ending}\nstatus = os.waitpid(pid, 0)[1]\n"
    )
    program = (
        "import os, sys\nfrom lyceum.core.own_code import load_module\n"
        f"module = load_module({str(tmp_path / 'own.py')!r}, key='reward.function')\n"
        "print(os.waitstatus_to_exitcode(module.status))"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (said.stdout, said.stderr) == ("7\n", "")


def test_nothing_to_grade_is_a_line():
    with pytest.raises(RecipeError, match="file: got None; allowed: a file, rows, a run or its folder"):
        lyceum.grade(None)
