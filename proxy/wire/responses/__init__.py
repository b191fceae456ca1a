"""OpenAI Responses: what this API does in another way than chat completions.

requests   bytes to a `Request` of chat messages and back, and requests for summaries
calls      the items that call tools, and the outputs that answer them
answers    an answer read as a chat answer, written by the proxy, and put together from several rounds
"""
