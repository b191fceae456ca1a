"""Bytes to values and back, still pure: no socket, no clock, no log.

One file for each thing that stands on the wire: header lists, request paths, compressed bodies,
event streams, chat requests. What a file does not understand it hands on as it came.
"""
