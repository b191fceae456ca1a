"""The door to an object store: what is signed is what the world signs, and a fault says whose it is and what to do."""

import hashlib
import io
import socket
import ssl
import threading
from datetime import UTC, datetime

import pytest
import trustme
from objectstore.weather import changing, clear, down, refusing, telling, weather
from serving import free_port

from proxy.store.transcripts import s3 as module
from proxy.store.transcripts.s3 import Bucket, Credentials, Place, StoreFault
from proxy.store.transcripts.signature import Asked, signed

pytest_plugins = ("objectstore.fixtures",)

EXAMPLE = Credentials("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
HOST = "examplebucket.s3.amazonaws.com"
WELCOME = hashlib.sha256(b"Welcome to Amazon S3.").hexdigest()
DATED = {"date": "Fri, 24 May 2013 00:00:00 GMT", "x-amz-storage-class": "REDUCED_REDUNDANCY"}


@pytest.fixture(name="nobody")
def _nobody() -> Bucket:
    return Bucket(Place("transcripts", endpoint=f"http://127.0.0.1:{free_port()}"), EXAMPLE)


# --- what is signed --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "signature"),
    [
        (
            Asked("GET", HOST, "/test.txt", headers={"range": "bytes=0-9"}),
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
        ),
        (
            Asked("PUT", HOST, "/test$file.text", body=WELCOME, headers=DATED),
            "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
        ),
        (
            Asked("GET", HOST, "/", (("lifecycle", ""),)),
            "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
        ),
        (
            Asked("GET", HOST, "/", (("prefix", "J"), ("max-keys", "2"))),
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
        ),
    ],
)
def test_the_examples_that_amazon_publishes_are_signed_as_it_says(asked, signature):
    headers = signed(asked, "us-east-1", EXAMPLE, datetime(2013, 5, 24, tzinfo=UTC))
    assert headers["authorization"].endswith(f"Signature={signature}")


def test_a_token_travels_signed():
    lent = Credentials("key", "secret", "token")
    headers = signed(Asked("GET", HOST, "/"), "us-east-1", lent, datetime(2013, 5, 24, tzinfo=UTC))
    assert headers["x-amz-security-token"] == "token"
    assert "x-amz-security-token" in headers["authorization"]


@pytest.mark.parametrize(
    ("place", "origin", "root"),
    [
        (Place("b", region="eu-central-1"), "https://b.s3.eu-central-1.amazonaws.com", "/"),
        (Place("b.c"), "https://s3.us-east-1.amazonaws.com", "/b.c/"),
        (Place("b", endpoint="http://minio:9000/"), "http://minio:9000", "/b/"),
        (Place("b", endpoint="https://{bucket}.example.com"), "https://b.example.com", "/"),
        (Place("b", endpoint="https://example.com/s3"), "https://example.com/s3", "/s3/b/"),
    ],
)
def test_a_bucket_has_a_host_of_its_own_or_leads_the_path(place, origin, root):
    assert (place.origin, place.root) == (origin, root)


@pytest.mark.parametrize("url", ["s3://", "s3:///x", "s3:/bucket", "https://bucket", "bucket"])
def test_what_is_no_place_is_refused(url):
    with pytest.raises(ValueError, match="s3://bucket"):
        Place.of(url)


def test_credentials_are_never_shown():
    assert "EXAMPLE" not in f"{EXAMPLE} {EXAMPLE!r} {Bucket(Place('bucket', endpoint='http://x'), EXAMPLE)!r}"


# --- what is kept ----------------------------------------------------------------------------------------------------


def test_what_was_put_is_got_listed_and_deleted(s3):
    odd = s3.bucket(prefix="a room/of one's own+é")
    odd.put("team/one", io.BytesIO(b"first"))
    odd.put("team/two", io.BytesIO(b""))
    odd.put("other/three", io.BytesIO(b"x" * 3_000_000))
    assert [(one.name, one.bytes) for one in odd.objects()] == [
        ("other/three", 3_000_000),
        ("team/one", 5),
        ("team/two", 0),
    ]
    assert odd.folders() == ["other", "team"]
    assert (odd.get("team/one"), odd.get("team/two")) == (b"first", b"")
    odd.delete("team/one")
    odd.delete("team/one")
    assert [one.name for one in odd.objects("team/")] == ["team/two"]


def test_what_is_put_again_stands_there_once(bucket):
    for _ in range(3):
        bucket.put("team/one", io.BytesIO(b"the same"))
    assert [(one.name, one.bytes) for one in bucket.objects()] == [("team/one", 8)]


def test_a_long_list_comes_in_pages(bucket, sky, monkeypatch):
    monkeypatch.setattr(module, "PAGE", 3)
    for number in range(8):
        bucket.put(f"team/{number}", io.BytesIO(b""))
        bucket.put(f"team-{number}/x", io.BytesIO(b""))
    sky.asked.clear()
    assert [one.name for one in bucket.objects("team/")] == [f"team/{number}" for number in range(8)]
    assert len(sky.asked) == 3
    assert len(bucket.folders()) == 9


def test_many_threads_may_use_one_bucket(bucket):
    def write(number):
        for turn in range(10):
            bucket.put(f"{number}/{turn}", io.BytesIO(b"x" * 1000))

    threads = [threading.Thread(target=write, args=[number]) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(list(bucket.objects())) == 40


def test_a_connection_that_the_store_has_left_is_replaced(bucket, sky):
    bucket.put("team/one", io.BytesIO(b"x"))
    sky.now = changing(down, clear)  # the first request finds the old line cut
    sky.asked.append("")
    bucket.put("team/two", io.BytesIO(b"x"))
    assert bucket.get("team/two") == b"x"


def test_over_tls_the_store_must_show_whom_it_is(s3, tmp_path):
    authority, tls = trustme.CA(), ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    with weather(s3.url, tls) as sky:
        at = sky.url.replace("http:", "https:")
        trusting = s3.bucket(at=at, ca_file=str(tmp_path / "ca.pem"))
        trusting.put("tls/one", io.BytesIO(b"x" * 1_000_000))
        assert len(trusting.get("tls/one")) == 1_000_000
        trusting.delete("tls/one")
        assert "certificate verify failed" in str(fault(puts(s3.bucket(at=at))))


# --- what goes wrong -------------------------------------------------------------------------------------------------


def fault(act) -> StoreFault:
    with pytest.raises(StoreFault) as caught:
        act()
    return caught.value


def puts(bucket: Bucket, size: int = 1):
    return lambda: bucket.put("team/one", io.BytesIO(b"x" * size))


@pytest.mark.parametrize("size", [1, 8_000_000])
def test_wrong_credentials_are_told_as_such(s3, size):
    key, secret = s3.credentials.key, s3.credentials.secret
    wrong = fault(puts(s3.bucket(credentials=Credentials(key, "guessed-0000")), size))
    unknown = fault(puts(s3.bucket(credentials=Credentials("guessed-0000", secret)), size))
    assert (wrong.kind, unknown.kind) == ("SignatureDoesNotMatch", "InvalidAccessKeyId")
    assert str(wrong).endswith("correct `transcripts.secret`")
    assert str(unknown).endswith("correct `transcripts.key`")
    for told in (str(wrong), str(unknown), repr(wrong)):
        assert not [text for text in (key, secret, "guessed-0000") if text in told]


@pytest.mark.parametrize("name", ["No such bucket", "no_bucket", "a\tb"])
def test_a_bucket_whose_name_cannot_be_is_told(s3, name):
    assert name in str(fault(puts(s3.bucket(name=name))))
    assert name in str(fault(puts(Bucket(Place(name, endpoint="http://{bucket}.invalid"), EXAMPLE))))


def test_a_bucket_that_is_not_there_is_told(s3):
    nowhere = fault(puts(s3.bucket(name="no-such-bucket")))
    assert "create the bucket, or correct `transcripts.dir`" in str(nowhere)
    assert fault(lambda: list(s3.bucket(name="no-such-bucket").objects())).kind == "NoSuchBucket"


def test_a_store_that_is_not_there_is_told(nobody):
    for act in (puts(nobody), lambda: nobody.get("x"), lambda: list(nobody.objects()), lambda: nobody.delete("x")):
        told = fault(act)
        assert told.kind == "unreachable"
        assert "cannot be reached (Connection refused)" in str(told)


def test_a_store_that_does_not_answer_in_time_is_told():
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        place = Place("transcripts", endpoint=f"http://127.0.0.1:{deaf.getsockname()[1]}")
        told = fault(puts(Bucket(place, EXAMPLE, seconds=0.1)))
    assert "cannot be reached (timed out)" in str(told)


@pytest.mark.parametrize(("status", "code"), [(503, "SlowDown"), (500, "InternalError"), (429, "TooManyRequests")])
def test_a_store_that_is_busy_is_told_and_its_own_words_are_not(bucket, sky, status, code):
    sky.now = refusing(status, code)
    told = fault(puts(bucket))
    assert f"answers {status} {code}" in str(told)
    assert "it is tried again" in str(told)
    assert "never-to-be-told" not in str(told)


@pytest.mark.parametrize(
    "answer",
    [
        refusing(301, "PermanentRedirect", ("x-amz-bucket-region", "eu-central-1")),
        refusing(307, "TemporaryRedirect", ("x-amz-bucket-region", "eu-central-1")),
        refusing(400, "AuthorizationHeaderMalformed", more="<Region>eu-central-1</Region>"),
    ],
)
def test_a_bucket_in_another_region_is_told_with_its_region(bucket, sky, answer):
    sky.now = answer
    assert str(fault(puts(bucket))).endswith(
        "the bucket is in another region: set `transcripts.region` to eu-central-1"
    )


def test_a_clock_that_is_wrong_is_told(bucket, sky):
    sky.now = refusing(403, "RequestTimeTooSkewed")
    assert str(fault(puts(bucket))).endswith("set this machine's clock")


@pytest.mark.parametrize("stumble", [down, refusing(503, "SlowDown")], ids=["cut off", "busy"])
def test_a_read_that_stumbles_goes_on(bucket, sky, stumble, monkeypatch):
    monkeypatch.setattr(module, "WAITS", (0.01, 0.01))
    bucket.put("team/one", io.BytesIO(b"x"))
    sky.asked.clear()
    sky.now = lambda number: stumble(number) if number < 2 else None
    assert [one.name for one in bucket.objects()] == ["team/one"]
    assert len(sky.asked) == 3


def test_a_list_that_ends_too_early_is_no_list(bucket, sky):
    """Servers that know the first version of this call only would show the first thousand and no more."""
    sky.now = telling(b"<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>")
    assert fault(lambda: list(bucket.objects())).kind == "nonsense"


def test_what_is_no_object_store_is_told(bucket, sky):
    sky.now = refusing(200, "Hello")
    for act in (puts(bucket), bucket.folders, lambda: list(bucket.objects())):
        assert fault(act).kind == "nonsense"
    sky.now = refusing(404, "<html>")
    assert "correct `transcripts.endpoint`" in str(fault(lambda: list(bucket.objects())))
