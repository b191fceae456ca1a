"""The tool `Compact` of the proxy: called by a model, answered within the request, never seen by a client."""
