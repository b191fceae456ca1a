"""Facts about models.

names       names of models, as providers, routers and clouds spell them, and which models bind their thinking
windows     context windows, prices, and how a count is calibrated at first
tokenizer   token counts of messages
"""
