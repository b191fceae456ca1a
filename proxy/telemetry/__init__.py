"""Listeners on events: what happened becomes log lines and metrics. None of them can touch a request."""
