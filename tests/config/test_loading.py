"""From file, environment and command line to one configuration, or to everything that is wrong with it."""

import pickle
import traceback
from pathlib import Path

import pytest

from proxy.config import Config, InvalidConfig, State, load
from proxy.config.defaults import as_yaml

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


def test_settings_that_contradict_each_other_are_reported_with_their_places(write_file):
    file = write_file(
        "teams:\n"
        "  red: {policy: missing}\n"
        "  blue: {upstream: none}\n"
        "policies:\n"
        "  a: {inherit: b}\n"
        "attachments:\n"
        "  - policy: default\n"
        "  - policy: missing\n"
    )
    assert faults(file) == [
        f"{file}:2: teams.red.policy: there is no policy 'missing'",
        f"{file}:3: teams.blue.upstream: there is no upstream 'none'",
        f"{file}:5: policies.a: inherits from 'b', and there is no such policy",
        f"{file}:8: attachments.1.policy: there is no policy 'missing'",
    ]


def test_a_setting_that_is_gone_for_long_is_refused_with_a_sentence_that_says_where_to_look(write_file):
    file = write_file(
        "policies:\n"
        "  mine:\n"
        "    headroom: 0.1\n"
        "    when_full: [{clear_results: {outline: 0.2}}, {dedup_old: {subsumes: []}}]\n"
    )
    refused = (
        "there is no such setting after version 0.2: remove it, or see `Removed settings` in CHANGELOG.md for what "
        "took its place"
    )
    assert [line.partition(": ")[2] for line in faults(file)] == [
        f"policies.mine.headroom: {refused}",
        f"policies.mine.when_full.0.clear_results.outline: {refused}",
        f"policies.mine.when_full.1.dedup_old.subsumes: {refused}",
    ]


def test_settings_and_policies_of_the_version_before_are_refused_with_a_sentence_that_says_what_to_do(write_file):
    file = write_file(
        "policies:\n"
        "  default: {clear_at_least: auto, clear_cold_at_least: 9000, horizon: 60, working_memory: 0.5}\n"
        "  mine: {summary: {notes: 750}}\n"
    )
    refused = "there is no such setting after version 0.3"
    when = "a history is shortened over `trigger`, or while the cache has expired"
    number = f"must be a number after version 0.3: remove it, for {when}"
    newest = "write `keep: {tokens: NUMBER}`, and a higher `target` if more than two thirds of it shall stay"
    gentle = "use `default`, whose newest 15,000 tokens stay, or raise `keep.tokens` and `target`"
    assert [line.partition(": ")[2] for line in faults(file)] == [
        f"policies.default.clear_at_least: {number} (it says 'auto')",
        f"policies.default.clear_cold_at_least: {refused}: write `fold_cold_at_least`; it is 30,000 tokens",
        f"policies.default.horizon: {refused}: remove it; {when}",
        f"policies.default.working_memory: {refused}: {newest}",
        f"policies.mine.summary.notes: {refused}: remove it; no notes are asked for before results are shortened",
    ]
    file = write_file("policies: {mine: {inherit: gentle}}\nupstreams: [{policy: notes}]\n")
    assert [line.partition(": ")[2] for line in faults(file)] == [
        f"policies.mine: inherits from 'gentle', and there is no such policy after version 0.3: {gentle}",
        "upstreams.0.policy: there is no policy 'notes' after version 0.3: use `default`",
    ]


def test_one_pass_reports_every_setting_that_is_wrong_by_itself_in_the_order_of_the_file(write_file):
    file = write_file(
        "listen: {port: 99999, prot: 1}\n"
        "upstreams:\n"
        "  - {name: main, window: -1}\n"
        "policies:\n"
        "  agents: {asides: ['('], trigger: 2, summary: {upstream: mian},\n"
        "    when_full: [{clear_result: {}},\n"
        "      {clear_results: {ovr: 1, keep_recent: much}}]}\n"
        "teams:\n"
        "  red: {policy: agent, upstream: mian}\n"
        "transcripts: {patterns: ['a|b']}\n"
        "log: {level: warn}\n"
        "port: 80\n"
    )
    found = faults(file, {"COMPACTION_PROXY_LISTEN__WORKER": "2"}, {("log", "format"): "xml"})
    assert [line.split(": ")[0].rpartition(":")[2] + " " + line.split(": ")[1] for line in found] == [
        "1 listen.port",
        "1 listen.prot",
        "3 upstreams.0.window",
        "5 policies.agents.trigger",
        "5 policies.agents.asides.0",
        "6 policies.agents.when_full.0",
        "7 policies.agents.when_full.1.clear_results.keep_recent",
        "7 policies.agents.when_full.1.clear_results.ovr",
        "10 transcripts.patterns.0",
        "11 log.level",
        "12 port",
        "COMPACTION_PROXY_LISTEN__WORKER listen.worker",
        "command line log.format",
    ]


@pytest.mark.parametrize(
    ("text", "path", "message"),
    [
        ("listen: {port: 99999}", "listen.port", "must be 65535 or less (it says 99999)"),
        ("listen: {workers: 10%}", "listen.workers", "must be a whole number, such as 4 (it says '10%')"),
        ("listen: {workers: auto}", "listen.workers", "must be a whole number, such as 4 (it says 'auto')"),
        ("listen: 8080", "listen", "must be a mapping of settings, such as `{name: value}` (it says 8080)"),
        ("listen: {prot: 80}", "listen.prot", "there is no such setting; did you mean 'port'?"),
        (
            "upstreams: [{silence_seconds: 10m}]",
            "upstreams.0.silence_seconds",
            "must be a number, such as 0.5 (it says '10m')",
        ),
        (
            "policies: {a: {trigger: 55%}}",
            "policies.a.trigger",
            "must be `auto`, or a number from 0 to 1 (it says '55%')",
        ),
        (
            "policies: {a: {trigger_tokens: 60k}}",
            "policies.a.trigger_tokens",
            "must be a whole number, such as 4 (it says '60k')",
        ),
        (
            "upstreams: [{base_url: api.openai.com}]",
            "upstreams.0.base_url",
            "'api.openai.com' has no scheme: write https://api.openai.com",
        ),
        (
            "upstreams: [{base_url: 'localhost:8000/v1'}]",
            "upstreams.0.base_url",
            "'localhost:8000/v1' has no scheme: write http://localhost:8000/v1",
        ),
        (
            "upstreams: [{base_url: 'vllm:8000'}]",
            "upstreams.0.base_url",
            "'vllm:8000' has no scheme: write http://vllm:8000",
        ),
        (
            "upstreams: [{base_url: sk-proj-4f1a2b3c}]",
            "upstreams.0.base_url",
            "must begin with https:// or http://, as in https://api.openai.com/v1 or http://localhost:8000",
        ),
        (
            "transcripts: {patterns: ['abc[']}",
            "transcripts.patterns.0",
            "not a regular expression: unterminated character set at position 3",
        ),
        (
            "access: {team_header: Authorization}",
            "access.team_header",
            "is the header of a key, which names no team: write another, such as x-team (it says 'Authorization')",
        ),
        (
            "admin: {user_header: x-api-key}",
            "admin.user_header",
            "is the header of a key, which names nobody: write another, such as x-auth-user (it says 'x-api-key')",
        ),
        (
            "teams: {a: {transcripts: false}}",
            "teams.a.transcripts",
            "there is no such setting here; there are policy, upstream, key; did you mean 'policies.NAME.transcripts'?",
        ),
        (
            "policies: {a: {store_text: false}, b: {inherit: a, transcripts: true}}",
            "policies.b.transcripts",
            "true contradicts `store_text: false`: leave it out, or write `store_text: true`",
        ),
        (
            "policies: {a: {without_originals: never}, b: {inherit: a, store_text: false}}",
            "policies.b.without_originals",
            "`never` waits for originals, and `store_text: false` saves none: write `always`",
        ),
        ("upstreams: {name: x}", "upstreams", "must be a list, such as `[one, two]`"),
        (
            "teams:\n  - {name: research}\n",
            "teams",
            "must be a mapping of settings: `teams: {research: {policy: default}}`",
        ),
        (
            "log: {level: waring}",
            "log.level",
            "must be 'debug', 'info', 'warning' or 'error'; did you mean 'warning'? (it says 'waring')",
        ),
        ("drain_seconds: 5", "drain_seconds", "there is no such setting; did you mean 'listen.drain_seconds'?"),
        ("base_url: http://x", "base_url", "there is no such setting; did you mean 'upstreams.0.base_url'?"),
        ("min_groups: 5", "min_groups", "there is no such setting; did you mean 'policies.NAME.min_groups'?"),
        ("policies: {a: {sumary: {}}}", "policies.a.sumary", "there is no such setting; did you mean 'summary'?"),
        (
            "policies: {agents: {}}\nupstreams: [{policy: agent}]",
            "upstreams.0.policy",
            "there is no policy 'agent'; did you mean 'agents'?",
        ),
        ("zzz: 5", "zzz", "there is no such setting"),
        (
            "upstreams: [{key: $OPENAI_API_KEY}]",
            "upstreams.0.key",
            "a secret is named, not written: write env:OPENAI_API_KEY",
        ),
        (
            "access: {hosts: 'https://a.example/x'}",
            "access.hosts.0",
            "a host name has no scheme, port or path: write a.example",
        ),
    ],
)
def test_a_fault_quotes_the_value_and_suggests_the_likely_one(write_file, text, path, message):
    (fault,) = faults(write_file(text))
    assert fault.endswith(f": {path}: {message}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("policies: {x: {observations: ['(a']}}", "policies.x.observations.0: not a regular expression: "),
        ("policies: {x: {pins: {patterns: ['(a']}}}", "policies.x.pins.patterns.0: not a regular expression: "),
    ],
)
def test_a_pattern_that_is_none_is_named(write_file, text, message):
    (fault,) = faults(write_file(text))
    assert f": {message}" in fault


def test_a_setting_that_appears_twice_is_reported_with_the_other_faults(write_file):
    file = write_file("listen:\n  port: 1\n  port: 2\nlog:\n  level: loud\n")
    first, second = faults(file)
    assert first == f"{file}:3: listen.port: is set a second time (first in line 2): remove one"
    assert second.startswith(f"{file}:5: log.level: ")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("listen: [\n", 2),
        ("a: b: c\n", 1),
        ("listen: !!python/object:os.system {}\n", 1),
        ("? [a]\n: 1\n", 1),
        ("a: *b\n", 1),
    ],
)
def test_invalid_yaml_is_reported_with_its_line(write_file, text, line):
    file = write_file(text)
    (fault,) = faults(file)
    assert fault.startswith(f"{file}:{line}: not YAML: ")


@pytest.mark.parametrize(
    "value", ["!!int x", "0b_", "!!timestamp x", "&it [*it]", "&it {host: *it}", "[" * 500 + "]" * 500]
)
def test_an_error_of_the_yaml_parser_is_a_fault_of_the_file(write_file, value):
    """Whatever else it raised would end the watch over the file: nothing would ever be reloaded again."""
    file = write_file(f"listen: {value}\n")
    assert faults(file)[0].startswith(f"{file}:")


@pytest.mark.parametrize("value", ["0x" + "f" * 5_000, "9" * 5_000, "-0x" + "f" * 5_000])
def test_a_number_of_thousands_of_digits_is_a_fault_of_its_setting(write_file, value):
    file = write_file(f"listen: {{port: {value}}}\n")
    assert faults(file)[0].startswith(f"{file}:")
    (fault,) = faults(environ={"COMPACTION_PROXY_LISTEN__PORT": value})
    assert fault.startswith("COMPACTION_PROXY_LISTEN__PORT: listen.port: ")
    assert len(fault) < 200


@pytest.mark.parametrize("text", ["just a text\n", "- a\n- list\n", "42\n"])
def test_a_file_that_is_no_mapping_is_refused(write_file, text):
    file = write_file(text)
    assert faults(file) == [f"{file}: the file must be a mapping of settings"]


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


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("COMPACTION_PROXY_NOPE", "nope"),
        ("COMPACTION_PROXY_NOPE__X", "nope"),
        ("COMPACTION_PROXY_LISTEN__NOPE", "listen.nope"),
        ("COMPACTION_PROXY_LISTEN__PORT__X", "listen.port"),
        ("COMPACTION_PROXY_UPSTREAMS__5__NAME", "upstreams.5.name"),
        ("COMPACTION_PROXY_UPSTREAMS__²__NAME", "upstreams.²"),
    ],
)
def test_an_unknown_variable_is_reported_by_name(write_file, name, path):
    (fault,) = faults(write_file("upstreams: [{name: a}]\n"), {name: "1"})
    assert fault.startswith(f"{name}: {path}")


@pytest.mark.parametrize("value", ["{", "[" * 500, "*it", "!!python/name:os.system", ""])
def test_a_variable_with_a_broken_value_is_reported_by_name_without_the_value(value):
    (fault,) = faults(environ={"COMPACTION_PROXY_LISTEN__PORT": value})
    assert fault.startswith("COMPACTION_PROXY_LISTEN__PORT: listen.port: ")
    assert not value or value not in fault


def test_other_variables_are_none_of_our_business():
    assert load(None, {"PATH": "x", "COMPACTION_PROX": "y", "COMPACTION_PROXYLISTEN__PORT": "1"}).config == Config()


def test_a_date_in_a_file_or_variable_stays_text(write_file):
    file = write_file("upstreams:\n  - query: {api-version: 2024-10-21}\n")
    assert load(file, {}).config.upstreams[0].query == {"api-version": "2024-10-21"}
    environ = {"COMPACTION_PROXY_UPSTREAMS__0__QUERY__API-VERSION": "2024-10-21"}
    assert load(None, environ).config.upstreams[0].query == {"api-version": "2024-10-21"}


def test_a_secret_comes_from_a_variable_or_a_file(write_file, tmp_path):
    (tmp_path / "key").write_text(f"{CANARY}\n")
    file = write_file(f"upstreams:\n  - {{name: a, key: env:KEY}}\n  - {{name: b, key: 'file:{tmp_path}/key'}}\n")
    first, second = load(file, {"KEY": CANARY}).config.upstreams
    assert first.key.value == second.key.value == CANARY


@pytest.mark.parametrize("reference", ["env:MISSING", "env:EMPTY", "file:/nowhere/at/all", "file:/"])
def test_a_secret_that_is_not_there_is_a_fault(write_file, reference):
    file = write_file(f"upstreams:\n  - key: {reference}\n")
    (fault,) = faults(file, {"EMPTY": " \n"})
    assert fault.startswith(f"{file}:2: upstreams.0.key: ")
    assert fault.endswith("is empty or missing")


SPOILED = [
    f"upstreams:\n  - key: {CANARY}\n",
    f"upstreams:\n  - key: 'token:{CANARY}'\n",
    f"upstreams:\n  - key: [{CANARY}]\n",
    "upstreams:\n  - key: env:BROKEN\n",
    f"upstreams:\n  - headers: {{Authorization: Bearer {CANARY}}}\n",
    f"upstreams:\n  - headers: {{x-api-key: {CANARY}}}\n",
    f'upstreams:\n  - headers: {{x-extra: "{CANARY}\\n"}}\n',
    f"upstreams:\n  - headers: {{x-extra: [{CANARY}]}}\n",
    f"upstreams:\n  - headers: {CANARY}\n",
    f"upstreams:\n  - base_url: https://user:{CANARY}@example.com/v1\n",
    f"upstreams:\n  - base_url: https://example.com/v1?key={CANARY}\n",
    f"upstreams:\n  - base_url: {CANARY}\n",
    f"upstreams:\n  - name: {CANARY} {CANARY}\n",
    f"upstreams:\n  - key_header: {CANARY}\n",
    f"upstreams:\n  - ca_file: {CANARY}\n",
    f"upstreams: {CANARY}\n",
    f"listen: {{port: {CANARY}, max_in_flight: {CANARY}}}\n",
    f"log: {{level: {CANARY}}}\n",
    f"{CANARY}\n",
    f"upstreams:\n  - key: env:{CANARY}\n",
    f"upstreams:\n  - key: env:{CANARY.replace('-', '_')}\n",
    f"upstreams:\n  - key: file:{CANARY}\n",
    f"upstreams:\n  - headers: {{x-api-key: env:{CANARY}}}\n",
    f"admin:\n  key: *{CANARY}\n",
    f"admin:\n  key: &{CANARY} a\n  hosts: &{CANARY} b\n",
    f"admin:\n  key: !{CANARY} x\n",
    f"admin:\n  key: !!{CANARY}'s x\n",
    f"admin:\n  key: !{CANARY}! x\n",
]


@pytest.mark.parametrize("text", SPOILED)
def test_no_value_that_was_written_is_ever_in_an_error(write_file, text):
    with pytest.raises(InvalidConfig) as raised:
        load(write_file(text), {"BROKEN": f"{CANARY}\nsecond line"})
    config = "".join(traceback.format_exception(raised.value)) + repr(raised.value.faults)
    assert CANARY not in config
    assert CANARY.replace("-", "_") not in config


KEY_SHAPED = "sk-proj-9fK2mQ7xV4bT1zR8wL3n"


@pytest.mark.parametrize(
    "text",
    [
        f"teams:\n  {KEY_SHAPED}: {{key: env:FOO}}\n",
        f"upstreams:\n  - {KEY_SHAPED}: x\n",
        f"upstreams:\n  - key: file:/{KEY_SHAPED}\n",
    ],
)
def test_a_key_in_the_place_of_a_name_is_redacted(write_file, text):
    (fault,) = faults(write_file(text))
    assert KEY_SHAPED not in fault
    assert "[redacted: api-key]" in fault


def test_only_the_name_of_a_variable_may_follow_env(write_file):
    (fault,) = faults(write_file(f"upstreams:\n  - key: env:{KEY_SHAPED}\n"), {"KEY": "sk-1"})
    assert "`env:` is not followed by the name of a variable" in fault
    assert "write the secret itself into a variable" in fault


def test_a_yaml_fault_says_what_is_wrong_up_to_the_word_of_the_file(write_file):
    assert "not YAML: found undefined alias: check" in faults(write_file("a: *bc\n"))[0]
    assert "expected ',' or '}', but got '<stream end>'" in faults(write_file("a: {b: c\n"))[0]


def test_no_secret_is_in_any_form_of_a_configuration(write_file):
    file = write_file("upstreams:\n  - key: env:KEY\n    headers: {x-api-key: 'env:KEY', x-team: red}\n")
    loaded = load(file, {"KEY": CANARY})
    config = loaded.config
    shown = [repr(config), str(config), repr(loaded), f"{config.upstreams[0].key!s}", repr(config.model_dump())]
    assert not [form for form in shown if CANARY in form]
    assert all("env:KEY" in form for form in shown)
    assert CANARY.encode() in pickle.dumps(config.upstreams[0].key.value)  # it is still there
