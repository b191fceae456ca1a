"""Three replicas, two hundred conversations, and everything that goes wrong in half an hour.

`python -m tests.end_to_end.fleet` is what `make soak` does with it.
"""
