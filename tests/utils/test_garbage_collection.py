import gc
import weakref

from lyceum.utils.garbage_collection import only_new


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
