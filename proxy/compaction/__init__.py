"""The heart meets the world: what it must know is gathered here, and what it decides is carried out.

wish        what a request asks for                   case        a request, its policy, its window
facts       whose history it is, the last usage       recall      what the store remembers, and what it is told
probe       asks an upstream for its windows          ground      what a case is judged on, what was decided
lessons     the windows that overflows taught         recovery    what may be tried once more after a refusal
candidate   a summary on its way                      errand      a question to a model, and what came of it
summarizer  one flight for one question               explicit    what a client asks for by name
keeping     what of it the originals are given        judging     where the heart's work is done
compactor   gather, decide, keep, render              aftermath   what is made of an answer
"""
