"""Facts about models.

windows     context windows, prices, how a count is calibrated at first, how long providers cache a prompt
tokenizer   token counts of messages
"""
