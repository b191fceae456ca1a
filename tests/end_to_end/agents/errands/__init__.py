"""Sixty steps of an operator's day, run by real agents: what came of each must be told to the end.

`day.yaml` lists the steps, `printed/` holds what their commands print: long, with what matters in one or two lines.
`plan.py` reads both and makes the directory they are done in; `facts.py` is what a reader of the last request should be
able to tell, `model.py` the scripted model, `roster.py` the agents.
"""
