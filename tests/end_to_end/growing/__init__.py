"""Generated conversations that grow turn by turn through the proxy, under every policy and in small windows.

`run.py` plays them and notes what must not have happened. They are made by `tests/support/growing_histories.py`;
`tests/support/history_judge.py` judges them, without any code that serves.
"""
