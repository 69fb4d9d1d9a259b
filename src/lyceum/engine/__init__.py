"""Generation: tokens in, tokens and log-probabilities out."""
