"""Connections to a model's API. Requests are retried only while nothing was sent.

aiohttp's client costs a third of the alternatives (docs/decisions.md, 0002). No redirect is followed, no cookie kept.

    Call --Client.open--> URL, headers,  connection --> Reply.headers, Reply.chunks()
                                        |  ^                          |
                             retry, while nothing was sent    idle timeout, errors

client             calls, their URL and headers, connections, retries, replies and faults before a reply comes
"""
