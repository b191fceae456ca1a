"""OpenAI chat completions.

chat_format     requests
chat_answers    answers, and several rounds of them
"""
