"""Transcripts: the originals on disk and in an object store.

writer    what requests hand over, and the thread that writes it
files     the format, and append-only files of each conversation on disk
uploads   closed files on their way to an object store
archive   saved conversations: found, read, checked, removed, in both places
bucket    the client of an object store (optional: needs obstore)
"""
