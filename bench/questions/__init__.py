"""Questions about recorded conversations, answered from the view that a policy forwards.

questions.yaml    the questions, written by reading the original conversations
judge             whether a view answers a question, or answers it falsely
__main__          every policy's views of the checkpoints, and the table
"""
