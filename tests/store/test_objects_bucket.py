"""The client of an object store: objects are stored, listed and removed, and a failure says what to do about it."""

import socket
import ssl
from dataclasses import dataclass

import pytest
import trustme

from proxy import assembly
from proxy.config.faults import InvalidConfig
from proxy.config.settings import Config
from proxy.store.transcripts import bucket as module
from proxy.store.transcripts.archive import StoreFault
from proxy.store.transcripts.bucket import Bucket
from tests.support.object_store.faulty_relay import (
    answer_with,
    drop_connection,
    faulty_relay,
    pass_through,
    refuse_with,
)
from tests.support.object_store.server import open_bucket as open_with
from tests.support.running_proxy import free_port

pytest_plugins = ("tests.support.object_store.fixtures",)


def open_bucket(url="s3://transcripts", **settings) -> Bucket:
    return open_with(url, **{"key": "AKIAIOSFODNN7EXAMPLE", "secret": "canary-7d1e5a", **settings})


@pytest.fixture
def absent() -> Bucket:
    return open_bucket(endpoint=f"http://127.0.0.1:{free_port()}")


LENT = b"""<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials>
<AccessKeyId>ASIALENT</AccessKeyId><SecretAccessKey>lent</SecretAccessKey><SessionToken>token</SessionToken>
<Expiration>2999-01-01T00:00:00Z</Expiration>
</Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>"""


@dataclass(frozen=True, slots=True)
class Tls:
    context: ssl.SSLContext
    ca_file: str


@pytest.fixture
def tls(tmp_path) -> Tls:
    authority, context = trustme.CA(), ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    return Tls(context, str(tmp_path / "ca.pem"))


@pytest.mark.parametrize(
    ("url", "settings", "kind", "prefix"),
    [
        ("s3://bucket/a/prefix", {}, "S3Store", "a/prefix"),
        ("gs://bucket/a/prefix", {"key": "", "secret": ""}, "GCSStore", "a/prefix"),
        ("az://container/a/prefix/", {"key": "account", "secret": "c2VjcmV0"}, "AzureStore", "a/prefix"),
        ("s3://bucket", {}, "S3Store", None),
    ],
)
def test_the_scheme_of_the_url_picks_the_vendor(url, settings, kind, prefix):
    store = open_bucket(url, **settings)._writes
    assert (type(store).__name__, store.prefix) == (kind, prefix)


@pytest.mark.parametrize(
    ("name", "settings", "sent_to"),
    [
        ("b", {"region": "eu-central-1"}, "https://s3.eu-central-1.amazonaws.com/b"),
        ("b.c", {}, "https://s3.us-east-1.amazonaws.com/b.c"),
        ("b", {"endpoint": "http://127.0.0.1:9/"}, "http://127.0.0.1:9/b"),
        ("b", {"endpoint": "https://{bucket}.example.invalid"}, "https://b.example.invalid"),
        ("b", {"endpoint": "https://example.invalid/s3"}, "https://example.invalid/s3/b"),
    ],
)
def test_a_bucket_has_a_host_of_its_own_or_leads_the_path(name, settings, sent_to):
    (url,) = module.obstore.sign(open_bucket(f"s3://{name}", **settings)._writes, "GET", ["x"], module.timedelta(60))
    assert url.startswith(f"{sent_to}/x?")


def test_credentials_are_never_shown():
    bucket = open_bucket("s3://b", key="key-canary", secret="canary-7d1e5a", token="token-canary")
    assert "canary" not in repr(bucket)


def test_without_a_key_a_role_gives_the_credentials(s3, tmp_path, monkeypatch, tls):
    """As on a machine in a cloud: a file holds the identity, and a token service gives a temporary key for it."""
    (tmp_path / "token").write_text("a.web.identity")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/proxy")
    with faulty_relay(s3.url, tls.context) as relay:
        at = relay.url.replace("http:", "https:")
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", at)
        relay.now = lambda number: None if number else answer_with(LENT)(number)
        bucket = open_with("s3://transcripts", endpoint=at, ca_file=tls.ca_file)
        refused = fault(puts(bucket))
        assert [asked.partition("?")[0] for asked in relay.asked] == ["POST /", "PUT /transcripts/team/one"]
        assert "Action=AssumeRoleWithWebIdentity" in relay.asked[0]
    assert refused.kind == "InvalidAccessKeyId"  # it was signed with the temporary key, which this server does not know


def test_an_object_can_be_put_read_listed_and_deleted(s3, tmp_path):
    odd = s3.bucket(prefix="a-room/of.one's-own+é")
    (tmp_path / "large").write_bytes(b"x" * 13_000_000)  # more than one part of a multipart upload
    odd.put("team/one", b"first")
    odd.put("team/two", b"")
    odd.put("other/three", tmp_path / "large")
    assert [(one.name, one.bytes) for one in odd.list_objects()] == [
        ("other/three", 13_000_000),
        ("team/one", 5),
        ("team/two", 0),
    ]
    assert odd.list_folders() == ["other", "team"]
    assert (odd.get("team/one"), odd.get("team/two"), len(odd.get("other/three"))) == (b"first", b"", 13_000_000)
    odd.delete("team/one")
    odd.delete("team/one")
    odd.delete("other/three")
    assert [one.name for one in odd.list_objects("team")] == ["team/two"]


def test_a_list_may_begin_after_a_name(bucket):
    for number in range(8):
        bucket.put(f"team/{number}", b"")
        bucket.put(f"team-{number}/x", b"")
    assert [one.name for one in bucket.list_objects("team")] == [f"team/{number}" for number in range(8)]
    assert [one.name for one in bucket.list_objects("team", after="team/5")] == ["team/6", "team/7"]
    assert len(bucket.list_folders()) == 9


def test_over_tls_the_store_must_show_a_certificate_that_is_trusted(s3, tls):
    with faulty_relay(s3.url, tls.context) as relay:
        at = relay.url.replace("http:", "https:")
        trusting = s3.bucket(at=at, ca_file=tls.ca_file)
        trusting.put("tls/one", b"x" * 1_000_000)
        assert len(trusting.get("tls/one")) == 1_000_000
        trusting.delete("tls/one")
        assert "certificate not trusted" in str(fault(puts(s3.bucket(at=at))))


def fault(act) -> StoreFault:
    with pytest.raises(StoreFault) as caught:
        act()
    return caught.value


def puts(bucket: Bucket, size: int = 1):
    return lambda: bucket.put("team/one", b"x" * size)


@pytest.mark.parametrize("size", [1, 8_000_000])
def test_wrong_credentials_are_reported_as_such(s3, size):
    wrong = fault(puts(s3.bucket(secret="guessed-0000"), size))
    unknown = fault(puts(s3.bucket(key="guessed-0000"), size))
    assert (wrong.kind, unknown.kind) == ("SignatureDoesNotMatch", "InvalidAccessKeyId")
    assert "check `transcripts.dir`, `endpoint`, `region`, `key` and `secret`" in str(wrong)
    for text in (str(wrong), str(unknown), repr(wrong)):
        assert not [secret for secret in (s3.key, s3.secret, "guessed-0000") if secret in text]


def test_a_bucket_that_is_not_there_is_reported(s3):
    assert "answers 404 NoSuchBucket" in str(fault(puts(s3.bucket(name="no-such-bucket"))))
    assert fault(lambda: list(s3.bucket(name="no-such-bucket").list_objects())).kind == "NoSuchBucket"


def test_a_store_that_is_not_there_is_reported(absent):
    for act in (puts(absent), lambda: absent.get("x"), lambda: list(absent.list_objects()), lambda: absent.delete("x")):
        found = fault(act)
        assert found.kind == "unreachable"
        assert "cannot be reached (connection refused)" in str(found)


def test_a_store_that_does_not_answer_in_time_is_reported():
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        endpoint = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        assert "cannot be reached (timed out)" in str(fault(puts(open_bucket(endpoint=endpoint, timeout_seconds=0.1))))


@pytest.mark.parametrize(
    ("status", "code", "is_busy"),
    [
        (503, "SlowDown", True),
        (500, "InternalError", True),
        (429, "TooManyRequests", True),
        (403, "AuthorizationHeaderMalformed", False),
    ],
)
def test_a_refusal_is_reported_by_its_name_without_the_stores_own_words(bucket, relay, status, code, is_busy):
    relay.now = refuse_with(status, code)
    text = str(fault(puts(bucket)))
    assert f"answers {status} {code}" in text
    assert ("it is tried again" in text) is is_busy
    assert "never-to-be-told" not in text


@pytest.mark.parametrize("stumble", [drop_connection, refuse_with(503, "SlowDown")], ids=["cut off", "busy"])
def test_a_read_is_tried_again(bucket, relay, stumble):
    bucket.put("team/one", b"x")
    relay.asked.clear()
    relay.now = lambda number: stumble(number) if number < 2 else pass_through(number)
    assert [one.name for one in bucket.list_objects()] == ["team/one"]
    assert len(relay.asked) == 3


def test_a_server_that_is_no_object_store_is_reported(bucket, relay):
    """A friendly web server answers 200 to everything, and what it was sent is nowhere."""
    relay.now = refuse_with(200, "Hello")
    assert fault(puts(bucket)).kind == "not an object store"
    relay.now = refuse_with(404, "<html>")
    assert "answers 404" in str(fault(lambda: list(bucket.list_objects())))


def test_a_store_that_cannot_be_opened_is_a_fault_of_the_configuration(monkeypatch):
    for name in ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(InvalidConfig, match="no credentials"):
        assembly.open_object_store(Config(transcripts={"dir": "az://container"}))
