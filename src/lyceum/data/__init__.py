"""Where an offline stage's trajectories come from: one file per kind."""
