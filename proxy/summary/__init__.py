"""Summaries by a model. Their values and their check are in `shorten.summary`.

question  what a model is asked for a summary, and how the question is made to fit
calls     calls to a model, and those in progress in this worker
"""
