"""Connections to a model's API: connect, send, stream the reply; retry only while nothing was sent.

aiohttp's client costs a third of the alternatives (docs/decisions.md, 0002). Bodies are not read, no redirect is
followed and no cookie kept. Faults of the library become the errors of `proxy.errors`.

    Call --Client.open--> URL, headers,  connection --> Reply.headers, Reply.chunks()
                                        |  ^                          |
                             retry, while nothing was sent    idle timeout, errors

client             calls, their URL and headers, connections, retries, and replies
transport_errors   faults before a reply comes
"""
