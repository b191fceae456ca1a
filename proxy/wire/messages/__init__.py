"""Anthropic Messages: what this API does in another way than chat completions.

threads    conversations that the provider holds, and clients that send them whole when asked
requests   bytes to a `Request` of chat messages and back, and requests for summaries
answers    an answer read as a chat answer, written by the proxy, and put together from several rounds
"""
