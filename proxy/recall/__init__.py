"""The tools of the proxy itself, which the model calls within one request: the client sees no call and no result.

    request + tools -> answer with a call -> result from the request itself -> next round -> answer for the client

If the model calls `Compact`, the driver decides on the same request once more.

tool       the tools as the model sees them; search in a history, and the answer to a recall
"""
