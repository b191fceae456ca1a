"""Facts about models.

names      names of models, as providers, routers and clouds spell them
thinking   models that bind their thinking to the history before it
windows    context windows and prices
tokenizer  token counts of messages
"""
