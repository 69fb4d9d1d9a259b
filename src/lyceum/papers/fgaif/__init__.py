"""FGAIF: Aligning Large Vision-Language Models with Fine-grained AI Feedback, arXiv:2404.05046."""
