"""Connections to a model's API: connect, send, stream the reply; retry only while nothing was sent.

aiohttp's client, because it costs a third of the alternatives per request and per chunk (decision 0002). Nothing here
reads what it carries: bodies are sent as they are, replies come back raw (not decompressed, no redirect followed,
no cookie kept), and what the library raises becomes one of the errors of `proxy.errors`.

    Call --Address--> URL, headers --Client.open--> connection --> Reply.headers, Reply.chunks()
                                        |  ^                          |
                             retry, while nothing was sent    idle timeout, errors

1. `Client.send` takes a lease on the connections; a client closes them after its last lease.
2. `Address` adds the settings of the upstream (key, headers, query) to the call.
3. The call is sent; a refused connection, or a status of `retry_statuses`, is tried again if the body is in memory.
4. The reply belongs to the block of `Client.send`, or to the caller of `Client.open`; closing it awaits nothing.

call               the request that is forwarded; URL, headers and key that it is sent with
transport_errors   what fails before a reply comes
client             connections, what is sent again, and replies
"""
