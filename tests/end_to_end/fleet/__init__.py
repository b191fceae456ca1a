"""Three replicas, two hundred conversations, and everything that goes wrong in half an hour."""
