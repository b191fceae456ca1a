"""Sockets and processes: HTTP in and out, the life of a worker, and several workers on one port.

http         a connection, a client's request, the delivery of its answer; which handler serves a path
worker       one process, from its start to the end of its drain; reloads and other changes while it runs
loop_faults  exceptions that asyncio caught, reported once a second
supervisor   several workers on one port
own_address  refuses an upstream that is the proxy itself
"""
