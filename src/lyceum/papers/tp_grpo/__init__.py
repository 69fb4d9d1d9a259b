"""Good Learners Think Their Thinking: Generative PRM Makes Large Reasoning Model More Efficient Math Learner,
arXiv:2507.23317
"""
