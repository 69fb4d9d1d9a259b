"""Fine-tuning data from finished trees: trajectories, or texts made of them."""
