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
event_lines     lines of an event stream, by all ends that they have
assembly        an answer put together: its messages, its usage, whether it is whole
weight          what a model reads of a message, and the fixed prices of markup and media
delivery        answers on their way to the client: streams, late refusals, usage
redaction       secrets in messages and texts
trace_context   the `traceparent` header
"""
