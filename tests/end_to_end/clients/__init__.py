"""The clients that must run unmodified through the proxy, each in an environment of its own."""
