"""The history of a conversation as the client sent it: its messages, their groups, and how it is recognized.

messages   a request and its messages, with their bytes; values computed per message
splice     changes inside JSON bytes that leave all other bytes as they are
grouping   groups and turns: where a history may be cut; pinned text
agents     conventions of agents: names of tools, output in user messages, side questions
identity   what a conversation is known by: a chain of hashes, the digest of its head, the keys of a store
rereads    second reads that a harness refuses: the text comes again once it was shortened
"""
