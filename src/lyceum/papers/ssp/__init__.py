"""Search Self-play: Pushing the Frontier of Agent Capability without Supervision, arXiv:2510.18821."""
