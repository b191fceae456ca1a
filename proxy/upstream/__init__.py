"""Connections to a model's API: connect, send, stream the reply; retry only while nothing was sent.

aiohttp's client costs a third of the alternatives (docs/decisions.md, 0002). Nothing here reads what it carries:
replies come back raw (no redirect followed, no cookie kept), and faults of the library become the errors of
`proxy.errors`.

    Call --Client.open--> URL, headers,  connection --> Reply.headers, Reply.chunks()
                                        |  ^                          |
                             retry, while nothing was sent    idle timeout, errors

client             calls, their URL and headers, connections, what is sent again, and replies
transport_errors   what fails before a reply comes
"""
