"""What training adds to a model: samples of the same tasks by several models, and where their curves cross."""
