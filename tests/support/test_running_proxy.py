"""Ports of the proxies that tests start."""

from itertools import islice, repeat
from pathlib import Path

import pytest

from tests.support.running_proxy import free_port

PORTS_OF_THE_SYSTEM = Path("/proc/sys/net/ipv4/ip_local_port_range")


def test_a_port_is_given_once_and_never_one_that_another_socket_gets_by_asking_for_any():
    """Else, between choice and listening, an upstream of a test beside it takes the port of a proxy."""
    ports = list(islice((free_port() for _ in repeat(None)), 300))
    assert len(set(ports)) == len(ports)
    if not PORTS_OF_THE_SYSTEM.exists():
        pytest.skip("this system does not tell which ports it gives away")
    assert max(ports) < int(PORTS_OF_THE_SYSTEM.read_text().split()[0])
