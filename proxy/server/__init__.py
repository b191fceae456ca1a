"""Sockets and processes: HTTP in and out, the life of a worker, and several workers on one port.

supervisor    several workers on one port        worker        one process, from its start to the end of its drain
app           which handler serves a path        protocol      aiohttp's connections with errors of this proxy
client_request  a request on its socket: its body read, its answer sent
config_watch    what operators change while it runs
"""
