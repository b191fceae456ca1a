"""Agents that must run unmodified through the proxy, each in an environment of its own.

Each gets a base URL and a key, and what keeps it from asking a human. `task.py` is what they are to do, `model.py`
the scripted model that does it with them, `record.py` what the upstream saw, `page.py` what docs/clients.md tells of
it. A new agent is an entry in `roster`, and its pins in `pins`.
"""
