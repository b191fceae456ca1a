"""Recall by the model through the running proxy, on each API."""
