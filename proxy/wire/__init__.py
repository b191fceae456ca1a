"""Bytes to values and back, still pure: no socket, no clock, no log. What a file does not understand passes as it came.

requests   paths      normal forms, and what a key of ours may call      routing    the model a body names
           headers    what travels on, and what stays                    caller     whose request it is
           bodies     compressed bodies, opened under a limit            saved      conversations out of files
           chat       chat completions: parsed as an outline, rendered by splicing
           weight     what of a message a model reads
           redaction  secrets inside messages
answers    sse        event streams, relayed whole or ended with an error
           answers    an answer put together from what passes by
           usage      its `usage`                                        gauge      as the client is shown it
           overflow   what a refusal means                               silence    a prompt cut without a word
           spoken     answers of our own
"""
