"""Facts about models.

names             names of models, as providers, routers and clouds spell them
thinking          models that bind their thinking to the history before it
windows           context windows and prices
window_probes     context windows as servers report them
token_encodings   text to a number of tokens
tokenizer         token counts of messages
calibrations      how far a count is from the upstream's own
"""
