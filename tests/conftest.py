"""Every test runs on one thread, as results are compared to the last bits and machines are shared.

What annotations say of arrays is checked (``array_checks``), unless ``LYCEUM_UNCHECKED_ARRAYS`` is set.
Properties are tried on the same examples every time, so that a change fails for what it changed; look for new ones with
``HYPOTHESIS_PROFILE=explore pytest``.
"""

import functools
import gc
import importlib.util
import os
import signal
import sys
from contextlib import ExitStack
from pathlib import Path

import array_checks
import pytest
import torch
from hypothesis import settings
from hypothesis.internal.conjecture import providers

if not os.environ.get("LYCEUM_UNCHECKED_ARRAYS"):
    array_checks.install()
pytest_plugins = [
    "batch_fixtures",
    "changed_papers",
    "forest_fixtures",
]  # imported from here on: with their arrays checked
torch.set_num_threads(1)
os.fsync = lambda descriptor: None  # what it guards against, a machine without power, no test can show
# No deadline: a busy machine is no failure.
settings.register_profile("same", deadline=None, derandomize=True, max_examples=40)
settings.register_profile("explore", deadline=None, max_examples=200)
settings.load_profile(PROFILE := os.environ.get("HYPOTHESIS_PROFILE", "same"))
if PROFILE == "same":
    # It also draws from the constants of all modules that are loaded, which it parses in each process: examples would
    # differ with the tests that run beside.
    providers._get_local_constants = lambda: providers._local_constants
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Started in the background of a script, where Ctrl-C is ignored: what it does is what some tests are about.
    signal.signal(signal.SIGINT, signal.default_int_handler)
# By its file: benchmarks/ on the path would hide folders of tests that are called as a benchmark is.
SPEC = importlib.util.spec_from_file_location("forked", Path(__file__).parents[1] / "benchmarks/forked.py")
sys.modules["forked"] = forked = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(forked)


def pytest_collection_finish(session):
    """Keeps the garbage collector from what is loaded: each of a thousand runs would walk it all (``only_new``)."""
    from lyceum.utils.garbage_collection import only_new  # after what checks lyceum's modules as they are imported

    gc.unfreeze()  # ``resume_runs`` has frozen what was there when it was imported, and only_new leaves that alone
    frozen = ExitStack()
    frozen.enter_context(only_new())
    session.config.add_cleanup(frozen.close)


@pytest.fixture(autouse=True)
def folders_of_modules():
    """Own code adds its folder to what Python searches: the next test's module may have the same name. Papers' folders
    are forgotten too."""
    from lyceum.core.paper_folders import _used

    before, used = [*sys.path], [*_used]
    yield
    sys.path[:], _used[:] = before, used


@pytest.fixture(scope="module")
def small_scratch():
    """The model ``scratch`` with half of its layers, and so narrow that most of a step is not its own."""
    from lyceum.models import load, scratch

    with pytest.MonkeyPatch.context() as patch:
        small = functools.partial(scratch.build_scratch, width=32, layers=2, heads=2, feed_forward=64)
        patch.setattr(scratch, "build_scratch", small)
        load._as_built.cache_clear()
        yield
    load._as_built.cache_clear()


@pytest.fixture(autouse=True)
def forks(request):
    """Workers of tests, of pages and of recipes, and a learner's other processes, are forks of the test's process:
    starting Python with torch takes each some seconds of a core. A test with the mark ``started`` has them started as a
    run does."""
    if request.node.get_closest_marker("started"):
        yield
    else:
        with forked.forked_workers():
            yield
