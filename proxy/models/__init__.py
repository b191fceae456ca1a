"""Facts about models.

windows     context windows, prices, and how a count is calibrated at first
caches      how long the caches of providers remember a prompt
tokenizer   token counts of messages
"""
