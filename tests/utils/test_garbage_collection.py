import gc
import sys
import weakref

import pytest

from lyceum.utils import garbage_collection
from lyceum.utils.garbage_collection import only_new


@pytest.fixture(autouse=True)
def nothing_is_kept_from_it(monkeypatch):
    monkeypatch.setattr(garbage_collection, "_inside", False)  # the tests' own
    # To count a million objects takes as long as threads wait for their turn; one that frees some changes the count.
    before = sys.getswitchinterval()
    sys.setswitchinterval(60)
    gc.unfreeze()
    yield
    gc.freeze()
    sys.setswitchinterval(before)


class Cycle:
    def __init__(self):
        self.itself = self


def test_what_is_made_in_here_is_collected_and_what_was_there_is_not_looked_at():
    before = Cycle()
    old = weakref.ref(before)
    with only_new():
        new = weakref.ref(Cycle())
        del before
        gc.collect()
        assert new() is None
        assert old() is not None
    gc.collect()
    assert old() is None


def test_what_is_garbage_already_goes_first():
    gone = weakref.ref(Cycle())
    with only_new():
        assert gone() is None


def test_inside_another_it_changes_nothing():
    with only_new():
        kept = gc.get_freeze_count()
        with only_new():
            pass
        assert gc.get_freeze_count() == kept > 0, "an evaluation within a run, which goes on after it"
    assert gc.get_freeze_count() == 0
