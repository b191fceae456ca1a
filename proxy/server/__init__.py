"""Sockets and processes: HTTP in and out, the life of a worker, and several workers on one port.

http        which handler serves a path, a request on its socket, aiohttp's connections with errors of this proxy
worker      one process, from its start to the end of its drain, and what operators change while it runs
supervisor  several workers on one port
"""
