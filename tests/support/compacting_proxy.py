"""The proxy of the end-to-end tests: its settings, the work an agent does in it, and what it leaves on disk."""

import json
import sqlite3
from dataclasses import dataclass

from tests.support.agent import reading
from tests.support.messages import assistant, user
from tests.support.proxy_client import page as own_page
from tests.support.running_proxy import Proxy
from tests.support.scripted_upstream import Upstream

# Small figures, so that a stride takes a dozen turns and not a hundred.
SMALL = {"clear_at_least": 3_000, "keep": {"tokens": 1_000}}
WIDE = {"window": 1_000_000}  # what is known is not asked for: the upstream hears from agents only
FIGURES = ("tokens-before", "tokens-after", "policy", "conversation", "reason")
WORK = reading(24)
LONGER = reading(40)
ASIDE = [*WORK, *assistant("Done."), *user("And now?")]


def settings(*upstreams, **policies):
    default = {**SMALL, **policies.pop("default", {})}
    return {"upstreams": [*upstreams, WIDE], "policies": {"default": default, **policies}, "log": {"format": "json"}}


def upstreams_by_model(url, pairs):
    """An upstream for each policy and window, which serves models whose names begin with both."""
    named = [(f"{name}-{window}", {"policy": name, "window": window}) for name, window in pairs]
    return [{"name": name, "base_url": url, "models": [f"{name}-*"], **own} for name, own in named]


@dataclass(frozen=True, slots=True)
class Stack:
    up: Upstream
    proxy: Proxy


def database(place):
    return place / "promises.sqlite"


def rows(place, query, *values):
    with sqlite3.connect(database(place)) as db:
        found = db.execute(query, values).fetchall()
    db.close()
    return found


def find_saved_work(place, work):
    """The files that hold the originals of this work, and their lines of what was sent."""
    task = json.dumps(work[1]["content"]).encode()
    files = [file for file in (place / "originals").rglob("*.jsonl") if task in file.read_bytes()]
    lines = [json.loads(line) for file in files for line in file.read_bytes().splitlines()]
    return files, [line for line in lines if "answer" not in line]


async def metric(proxy, name, **labels):
    """The sum of a counter over all series with these labels."""
    lines = (await own_page(proxy, "/metrics")).body.data.decode().splitlines()
    wanted = [f'{key}="{value}"' for key, value in labels.items()]
    series = [line for line in lines if line.startswith(f"compaction_proxy_{name}") and all(w in line for w in wanted)]
    return sum(float(line.rpartition(" ")[2]) for line in series)
