"""The key of the admin pages: the operator's own, or one that is made and shown once."""

import resource
import stat
from concurrent.futures import ThreadPoolExecutor

import pytest

from proxy.access.admin_key import ADMIN_KEY_FILE, create_admin_key, is_admin_key, read_admin_key
from proxy.config.settings import Config
from proxy.config.values import Secret

OWN = Secret("env:KEY", "v9Qw3kZr7LpX2mTb")


@pytest.fixture
def config(tmp_path):
    def config(**admin):
        return Config(state={"dir": str(tmp_path / "var" / "state")}, admin=admin)

    return config


def test_without_a_configured_key_one_is_made_shown_once_and_readable_by_its_owner_only(config, tmp_path):
    text = create_admin_key(config())
    assert text.startswith("cpa-")
    assert create_admin_key(config()) is None
    assert read_admin_key(config()) == text
    assert read_admin_key(config(enabled=False)) is None
    assert stat.S_IMODE((tmp_path / "var" / "state").stat().st_mode) == 0o700


def test_where_the_operator_names_one_or_wants_no_pages_none_is_made(config, tmp_path):
    assert create_admin_key(config(key=OWN)) is create_admin_key(config(enabled=False)) is None
    assert not (tmp_path / "var" / "state").exists()
    assert read_admin_key(config(key=OWN)) == OWN.value


@pytest.mark.parametrize("shown", [None, "", "x", OWN.value[:-1], OWN.value + "x", OWN.value.upper(), "ü\udcff"])
def test_only_the_key_opens(shown):
    assert is_admin_key(OWN.value, OWN.value)
    assert not is_admin_key(OWN.value, shown)
    assert not is_admin_key(None, shown)


UNUSABLE = [b"", b"\n", b"\xff\xfe", b"\0" * 36, b"cpa-", b"cpa-Yw4bCsxwYw4bCsxwYw4bCsxw", b"password-password-1234"]


@pytest.mark.parametrize("data", [None, *UNUSABLE])
def test_a_file_without_a_usable_key_opens_nothing_and_the_first_of_many_starts_replaces_it(config, tmp_path, data):
    """As a full disk leaves it, or a machine that lost its power."""
    file = tmp_path / "var" / "state" / ADMIN_KEY_FILE
    if data is not None:
        file.parent.mkdir(parents=True)
        file.write_bytes(data)
    assert read_admin_key(config()) is None
    with ThreadPoolExecutor(8) as starts:
        texts = list(starts.map(create_admin_key, [config() for _ in range(8)]))
    assert [text for text in texts if text is not None] == [read_admin_key(config())]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert {path.name for path in file.parent.iterdir()} == {ADMIN_KEY_FILE}


def test_a_start_on_a_full_disk_leaves_nothing_that_the_next_start_takes_for_a_key(config, tmp_path):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            create_admin_key(config())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert read_admin_key(config()) is None
    assert [path.name for path in (tmp_path / "var" / "state").iterdir()] == [ADMIN_KEY_FILE]
    assert create_admin_key(config()) == read_admin_key(config())
    assert read_admin_key(config()) is not None


@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_a_key_that_the_operator_wrote_there_stays(config, tmp_path, mark):
    (tmp_path / "var" / "state").mkdir(parents=True)
    (tmp_path / "var" / "state" / ADMIN_KEY_FILE).write_text(f"{mark}{OWN.value}\n", encoding="utf-8")
    (tmp_path / "var" / "state" / ADMIN_KEY_FILE).chmod(0o400)
    assert create_admin_key(config()) is None
    assert read_admin_key(config()) == OWN.value
