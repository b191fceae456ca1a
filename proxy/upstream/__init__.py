"""Connections to a model's API: connect, send, stream the reply; retry only while nothing was sent.

aiohttp's client, because it costs a third of the alternatives per request and per chunk (docs/decisions/0002). Nothing
here reads what it carries: bodies are sent as they are, replies come back raw (not decompressed, no redirect followed,
no cookie kept), and what the library raises becomes one of the errors of `proxy.errors`.

Who owns what: a `Client` owns its connections and closes them after its last lease; the block of `Client.send` owns the
reply that it lends. Read `client.py` first.

    client.py            the connections to one upstream, sending, and what is sent again
    call.py              what a client asked for, and the URL, headers and key that it is sent with
    reply.py             a reply whose headers are in, and its idle timeout
    transport_errors.py  what aiohttp raises, as errors of this proxy
"""

from proxy.upstream.call import Body, Call
from proxy.upstream.client import Client
from proxy.upstream.reply import Reply

__all__ = ["Body", "Call", "Client", "Reply"]
