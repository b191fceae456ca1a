"""The history that a client sends: its messages, the groups it may be cut into, and how it is recognized.

Theory of operation, of this room and of `shorten/state.py`:

1. A request holds a *head* (system messages) and a *body*, the history proper. Its client sends all of it every time.
2. The body falls into *groups*: a user's message, or an answer with the results of its calls. Cuts are made between
   groups only, or an upstream refuses the request.
3. Each message has a *link*: a hash over it and all before it. A *block* is stored under the link of the last message
   that it covers. It lists *parts*: stretches of the client's own messages, or bytes of the proxy.
4. The block's messages (*covered*) and the messages after it (*tail*) are the *view*, which is forwarded after the
   head. The same block and the same body make the same bytes, on any worker.
5. For a new block, the view is cut before its newest part. Steps shorten the *draft* before that *cut*, except the
   messages that are fixed. The result is the new block, which covers all that the old one covers.

    body:       m0 m1 m2 m3 m4 m5 | m6 m7 m8 m9 m10
    groups:     [m0] [m1 m2 m3] [m4 m5] [m6 m7] [m8 m9 m10]
    block:      covers 6: part m0, part "[shortened ...]" for m1-m5                      stored under h(6)
    view:       m0 s1 | m6 m7 m8 m9 m10                                                  covered | tail
    draft:      m0 s1   m6 m7 | m8 m9 m10                                                cut before the last answer
    new block:  covers 8: part m0, part s1, part "[shortened ...]" for m6-m7             stored under h(8)

6. The values that follow from each message (its group, link, size) are kept in *columns* of `Known`, and the next
   request continues them.

Keep in sync: a change of the bytes of a view for the same block and body breaks the upstream's prompt cache. A change
of the canonical form makes all stored keys unknown.

messages      one message: the client's bytes, and the little that deciding needs; changes of the calls inside it
splice        changes inside JSON bytes that leave all other bytes as they are
grouping      calls and their results, groups and turns: where a history may be cut, and the repair of flaws
pins          passages that must survive verbatim
observations  output of an environment in the role of a user, `/compact`, and questions about the conversation itself
repeats       results that repeat an earlier one, in whole or in part; second reads that a harness refuses
request       a request: its head and body, with values computed message by message and continued by the next
identity      the canonical form of each message, a keyed hash over it and all before it, and the keys of a store
"""
