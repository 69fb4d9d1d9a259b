"""``lyceum doctor``: whether what is sampled is what is learned, checked with the user's own model on this machine."""
