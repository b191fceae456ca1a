"""Bytes to values and back: no socket, no clock, no log. What a file does not understand passes as it came.

chat         chat completions, the one format that is compacted: everything that another format would do differently

What every format shares, because it is about HTTP:

paths        normal forms of request paths, and which of them a configured key may call
routing      the model that a body names
headers      what travels on in either direction
credentials  which headers and query parameters identify a client
caller       whose request it is
bodies       compressed bodies, opened under a limit
sse          event streams, relayed whole or ended with an error
redaction    secrets in messages and texts
"""
