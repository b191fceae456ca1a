"""Transcripts: the originals of conversations, on disk and in an object store.

    request -> OriginalsWriter (queue) -> current.jsonl of the conversation
    answer -> Recording -------^      |
                                      |  if there is an object store: closed, sent by Uploads, deleted here
                                      v
                                    <prefix>/<tenant>/<conversation>/<time>-<random>.jsonl

1. The event loop hands a history over. Only a request for which a block is made waits until it is written; with
   `transcripts.required`, each that is shortened.
2. A thread appends the messages whose ids are not in the conversation's file, under a lock that all workers share.
3. Readers take whole lines, each id once: a line that was written or sent twice does no harm.
4. Retention and deletion remove whole conversations; retention spares those that are written to at this moment.

files        append-only files of conversations, and the format of their lines
writer       the queue and the thread that writes
uploads      closed files on their way to an object store
archive      saved conversations: found, read, removed
bucket       the client of an object store (optional: needs obstore)
"""
