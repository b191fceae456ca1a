"""From file, environment and command line to one configuration, or to everything that is wrong with it.

The golden files in `origins` have configurations and ways to load them: variables and options behind `$ `. Below each
way stands what is set, with its value in force and who set it, and behind `| ` what is said of it.
"""

import pickle
import shlex
from functools import reduce
from operator import getitem
from pathlib import Path

import pytest

from proxy.config.faults import InvalidConfig, parse_place
from proxy.config.loading import load
from proxy.config.settings import Config, State
from tests.support.written_steps import assert_case, list_cases, list_given

GOLDEN = Path(__file__).parent / "golden" / "origins"
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


def list_origins(loaded):
    """Each setting that somebody has set, with its value and who that is."""
    values = loaded.config.model_dump(mode="json")
    groups = {place[:end] for place in loaded.origins for end in range(1, len(place))}
    for place, origin in loaded.origins.items():
        if place not in groups:
            yield f"= {'.'.join(map(str, place))}: {reduce(getitem, place, values)} ({origin})"
    yield from (f"| warning: {path}: {why}" for path, why in loaded.warnings)


def play(case, folder):
    """The case with what becomes of its configuration."""
    settings = [line for line in list_given(case) if not line.startswith("$")]
    file = folder / "proxy.yaml"
    file.write_text("\n".join(settings))
    played = list(settings)
    for line in list_given(case)[len(settings) :]:
        words = dict(word.split("=", 1) for word in shlex.split(line[1:]))
        options = {parse_place(name[2:], "."): value for name, value in words.items() if name.startswith("--")}
        try:
            said = list_origins(load(file if settings else None, {"KEY": CANARY, **words}, options))
        except InvalidConfig as refused:
            said = (f"| {fault}" for fault in refused.faults)
        played += [line, *(each.replace(str(file), "proxy.yaml").replace(str(folder), "FOLDER") for each in said)]
    return "\n".join(played)


@pytest.mark.parametrize(("sentence", "case"), list_cases(GOLDEN))
def test_each_value_has_the_origin_that_the_golden_file_shows(tmp_path, sentence, case):
    played = play(case, tmp_path)
    assert CANARY not in played
    assert_case(GOLDEN, case, played)


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


def test_no_file_is_needed_and_other_variables_are_none_of_our_business():
    loaded = load(None, {"PATH": "x", "COMPACTION_PROX": "y", "COMPACTION_PROXYLISTEN__PORT": "1"})
    assert (loaded.config, loaded.origin("listen", "port")) == (Config(), "default")


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
