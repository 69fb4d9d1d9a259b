"""The plot of a search."""

import pytest

from lyceum.analysis.test_time.show import plot


@pytest.mark.parametrize("spent", [[10.0], [10.0, 10.001], [4.0, 4096.0]])
def test_a_narrow_range_of_tokens_is_drawn_too(spent, tmp_path):
    # One result at 10 tokens collapsed the axes: FreeType raised "raster overflow".
    accuracy = {"mean": 0.25, "low": 0.1, "high": 0.5}
    results = [
        {"strategy": "best-of-n", "size": n, "tokens_spent": tokens, "accuracy": accuracy, "pass_oracle": None}
        for n, tokens in enumerate(spent, 1)
    ]
    assert plot({"results": results}, tmp_path / "search.png").stat().st_size > 1000
