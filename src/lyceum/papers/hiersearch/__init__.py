"""HierSearch: A Hierarchical Enterprise Deep Search Framework Integrating Local and Web Searches, arXiv:2508.08088."""
