"""InternVL3.5: Advancing Open-Source Multimodal Models in Versatility, Reasoning, and Efficiency, arXiv:2508.18265."""
