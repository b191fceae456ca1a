"""The heart meets the world: what it must know is gathered here, and what it decides is carried out.

`compactor` is the story of one request, `aftermath` that of its answer: read these two, and the rest where they use it.

what is gathered     wish        what a request asks for, in its headers
                     offer       which policy may apply to it
                     case        the request, its policy, its upstream, its window
                     facts       whose history it is; when it was last forwarded and what the upstream counted then
                     recall      what the store remembers of it
                     probe       windows that upstreams were asked for
                     lessons     windows that overflows taught
                     ground      all of it as one value; then what was decided, and how the request leaves
what is done         judging     the heart at work
                     history_threads  threads for large histories, so that none holds up the others
                     explicit    what a client asks for by name, answered here
                     recovery    what may be tried once more after a refusal
                     known       whose originals may be kept already
                     keeping     what is handed to the originals, and when
                     account     what is told of the request once its answer is through
who summarises       candidate   a summary on its way, as the store has it
                     errand      one question to a model, and what came of it
                     summarizer  one flight for one question, whoever asks
"""
