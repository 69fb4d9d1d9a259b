"""Workers of tests are forks of the test's process: starting Python with torch takes each six seconds of a core."""

import pytest
from forked import forked_workers


@pytest.fixture(autouse=True)
def forks(request):
    """Lets them be; a test with the mark ``started`` has them started as a run does."""
    if request.node.get_closest_marker("started"):
        yield
    else:
        with forked_workers():
            yield
