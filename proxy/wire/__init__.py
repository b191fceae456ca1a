r"""Bytes to values and back: no socket, no clock, no log. Bytes that are not understood pass as they came.

    bytes of a request --parse--> Request (chat messages, each with its bytes) --render--> bytes of a request
    bytes of an answer --read_event / read_body--> chat answer --Assembly--> Answer

1. Only the outline of a body is read: messages stay slices of the client's bytes, so untouched ones leave as they came.
2. The core knows chat messages only. Requests of the other APIs are read as the chat messages that say the same; each
   remembers the places of its blocks (`pieces`), and is written anew only if it was changed.
3. A client repeats its history in every request: if a body begins with a known request, only the rest is read.
4. An answer is relayed as it comes, watched for its end, errors and usage. To be recorded or to recall, its events are
   read as chat answers as well.

To add a fourth API, with `responses_api` as the model:

1. `http_head`: its paths in `ApiPath`, of which none may begin with that of another API; how keys are sent, if in a
   header that `CREDENTIALS` lacks.
2. A file with its `PiecedFormat` (`ApiFormat`, if its messages are those of chat) and its `Rounds`. mypy names what is
   missing of the format. Of `Rounds` it names the methods only where one is made: write `NewRounds(stream=True)` for a
   moment.
3. `formats`: the format. The tables of paths, traces and errors follow, and that of metrics.
4. Only if it differs from the others: the names of token counts (`token_counts`); `model`, `tools`, `stream` and
   `usage` as names of members, events with a `type`, and those at a stream's beginning (`StreamOpening`); what cannot
   be taken from a signed message (`Message.signed`); paths that metrics call `other` (`_OTHER_PATHS`).
5. What operators and clients name, as `grep -rli anthropic proxy` shows: `cli/options`, `cli/run`, `cli/serve`,
   `cli/doctor`, `Upstream` in `config/settings`, an error in `server/connection`, `PROVIDERS` in `telemetry/otel`; a
   session, in `SESSION_HEADERS` (`serve/request_context`).
6. To replay its sessions: `session_history`, `session_files` and `chat` (logged bodies) in `lab/sessions`,
   `replay_history` and `scoring` in `lab/replay`.
7. An `Api` in `tests/support/apis.py` (in `APIS` and `each_other_api`) with its requests beside it: a `KeyError` names
   each table of their tests that wants a row. Other tests list the APIs themselves:
   `grep -rlE "RESPONSES_FORMAT|responses_api" tests`. Then the README, and `grep -l Messages docs/*.md`.

Keep in sync: `find_cut` of a request and the places at which its list can be continued.

api_format        the classes of an API: its requests and answers, and several answers as one
formats           the API of each path
cache_placement   cache marks for clients that set none
json_body         JSON: values, structs, the outline of a body, known first messages
known_requests    requests of another API as chat messages, each with its places; the requests that were read lately
http_head         headers, paths, credentials, trace context
encodings         compressed bodies
event_streams     lines and events of a stream; its opening, its end, its errors
refusals          the meaning of an error: too long, too much output, a rate limit
token_counts      the usage of an answer, and the usage that its client sees
answer_assembly   an answer put together: its messages, its usage, whether it is whole
redaction         secrets in messages and texts
responses_api     OpenAI Responses
messages_api      Anthropic Messages
chat_api          OpenAI chat completions: the form that the core works on
"""
