"""Listeners on events: what happened becomes log lines, metrics and rows of a database. None can touch a request."""
