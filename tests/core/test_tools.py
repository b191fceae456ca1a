"""What tools mean, by their names."""

import tracemalloc

from proxy.core.agents import find_kind, matches_any


def test_names_of_tools_take_no_memory_however_long_they_are():
    find_kind("x", {})
    tracemalloc.start()
    for number in range(100):
        name = f"{number}" + "x" * 100_000
        assert (find_kind(name, {}), matches_any(name, ("y*",))) == ("other", False)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 2_000_000
