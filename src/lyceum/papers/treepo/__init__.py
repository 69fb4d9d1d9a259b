"""TreePO: Bridging the Gap of Policy Optimization and Efficacy and Inference Efficiency with Heuristic Tree-based
Modeling, arXiv:2508.17445
"""
