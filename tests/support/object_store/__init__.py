"""A server that speaks S3 and checks each signature, in an environment of its own, and faults in front of it."""
