"""Baichuan-M2: Scaling Medical Capability with Large Verifier System, arXiv:2509.02208."""
