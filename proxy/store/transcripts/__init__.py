"""Transcripts: the originals on disk and in an object store.

lines     the format: one message, one line, written and read
folder    append-only files of each conversation on disk
uploads   closed files on their way to an object store
archive   saved conversations: found, read, removed, in both places
reading   a conversation put together again, and checked
bucket    the client of an object store (optional: needs obstore)
"""
