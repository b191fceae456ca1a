"""Generated conversations that grow turn by turn through the running proxy, under every policy and in small windows.

`run.py` plays them and notes what must not have happened. The text in them is made by
`tests/support/growing_histories.py` and judged by `tests/support/history_judge.py`, without any code of the proxy.
"""
