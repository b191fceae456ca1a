"""OpenAI chat completions.

chat_format     a request, and the same as a chat request changed or asking for a summary
chat_messages   the messages of a request, as a `Request`
chat_answers    an answer: read, written, continued
chat_rounds     several answers, as the client gets them
"""
