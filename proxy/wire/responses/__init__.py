"""OpenAI Responses: how this API differs from chat completions.

responses_format    a request as chat messages, changed, and asking for a summary
items               the items of a request as chat messages
item_writer         chat messages as the items of a request
call_items          the items that call tools, and the outputs that answer them
responses_answers   an answer: read as a chat answer, written, continued
responses_rounds    several answers, as the client gets them
"""
