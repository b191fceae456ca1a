"""Makes everything in proxy/models/data, from two MIT-licensed packages: the running proxy fetches nothing.

    python bench/build_data.py            # asks pip for the packages, rewrites proxy/models/data

LiteLLM carries tiktoken's rank files byte for byte, and a table of limits and prices. Its `max_input_tokens` is at
times the input limit (gpt-5) and at times the whole context (gpt-5.5), and taking one for the other overflows;
genai-prices knows the whole context of the same models: where it is larger, LiteLLM's number is an input limit.
"""

import base64
import importlib
import json
import lzma
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

from proxy.foundation.model_names import plain_name, without_date

DATA = Path(__file__).parent.parent / "proxy" / "models" / "data"
PACKAGES = {"litellm": "1.109.1", "genai-prices": "0.2.3"}
RANKS = {  # tiktoken names its cached files by the SHA-1 of where they came from
    "o200k_base": "fb374d419588a4632f3f557e76b4b70aebbca790",
    "cl100k_base": "9b5ad71b2ce5302211f9c61530b329a4922fc6a4",
}
MAKERS = (
    "openai",
    "anthropic",
    "google",
    "deepseek",
    "mistral",
    "x-ai",
    "moonshotai",
    "zai",
    "minimax",
    "cohere",
    "meta",
)
PRICES = (
    "input_cost_per_token",
    "cache_read_input_token_cost",
    "cache_creation_input_token_cost",
    "output_cost_per_token",
)
CLIFFS = (32, 100, 128, 200, 256, 272, 512)  # thousands of tokens: the steps the price lists of today know

Row = dict[str, Any]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        wheels = download(Path(folder))
        for name, source in RANKS.items():
            text = read(wheels["litellm"], f"litellm/litellm_core_utils/tokenizers/{source}")
            (DATA / f"{name}.ranks.xz").write_bytes(lzma.compress(pack_ranks(text), preset=9 | lzma.PRESET_EXTREME))
        table = json.loads(read(wheels["litellm"], "litellm/model_prices_and_context_window_backup.json"))
        rows = dict(sorted(slim(table, contexts(Path(folder), wheels["genai-prices"])).items()))
        write_table(DATA / "models.json", rows)
        for package, wheel in wheels.items():
            (DATA / "LICENSES" / f"{package}.txt").write_bytes(licence(wheel))
    own = distribution("tiktoken").read_text("licenses/LICENSE") or ""
    (DATA / "LICENSES" / "tiktoken.txt").write_text(own)
    print(f"{len(rows)} models, {sum(file.stat().st_size for file in DATA.iterdir() if file.is_file()):,} bytes")


def download(folder: Path) -> dict[str, Path]:
    pins = [f"{name}=={version}" for name, version in PACKAGES.items()]
    subprocess.run([sys.executable, "-m", "pip", "download", "--no-deps", "-q", "-d", folder, *pins], check=True)
    return {name: next(folder.glob(f"{name.replace('-', '_')}-*.whl")) for name in PACKAGES}


def read(wheel: Path, name: str) -> bytes:
    with zipfile.ZipFile(wheel) as archive:
        return archive.read(name)


def licence(wheel: Path) -> bytes:
    with zipfile.ZipFile(wheel) as archive:
        return archive.read(next(name for name in archive.namelist() if name.endswith("licenses/LICENSE")))


def pack_ranks(ranks: bytes) -> bytes:
    """`base64 rank` lines -> each token after one byte with its length: the rank is the place, and it packs 4:1."""
    lines = [line.split() for line in ranks.splitlines()]
    if [int(rank) for _, rank in lines] != list(range(len(lines))):
        raise SystemExit("the ranks are not contiguous: a token's place is no longer its rank")
    tokens = [base64.b64decode(token) for token, _ in lines]
    return b"".join(bytes([len(token)]) + token for token in tokens)


def contexts(folder: Path, wheel: Path) -> dict[str, int]:
    """Model -> whole context, as its maker states it (resellers often offer less, and say so in their /v1/models)."""
    installed = folder / "installed"  # with what it imports
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--target", installed, wheel], check=True)
    sys.path.insert(0, str(installed))
    providers = importlib.import_module("genai_prices.data").providers
    return {
        plain_name(model.id): model.context_window
        for provider in providers
        if provider.id in MAKERS
        for model in provider.models
        if model.context_window
    }


def slim(table: dict[str, Row], contexts: dict[str, int]) -> dict[str, list[Any]]:
    """One row per model under its plain name: its maker's where the maker is in the table, else the smallest."""
    chosen: dict[str, tuple[tuple[bool, int], Row]] = {}
    for name, row in chat_models(table):
        reseller = "/" in name or "." in name.partition("-")[0]
        order = (reseller, row["max_input_tokens"])
        plain = plain_name(name)
        if plain not in chosen or order < chosen[plain][0]:
            chosen[plain] = (order, row)
    rows: dict[str, list[object]] = {name: [context, None, None, None, []] for name, context in contexts.items()}
    rows |= {name: [*limits(row, contexts.get(name)), *money(row)] for name, (_, row) in chosen.items()}
    return {
        name: row for name, row in rows.items() if rows.get(without_date(name)) != row or without_date(name) == name
    }


def chat_models(table: dict[str, Row]) -> Iterator[tuple[str, Row]]:
    for name, row in table.items():
        reads = row.get("max_input_tokens")
        if row.get("mode") in ("chat", "responses") and isinstance(reads, int) and reads > 0:
            yield name, row


def limits(row: Row, context: int | None) -> list[int | None]:
    """[total, input, output]. What is not known to be an input limit is taken for the total: the safe side."""
    input_tokens, output = row["max_input_tokens"], row.get("max_output_tokens")
    small_enough = output if isinstance(output, int) and output < input_tokens else None
    if context and context > input_tokens:
        return [context, input_tokens, small_enough]
    return [input_tokens, None, small_enough]


def money(row: Row) -> Iterable[Any]:
    """[prices, cliffs]: dollars per million tokens (input, cache read, cache write, output), then (above, prices)."""
    now = prices(row, "")
    if now is None:
        return [None, []]
    steps = ((thousand * 1000, prices(row, f"_above_{thousand}k_tokens")) for thousand in CLIFFS)
    return [now, [[above, then] for above, then in steps if then]]


def prices(row: Row, suffix: str) -> list[float | None] | None:
    found = [row.get(name + suffix) for name in PRICES]
    if not found[0]:
        return None
    return [round(price * 1e6, 4) if isinstance(price, int | float) else None for price in found]


def write_table(path: Path, rows: dict[str, list[Any]]) -> None:
    """One model a line, so that a new release of the table is a diff a person can read."""
    lines = (f"{json.dumps(name)}:{json.dumps(row, separators=(',', ':'))}" for name, row in rows.items())
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
