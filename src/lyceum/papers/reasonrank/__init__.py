"""ReasonRank: Empowering Passage Ranking with Strong Reasoning Ability, arXiv:2508.07050."""
