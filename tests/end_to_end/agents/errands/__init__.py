"""Sixty steps of an operator's day, run by real agents: what came of each must be told to the end.

`outputs.py` is what the commands print, `plan.py` the steps and the directory they are done in, `facts.py` what a
reader of the last request should be able to tell, `model.py` the scripted model, `roster.py` the agents.
"""
