"""Knowledge of today's agents by name: their tools, ledgers of their work, their questions, their outputs as text.

Kept apart because agents change faster than histories do. Everything else in the core works without knowing them.
"""
