"""A run from recipe to trained model."""
