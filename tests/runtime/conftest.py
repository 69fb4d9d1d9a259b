"""Workers of tests are forks of the test's process: starting Python with torch takes each six seconds of a core."""

import importlib.util
import sys
from pathlib import Path

import pytest

# By its file: benchmarks/ on the path would hide folders of tests that are called as a benchmark is.
SPEC = importlib.util.spec_from_file_location("forked", Path(__file__).parents[2] / "benchmarks/forked.py")
sys.modules["forked"] = forked = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(forked)


@pytest.fixture(autouse=True)
def forks(request):
    """Lets them be; a test with the mark ``started`` has them started as a run does."""
    if request.node.get_closest_marker("started"):
        yield
    else:
        with forked.forked_workers():
            yield
