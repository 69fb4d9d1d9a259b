"""Echo Chamber: RL Post-training Amplifies Behaviors Learned in Pretraining, arXiv:2504.07912."""
