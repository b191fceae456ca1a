"""Conversations, generated and recorded, that grow turn by turn through the proxy, under every policy and in small
windows.

`run.py` plays them and notes what must not have happened. What is generated is made by
`tests/support/growing_histories.py`; `tests/support/history_judge.py` judges all, without any code of the proxy.
"""
