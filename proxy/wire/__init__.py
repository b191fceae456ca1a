"""Bytes to values and back: no socket, no clock, no log. What is not understood passes as it came.

One folder for each API whose requests are compacted:

chat/           OpenAI chat completions: the form that the core works on
messages/       Anthropic Messages
responses/      OpenAI Responses
formats         what differs between them, behind two protocols

pieces          requests of another API as chat messages, each with the bytes that it came from
outline         places of values and elements in a body, and of messages that were read before
marks           cache marks for clients that set none
rounds          several answers of a model, joined into the one that the client sees

What every API shares:

http            headers, credentials, the caller, paths, the model of a body, encodings
lenient         JSON as clients and servers send it
sse             event streams: cut into lines and events, an event read and written
stream_watch    a stream that is relayed: its line ends, its finish, its errors
stream_errors   errors of a server, read from a stream and written to one
stream_opening  the first events of a stream: an answer, or a late refusal
usage           token counts of an answer
usage_view      the token counts as the client is to see them
answer_assembly  an answer put together: its messages, its usage, whether it is whole
weight          what a model reads of a message, and the fixed prices of markup and media
redaction       secrets in messages and texts
trace_context   the `traceparent` header
"""
