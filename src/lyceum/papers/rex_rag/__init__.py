"""REX-RAG: Reasoning Exploration with Policy Correction in Retrieval-Augmented Generation, arXiv:2508.08149."""
