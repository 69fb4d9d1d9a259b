"""What a finished tree has to teach: trajectories, or texts made of them, for a fine-tuning that follows."""
