"""Facts about models.

names       names of models, as providers, routers and clouds spell them, and whether a name says that a model thinks
windows     context windows, prices, and how a count is calibrated at first
tokenizer   token counts of messages
"""
