"""llama.cpp's own server, from its wheel: `python serve_llama_cpp.py MODEL PORT CONTEXT`. Ends on SIGTERM."""

import signal
import sys

import xllamacpp


def main(model: str, port: int, context: int) -> None:
    wanted = xllamacpp.CommonParams()
    wanted.model.path = model
    wanted.model_alias = {"tiny"}
    wanted.port = port
    wanted.n_ctx = context
    wanted.n_parallel = 1
    wanted.use_jinja = True
    # Its threads wait for one another without sleeping: on a busy machine two are slower than one.
    wanted.cpuparams.n_threads = wanted.cpuparams_batch.n_threads = 1
    server = xllamacpp.Server(wanted)
    print(server.listening_address, flush=True)  # noqa: T201 - who started it may want to know
    signal.sigwait({signal.SIGTERM, signal.SIGINT})


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
