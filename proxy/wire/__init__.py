"""Bytes to values and back: no socket, no clock, no log. What is not understood passes as it came.

How it works:

    bytes of a request --parse--> Request (chat messages, each with its bytes) --render--> bytes of a request
    bytes of an answer --read_event / read_body--> chat answer --Assembly--> Answer

1. Only the outline of a body is read (`outline`): where its values and the elements of its lists are. Messages stay
   slices of the client's bytes, so that an untouched one leaves as it came.
2. The core knows chat messages only. Requests of the other two APIs are read as the chat messages that say the same;
   each remembers the blocks that it came from (`pieces`), and is written back as blocks only if it was changed.
3. A client repeats its whole history in every request. If a body begins with a known request, only the rest is read
   (`known_prefix`); values computed message by message are continued.
4. An answer is relayed as it comes. Its events are cut in one place (`sse`), watched (`stream_watch`), and read for its
   usage (`usage`); if there is something to record or to recall, they are read as chat answers as well.

To add a fourth API: a folder with a `RequestFormat` and an `AnswerFormat`, their entries in `formats`, its path in
`paths`. What must be kept in sync: `find_cut` of a request and the places at which its list can be continued.

One folder for each API whose requests are compacted:

chat/           OpenAI chat completions: the form that the core works on
messages/       Anthropic Messages
responses/      OpenAI Responses
request_format  requests of an API: the protocol that each of the three has a class for
answer_format   answers of an API: the same
formats         which path has which of them

pieces          requests of another API as chat messages, each with the bytes that it came from
piece_reader    reads such a request
struct_reader   JSON objects as structs
outline         a body: its top-level values, the elements of a list, its model
known_prefix    a history that begins with messages which were read before
marks           cache marks for clients that set none
rounds          several answers of a model, joined into the one that the client sees

What every API shares:

headers           headers that are forwarded
caller            who calls: the credentials by which clients are told apart, a team
paths             normal forms of paths, and the paths that have a meaning here
encodings         compressed bodies
lenient           JSON as clients and servers send it
sse               event streams: cut into lines and events, an event read and written
stream_watch      a stream that is relayed: its line ends, its finish, its errors
stream_opening    the first events of a stream: an answer, or a late refusal
refusals          the meaning of an error: too long, too much output, a rate limit
refusal_figures   the figures in its text
usage             token counts of an answer
usage_view        the token counts as the client is to see them
answer_assembly   an answer put together: its messages, its usage, whether it is whole
weight            what a model reads of a message, and the fixed prices of markup and media
redaction         secrets in messages and texts
trace_context     the `traceparent` header
"""
