"""What samples: tokens in, tokens and log-probabilities out."""
