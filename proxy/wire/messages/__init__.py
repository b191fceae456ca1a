"""Anthropic Messages: how this API differs from chat completions.

messages_format    requests, and threads that the provider holds
content_blocks     content blocks as chat messages, and back; cache marks at the end of the shortened part
messages_answers   answers, and several rounds of them
"""
