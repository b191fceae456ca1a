"""Facts about models.

names       names of models, as providers, routers and clouds spell them, and what a name tells of thinking
windows     context windows, prices, and how a count is calibrated at first
tokenizer   token counts of messages
"""
