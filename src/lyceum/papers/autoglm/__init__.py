"""AutoGLM: Autonomous Foundation Agents for GUIs, arXiv:2411.00820."""
