"""Summaries by a model. Their values and their check are in `shorten.summary`.

    question -> call (up to three tries) -> judged -> candidate in the store -> block of a later request

1. `question` says which messages a model is asked about, and fits them into its window.
2. `call` asks, and again with another body if the answer is cut off or refused.
3. `pending` keeps at most one call for each history under way, across workers by a claim in the store. A request that
   waits takes part in that call.

question  the question for a summary, and how it is made to fit
call      one call of a model for a summary
pending   the calls that are under way, in this worker and in others
"""
