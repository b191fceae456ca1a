"""OpenAI chat completions.

requests   bytes to a `Request` and back, and the weight of a message: its text for the model, its media in tokens
refusals   the meaning of an error: too long, too much output, a rate limit
answers    an answer written by the proxy, or put together from several rounds
"""
