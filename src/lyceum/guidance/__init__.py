"""Help where a rollout fails: a rollout in, a rollout out."""
