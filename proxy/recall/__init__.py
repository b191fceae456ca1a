"""Recall: the tool of the proxy, which the model calls within one request; the client sees no call and no result.

    request + tool -> answer with a call -> result from the request itself -> next round -> answer for the client

tool       the tool as the model sees it; search in a history, and the answer to a recall
"""
