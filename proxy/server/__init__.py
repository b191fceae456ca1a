"""Sockets and processes: HTTP in and out, the life of a worker, and several of them on one port.

intake     a client's request -> a Call           protocol   what the HTTP library answers by itself, in our words
delivery   an Answer -> the client's socket        app        which path is whose, limits, one event per request
worker     one process from start to drain         supervisor several of them on one port
"""
