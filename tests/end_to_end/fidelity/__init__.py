"""Is a proxy faithful? A corpus of requests and answers, and a runner that compares every byte both ways.

    corpus          what real clients have sent (recorded.jsonl), and what was written by hand where it must be odd
    compare         what counts as the same (pure)
    run             sends it all through a proxy, ours or any other: `python -m tests.end_to_end.fidelity.run --help`

The proxy under test must have the recorder as its upstream: that is how both ends of it are seen.
"""
