"""Programs that a model wrote, run where they can do no harm: ``run.py``; how and why: ``docs/sandbox.md``."""
