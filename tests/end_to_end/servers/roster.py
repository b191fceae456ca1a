"""The servers, lightest first, and what each is known to do; and LiteLLM, which needs servers behind it."""

from pathlib import Path

from tests.end_to_end.servers.server import PROGRAMS, Server

# A small window is soon full; below 8,000 nothing that a refusal says is believed.
SMALL = 8_192
# A server that tells its window is asked in the background, once a history has some 2,000 tokens.
WORTH_ASKING = 20_480


def _llama_cpp(folder: Path, port: int, window: int) -> tuple[str, ...]:
    return "python", str(PROGRAMS / "serve_llama_cpp.py"), str(folder / "tiny.gguf"), str(port), str(window)


def _llama_cpp_python(folder: Path, port: int, window: int) -> tuple[str, ...]:
    options = f"--n_ctx {window} --host 127.0.0.1 --port {port} --n_threads 1 --n_threads_batch 1"
    return "python", "-m", "llama_cpp.server", "--model", str(folder / "tiny.gguf"), *options.split()


def _mlx_lm(folder: Path, port: int, window: int) -> tuple[str, ...]:
    return "mlx_lm.server", "--model", str(folder), "--port", str(port)


def _litellm(folder: Path, port: int, window: int) -> tuple[str, ...]:
    return "litellm", "--config", str(folder / "litellm.yaml"), "--host", "127.0.0.1", "--port", str(port)


LLAMA_CPP = Server(
    "llama.cpp",
    "xllamacpp",
    _llama_cpp,
    makes="make_gguf.py",
    window=WORTH_ASKING,
    known_as="llama.cpp",
    tells_window=True,
    refuses=True,
    tells_cached=True,
    tells_usage_of_streams=True,
)
MLX_LM = Server(
    "mlx-lm",
    "mlx-lm",
    _mlx_lm,
    makes="make_folder.py",
    window=SMALL,
    model="default_model",
    tells_cached=True,
    tells_usage_of_streams=True,
)
LLAMA_CPP_PYTHON = Server(
    "llama-cpp-python", "llama-cpp-python", _llama_cpp_python, makes="make_gguf.py", window=SMALL, refuses=True
)

SERVERS = (LLAMA_CPP, MLX_LM, LLAMA_CPP_PYTHON)
LITELLM = Server("litellm", "litellm", _litellm)
