"""What properties are tried on (``conftest.py``)."""

from hypothesis import settings
from hypothesis.internal.conjecture.providers import HypothesisProvider


def test_they_are_tried_on_the_same_whatever_is_loaded_beside():
    # Catches a hypothesis that asks for the constants of modules in another way than conftest.py turns off.
    if settings().derandomize:
        assert len(HypothesisProvider(None)._local_constants) == 0
