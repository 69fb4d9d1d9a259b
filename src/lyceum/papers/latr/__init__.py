"""Lookahead Tree-Based Rollouts for Enhanced Trajectory-Level Exploration in Reinforcement Learning with
Verifiable Rewards, arXiv:2510.24302
"""
