"""From outcomes to the advantage of each token."""
