"""ToolChain*: Efficient Action Space Navigation in Large Language Models with A* Search, arXiv:2310.13227."""
