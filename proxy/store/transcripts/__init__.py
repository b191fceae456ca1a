"""The originals on disk and in an object store, file by file of what it takes.

lines      one message, one line: the format, written and read
files      where lines stand: folders, rotation, locks, torn ends
retention  what is too old or too much, and goes
reading    a conversation put together again: leaves, paths, answers
proof      does every line follow its `after`?

spool      what waits on this disk for an object store: sealed, named for ever, remembered
uploads    its way there, and what is done when the store fails
objects    what is there: listed, read, pruned
s3         the door to it
signature  what it wants signed
"""
