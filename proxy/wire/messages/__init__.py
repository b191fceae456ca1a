"""Anthropic Messages: how this API differs from chat completions.

messages_format    a request as chat messages, changed, and asking for a summary
content_blocks     the content blocks of a message as chat messages, and back
list_writer        a view of chat messages as the list of messages of a request
fold_marks         cache marks at the end of what was shortened
messages_answers   an answer: read as a chat answer, written, continued
messages_rounds    several answers, as the client gets them
threads            conversations that the provider holds, and clients that send them whole when asked
"""
