"""The one door to a model's API: connect, send, stream the answer; retry only while nothing was sent.

aiohttp's client, because it costs a third of the alternatives per request and per chunk (docs/decisions/0002).
Nothing here reads what it carries: bodies go out as they are, answers come back raw (never unpacked, never
redirected, no cookie kept), and what the library raises becomes one of our few errors at this border.

    call.py     what a client asked for
    address.py  where a call goes, and what is shown there
    client.py   the connections to one upstream, and what is tried again
    reply.py    an answer whose headers are in
    silence.py  an answer that says nothing for too long
    faults.py   whose fault it was, in our words
"""

from proxy.upstream.call import Body, Call
from proxy.upstream.client import Client
from proxy.upstream.reply import Reply

__all__ = ["Body", "Call", "Client", "Reply"]
