"""Summaries by a model: the question (`question`, `retelling`), the answer's check (`verdict`), its use (`summary`)."""
