"""Where rollouts, graders and engine run together."""
