"""Facts about models.

names       names of models, as providers, routers and clouds spell them, and which models bind their thinking
windows     context windows, prices, and how a count is calibrated at first
caches      how long the caches of providers remember a prompt
tokenizer   token counts of messages
"""
