"""Recorded conversations, turn by turn: what a policy, or any proxy, makes of them, and what that is worth.

values      what goes in and what comes out       history    a conversation read once: messages, requests, clock
sessions/   the files of today's agents           sample     conversations of our own making
heart       through a policy, in this process     through    through a running proxy, with an upstream that records
designs     plain designs to compare with         summaries  who answers when a summary is wanted (standin: no model)
scoring     what was forwarded, judged:           run        many at once, in parallel, resumable
cache, prices, terms, recall, validity, estimator: one measure each (docs/scorecard.md); texts: what a message says
scorecard   the columns                           report/    the page with pictures
"""
