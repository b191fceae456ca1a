"""An upstream at the proxy's own address is refused, and no other is."""

import pytest

from proxy.cli import main
from proxy.config.faults import InvalidConfig
from proxy.config.loading import load
from proxy.server import config_watch, supervisor
from tests.support.proxy_client import ask, chat, log_of, until
from tests.support.running_proxy import write_config

PORT = 18_800


def is_refused(host, base_url, port=PORT):
    loaded = load(
        None, {}, {("listen", "host"): host, ("listen", "port"): port, ("upstreams", 0, "base_url"): base_url}
    )
    try:
        config_watch.check_upstreams(loaded, loaded.config.listen)
    except InvalidConfig as invalid:
        (fault,) = invalid.faults
        assert fault.path == "upstreams.0.base_url"
        return True
    return False


@pytest.mark.parametrize("listen", ["127.0.0.1", "0.0.0.0", "localhost", "::", ""])
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LOCALHOST.", "0.0.0.0", "[::1]"])
def test_an_upstream_at_the_loopback_address_that_the_proxy_listens_on_is_refused(listen, host):
    assert is_refused(listen, f"http://{host}:{PORT}/v1")
    assert is_refused(listen, f"https://{host}:{PORT}")
    assert not is_refused(listen, f"http://{host}:{PORT + 1}/v1")
    assert not is_refused(listen, f"http://{host}:{PORT}/v1", port=0)


@pytest.mark.parametrize(
    ("listen", "host", "is_own"),
    [
        ("::1", "[::1]", True),
        ("::", "[::1]", True),
        ("::1", "localhost", True),
        ("::", "[::]", True),
        ("proxy.internal", "Proxy.internal", True),
        ("10.1.2.3", "10.1.2.3", True),
        ("127.0.0.1", "192.0.2.7", False),
        ("127.0.0.1", "127.0.0.2", False),
        ("0.0.0.0", "192.0.2.7", False),
        ("::", "[2001:db8::7]", False),
        ("10.1.2.3", "127.0.0.1", False),
        ("0.0.0.0", "api.example.com", False),
        ("127.0.0.1", "{model}.example.com", False),
    ],
)
def test_an_upstream_at_any_address_that_the_proxy_listens_on_is_refused_and_no_other(listen, host, is_own):
    assert is_refused(listen, f"http://{host}:{PORT}/v1") is is_own


def test_the_port_of_a_scheme_counts_as_well():
    assert is_refused("0.0.0.0", "https://localhost", port=443)
    assert is_refused("0.0.0.0", "http://localhost/v1", port=80)
    assert not is_refused("0.0.0.0", "https://localhost", port=80)


def test_serve_and_check_refuse_it_with_its_place(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(supervisor, "serve", lambda *_: 0)
    assert main(["serve", "--port", str(PORT), "--upstream", f"http://127.0.0.1:{PORT}/v1"]) == 1
    assert capsys.readouterr().err.startswith(
        "command line: upstreams.0.base_url: port 18800 of this host is the proxy's"
    )
    (tmp_path / "proxy.yaml").write_text("upstreams:\n  - name: here\n    base_url: http://localhost:8800/v1\n")
    assert main(["check"]) == main(["serve"]) == 1
    first, second = capsys.readouterr().err.splitlines()
    assert first == second
    assert first.startswith("proxy.yaml:3: upstreams.0.base_url: ")


@pytest.mark.seconds
@pytest.mark.parametrize("listen", [{}, {"port": 1}], ids=["same-port", "another-port-after-the-next-start"])
async def test_a_reload_that_would_begin_a_loop_is_refused(up, serve, listen):
    config = {"upstreams": [{"base_url": up.url}], "log": {"format": "json"}}
    async with serve(None, config=config) as proxy:
        write_config({**config, "listen": listen, "upstreams": [{"base_url": proxy.url}]}, proxy.place)
        await until(lambda: log_of(proxy, "config-refused"))
        assert (await ask(proxy, chat())).status == 200


async def test_a_chain_of_two_proxies_serves(up, serve):
    async with serve(up.url) as behind, serve(behind.url) as front:
        assert (await ask(front, chat())).status == 200
