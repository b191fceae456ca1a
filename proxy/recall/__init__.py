"""The tools of the proxy itself, which the model calls within one request: the client sees no call and no result.

    request + tools -> answer with a call -> result from the request itself -> next round -> answer for the client

1. `own_tools` offers the tools beside the client's own.
2. `answering` answers the calls of a round and writes the request of the next one. The gateway sends it
   (`path.answer_rounds`).
3. Recalled messages come from the request: the client sends its whole history each time. If the model calls
   `Compact`, the driver decides on the same request once more.

own_tools  the tools as the model sees them, and how they are offered and withdrawn
search     search in the messages of a conversation
tool       answers a recall from the history of the request
answering  the rounds of one request, and their requests
"""
