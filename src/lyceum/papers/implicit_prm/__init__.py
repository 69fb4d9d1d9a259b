"""Free Process Rewards without Process Labels, arXiv:2412.01981."""
