"""Transcripts: the originals on disk and in an object store.

writer    takes originals from requests and writes them in a thread
files     the format, and append-only files of each conversation on disk
uploads   closed files on their way to an object store
archive   saved conversations, in both places: found, read, removed
bucket    the client of an object store (optional: needs obstore)
"""
