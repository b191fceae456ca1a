"""OpenAI Responses: how this API differs from chat completions.

responses_format    requests
items               items as chat messages, and back
responses_answers   answers, and several rounds of them
"""
