"""From outcome rewards to per-token advantages."""
