"""From file, environment and command line to one configuration, or to everything that is wrong with it."""

import pickle
from pathlib import Path

import pytest

from proxy.config.defaults import as_yaml
from proxy.config.faults import InvalidConfig
from proxy.config.loading import load
from proxy.config.settings import Config, State

CANARY = "sk-canary-3f9a"


@pytest.fixture
def write_file(tmp_path):
    """Writes a configuration file and answers its path."""

    def write(text):
        file = tmp_path / "proxy.yaml"
        file.write_text(text)
        return file

    return write


def faults(file=None, environ=None, options=None):
    with pytest.raises(InvalidConfig) as raised:
        load(file, environ or {}, options)
    return [str(fault) for fault in raised.value.faults]


def test_faults_of_variables_and_options_stand_behind_those_of_the_file(write_file):
    file = write_file("port: 80\nlog: {level: warn}\n")
    found = faults(file, {"COMPACTION_PROXY_LISTEN__WORKER": "2"}, {("log", "format"): "xml"})
    origins = [f"{file}:1", f"{file}:2", "COMPACTION_PROXY_LISTEN__WORKER", "command line"]
    assert [fault.partition(": ")[0] for fault in found] == origins


def test_lists_in_lists_without_end_are_a_fault_of_the_file(write_file):
    """Whatever else was raised would end the watch over the file: nothing would ever be reloaded again."""
    file = write_file(f"listen: {'[' * 500}{']' * 500}\n")
    assert faults(file)[0].startswith(f"{file}:")


@pytest.mark.parametrize("value", ["0x" + "f" * 5_000, "9" * 5_000, "-0x" + "f" * 5_000])
def test_a_number_of_thousands_of_digits_is_a_fault_of_its_setting(write_file, value):
    file = write_file(f"listen: {{port: {value}}}\n")
    assert faults(file)[0].startswith(f"{file}:")
    (fault,) = faults(environ={"COMPACTION_PROXY_LISTEN__PORT": value})
    assert fault.startswith("COMPACTION_PROXY_LISTEN__PORT: listen.port: ")
    assert len(fault) < 200


def test_a_file_that_is_no_text_is_refused(tmp_path):
    for content in (b"\xff\xfe\x00", b"listen: \x00"):
        file = tmp_path / "proxy.yaml"
        file.write_bytes(content)
        (fault,) = faults(file)
        assert fault.startswith(f"{file}: ")


@pytest.mark.parametrize("text", ["", "# nothing\n", "listen:\n", "---\n"])
def test_a_file_that_sets_nothing_is_a_good_one(write_file, text):
    file = write_file(text)
    state = State().model_copy(update={"dir": str(file.parent / "state")})
    assert load(file, {}).config == Config().model_copy(update={"state": state})


def test_folders_that_a_file_names_are_relative_to_it(write_file, monkeypatch, tmp_path):
    file = write_file("state: {dir: mine}\ntranscripts: {dir: ../originals}\n")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    config = load(file, {}).config
    assert config.state.dir == str(file.parent / "mine")
    assert config.originals.resolve() == (file.parent.parent / "originals").resolve()


def test_folders_of_variables_and_options_are_relative_to_the_working_directory(write_file):
    file = write_file("state: {dir: mine}\ntranscripts: {dir: mine}\n")
    variables = {"COMPACTION_PROXY_TRANSCRIPTS__DIR": "theirs"}
    config = load(file, variables, {("state", "dir"): "theirs"}).config
    assert (config.state.dir, config.originals) == ("theirs", Path("theirs"))
    assert load(None, {}).config.state.dir == "./state"


def test_an_object_store_is_relative_to_nothing(write_file):
    assert (
        load(write_file("transcripts: {dir: s3://bucket/prefix}\n"), {}).config.transcripts.dir == "s3://bucket/prefix"
    )


def test_state_where_version_0_3_kept_it_is_not_left_behind_silently(write_file, monkeypatch, tmp_path):
    """Without the old registry no team key would be valid, and nobody would know why."""
    file = write_file("teams: {red: {}}\n")
    (tmp_path / "elsewhere" / "state").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "elsewhere")
    (fault,) = faults(file)
    assert fault.startswith(f"{file}: state.dir: is relative to this file now")
    assert f"move {tmp_path}/elsewhere/state there" in fault
    (file.parent / "state").mkdir()
    assert load(file, {}).config.state.dir == str(file.parent / "state")


def test_no_file_is_needed():
    loaded = load(None, {})
    assert loaded.config == Config()
    assert loaded.origin("listen", "port") == "default"


def test_a_variable_overrides_the_file_and_the_command_line_overrides_both(write_file):
    file = write_file("listen:\n  port: 1111\n  host: 127.0.0.2\n  workers: 2\n")
    environ = {"COMPACTION_PROXY_LISTEN__PORT": "2222", "COMPACTION_PROXY_LISTEN__HOST": "127.0.0.3"}
    loaded = load(file, environ, {("listen", "port"): 3333})
    listen = loaded.config.listen
    assert (listen.port, listen.host, listen.workers) == (3333, "127.0.0.3", 2)
    assert loaded.origin("listen", "port") == "command line"
    assert loaded.origin("listen", "host") == "COMPACTION_PROXY_LISTEN__HOST"
    assert loaded.origin("listen", "workers") == f"{file}:4"
    assert loaded.origin("listen", "max_in_flight") == f"{file}:1"
    assert loaded.origin("log", "level") == "default"


def test_a_variable_of_another_name_that_exists_is_taken(write_file):
    """Of a Secret in Kubernetes, say."""
    loaded = load(write_file("upstreams: [{key: env:openai-api.key}]\n"), {"openai-api.key": "sk-1"})
    assert loaded.config.upstreams[0].key.value == "sk-1"


def test_openai_upstream_names_the_upstream_where_the_file_names_none(write_file):
    environ = {"OPENAI_UPSTREAM": "http://localhost:1234/v1"}
    shipped = load(write_file(as_yaml()), environ)
    assert shipped.config.upstreams[0].base_url == "http://localhost:1234/v1", "`make run` in a checkout"
    keyed = load(write_file("upstreams: [{key: env:K}]\n"), {**environ, "K": "sk-1"})
    assert keyed.config.upstreams[0].base_url == "https://api.openai.com/v1", "its key goes nowhere else"
    loaded = load(None, environ)
    assert loaded.config.upstreams[0].base_url == "http://localhost:1234/v1"
    assert loaded.origin("upstreams", 0, "base_url") == "OPENAI_UPSTREAM"
    of_file = load(write_file("upstreams: [{base_url: http://localhost:5/v1}]\n"), environ)
    assert of_file.config.upstreams[0].base_url == "http://localhost:5/v1"
    of_options = load(None, environ, {("upstreams", 0, "base_url"): "http://localhost:6/v1"})
    assert of_options.config.upstreams[0].base_url == "http://localhost:6/v1"


KEYED = """
upstreams:
  - name: house
    base_url: https://api.house.example/v1
    key: env:K
    headers: {x-api-key: env:K}
    query: {code: abc}
    retries: 7
  - {name: other, models: [b], base_url: https://other.example, key: env:K}
teams: {red: {upstream: house, key: env:K}, blue: {upstream: other, key: env:K}}
"""
ADDRESS = "COMPACTION_PROXY_UPSTREAMS__0__BASE_URL"
OF_THE_OPTION = ("upstreams", 0, "base_url")


@pytest.mark.parametrize(
    ("variables", "options"),
    [
        ({}, {OF_THE_OPTION: "https://api.rival.example/v1"}),
        ({}, {OF_THE_OPTION: "http://api.house.example/v1"}),
        ({}, {OF_THE_OPTION: "https://api.house.example:8443/v1"}),
        ({ADDRESS: "https://api.rival.example/v1"}, {}),
    ],
)
def test_a_key_is_left_out_if_a_variable_or_an_option_names_another_server_for_its_upstream(
    write_file, variables, options
):
    loaded = load(write_file(KEYED), {"K": CANARY, **variables}, options)
    first, second = loaded.config.upstreams
    assert (first.key, first.headers, first.query, first.retries) == (None, {}, {}, 7)
    assert loaded.config.teams["red"].key is None
    assert (second.key.value, loaded.config.teams["blue"].key.value) == (CANARY, CANARY)
    who = next(iter(variables), "the command line")
    why = f"left out: {who} names another server than the one it is for"
    assert loaded.origin("upstreams", 0, "key") == why
    paths = ["upstreams.0.key", "upstreams.0.headers", "upstreams.0.query", "teams.red.key"]
    assert loaded.warnings == [(path, f"is {why}") for path in paths]


@pytest.mark.parametrize(
    ("settings", "variables", "options"),
    [
        ("", {"OPENAI_UPSTREAM": "https://api.rival.example"}, {}),
        ("", {}, {OF_THE_OPTION: "https://api.rival.example"}),
        ("upstreams: []", {}, {OF_THE_OPTION: "https://api.rival.example"}),
        (
            "upstreams: [{retries: 7}]",
            {"COMPACTION_PROXY_UPSTREAMS__0": '{"base_url": "https://api.rival.example"}'},
            {},
        ),
        (
            "upstreams: [{retries: 7}]",
            {"COMPACTION_PROXY_UPSTREAMS": '[{"base_url": "https://api.rival.example"}]'},
            {},
        ),
    ],
)
def test_the_key_of_a_team_is_left_out_however_another_server_is_named(write_file, settings, variables, options):
    file = write_file(f"teams: {{red: {{upstream: default, key: env:K}}}}\n{settings}")
    loaded = load(file, {"K": CANARY, **variables}, options)
    assert loaded.config.upstreams[0].base_url.startswith("https://api.rival.example")
    assert loaded.config.teams["red"].key is None
    who = next(iter(variables), "the command line")
    why = f"is left out: {who} names another server than the one it is for"
    assert loaded.warnings == [("teams.red.key", why)]


def test_what_a_variable_sets_beside_the_other_server_stays_and_nothing_is_said_of_it(write_file):
    variables = {
        ADDRESS: "https://api.rival.example",
        "COMPACTION_PROXY_UPSTREAMS__0__KEY": "env:K",
        "COMPACTION_PROXY_UPSTREAMS__0__HEADERS__X_NEW": "new",
        "COMPACTION_PROXY_TEAMS__RED__KEY": "env:K",
    }
    loaded = load(write_file(KEYED), {"K": CANARY, **variables})
    first = loaded.config.upstreams[0]
    assert (first.key.value, first.headers, first.query) == (CANARY, {"x_new": "new"}, {})
    assert loaded.config.teams["red"].key.value == CANARY
    assert [path for path, _ in loaded.warnings] == ["upstreams.0.headers", "upstreams.0.query"]
    assert loaded.origin("upstreams", 0, "headers", "x_new") == "COMPACTION_PROXY_UPSTREAMS__0__HEADERS__X_NEW"


STORED = "transcripts: {dir: 's3://b/x', endpoint: 'https://house.example', key: env:K, secret: env:K, token: env:K}"
WITHOUT_ENDPOINT = STORED.replace(" endpoint: 'https://house.example',", "")
SENT = "otel: {endpoint: 'https://house.example', headers: {authorization: env:K}}"
OF_THE_BUCKET = ["transcripts.key", "transcripts.secret", "transcripts.token"]


@pytest.mark.parametrize(
    ("settings", "variable", "value", "left_out"),
    [
        (STORED, "TRANSCRIPTS__ENDPOINT", "https://rival.example", OF_THE_BUCKET),
        (STORED, "TRANSCRIPTS__ENDPOINT", "''", OF_THE_BUCKET),
        (STORED, "TRANSCRIPTS__DIR", "gs://b/x", OF_THE_BUCKET),
        (STORED, "TRANSCRIPTS__DIR", "s3://another/x", []),
        (STORED, "TRANSCRIPTS__DIR", "originals", []),
        (WITHOUT_ENDPOINT, "TRANSCRIPTS__ENDPOINT", "https://rival.example", []),
        (SENT, "OTEL__ENDPOINT", "https://rival.example", ["otel.headers"]),
        (SENT, "OTEL__ENDPOINT", "https://house.example/v2", []),
        (SENT, "OTEL__ENDPOINT", "''", []),
        ("otel: {headers: {authorization: env:K}}", "OTEL__ENDPOINT", "https://rival.example", []),
        (KEYED, "TEAMS__RED__UPSTREAM", "other", ["teams.red.key"]),
        (KEYED, "TEAMS__RED__UPSTREAM", "house", []),
    ],
)
def test_credentials_of_any_kind_are_left_out_if_a_variable_names_another_server(
    write_file, settings, variable, value, left_out
):
    variable = f"COMPACTION_PROXY_{variable}"
    loaded = load(write_file(settings), {"K": CANARY, variable: value})
    why = f"is left out: {variable} names another server than the one it is for"
    assert loaded.warnings == [(path, why) for path in left_out]


@pytest.mark.parametrize("url", ["https://API.house.example:443/v2", "https://api.house.example/v1"])
def test_a_key_stays_if_only_the_path_of_its_server_is_another(write_file, url):
    loaded = load(write_file(KEYED), {"K": CANARY}, {OF_THE_OPTION: url})
    assert (loaded.config.upstreams[0].key.value, loaded.warnings) == (CANARY, [])


def test_a_key_without_an_address_is_for_the_openai_api_unless_a_variable_names_both(write_file):
    key = {"K": CANARY, "COMPACTION_PROXY_UPSTREAMS__0__KEY": "env:K"}
    of_option = load(None, key, {OF_THE_OPTION: "https://api.rival.example"})
    assert of_option.config.upstreams[0].key is None
    of_file = load(write_file("upstreams: [{key: env:K}]"), {"K": CANARY, ADDRESS: "https://api.rival.example"})
    assert of_file.config.upstreams[0].key is None
    for variable in (ADDRESS, "OPENAI_UPSTREAM"):
        both = load(None, {**key, variable: "https://api.rival.example"})
        assert both.config.upstreams[0].key.value == CANARY


def test_a_key_that_is_left_out_need_not_be_there(write_file):
    assert load(write_file("upstreams: [{key: env:MISSING}]"), {}, {OF_THE_OPTION: "http://localhost:1"}).warnings


def test_a_variable_reaches_into_a_list_and_may_add_to_it(write_file):
    file = write_file("upstreams:\n  - {name: a, base_url: http://localhost:1/v1}\n")
    environ = {
        "COMPACTION_PROXY_UPSTREAMS__0__RETRIES": "7",
        "COMPACTION_PROXY_UPSTREAMS__1__NAME": "b",
        "COMPACTION_PROXY_UPSTREAMS__1__MODELS": '["claude-*"]',
    }
    first, second = load(file, environ).config.upstreams
    assert (first.name, first.base_url, first.retries) == ("a", "http://localhost:1/v1", 7)
    assert (second.name, second.models) == ("b", ("claude-*",))


def test_other_variables_are_none_of_our_business():
    assert load(None, {"PATH": "x", "COMPACTION_PROX": "y", "COMPACTION_PROXYLISTEN__PORT": "1"}).config == Config()


def test_a_date_in_a_file_or_variable_stays_text(write_file):
    file = write_file("upstreams:\n  - query: {api-version: 2024-10-21}\n")
    assert load(file, {}).config.upstreams[0].query == {"api-version": "2024-10-21"}
    environ = {"COMPACTION_PROXY_UPSTREAMS__0__QUERY__API-VERSION": "2024-10-21"}
    assert load(None, environ).config.upstreams[0].query == {"api-version": "2024-10-21"}


def test_a_secret_comes_from_a_variable_or_a_file(write_file, tmp_path):
    (tmp_path / "key").write_text(f"{CANARY}\n", encoding="utf-8-sig")  # some editors write a byte order mark
    file = write_file(f"upstreams:\n  - {{name: a, key: env:KEY}}\n  - {{name: b, key: 'file:{tmp_path}/key'}}\n")
    first, second = load(file, {"KEY": CANARY}).config.upstreams
    assert first.key.value == second.key.value == CANARY


def test_no_secret_is_in_any_form_of_a_configuration(write_file):
    file = write_file("upstreams:\n  - key: env:KEY\n    headers: {x-api-key: 'env:KEY', x-team: red}\n")
    loaded = load(file, {"KEY": CANARY})
    config = loaded.config
    shown = [repr(config), str(config), repr(loaded), f"{config.upstreams[0].key!s}", repr(config.model_dump())]
    assert not [form for form in shown if CANARY in form]
    assert all("env:KEY" in form for form in shown)
    assert CANARY.encode() in pickle.dumps(config.upstreams[0].key.value)  # it is still there
