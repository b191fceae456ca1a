"""The originals on disk, file by file of what it takes.

lines      one message, one line: the format, written and read
files      where lines stand: folders, rotation, locks, torn ends
retention  what is too old or too much, and goes
reading    a conversation put together again: leaves, paths, answers
proof      does every line follow its `after`?
"""
