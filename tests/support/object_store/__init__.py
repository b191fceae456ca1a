"""A server that speaks S3 and checks each signature, in an environment of its own, and bad weather in front of it.

`install.py` puts it there, `server.py` runs it, `weather.py` is between: it loses, delays and refuses.
"""
