"""Three replicas, two hundred conversations, and everything that goes wrong in half an hour.

`cd tests && python -m fleet` is what `make soak` does with it.
"""
