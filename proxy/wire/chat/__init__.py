"""OpenAI chat completions.

chat_format     a request: read, written with another history, changed, asking for a summary
chat_answers    an answer: read, written, continued
chat_rounds     several answers, as the client gets them
"""
