"""`doctor`: what keeps this machine from a working upstream, found by the way that requests take."""

import asyncio
import resource

import pytest

from proxy.cli import main
from tests.support.object_store.server import BUCKET, MISSING, s3_server
from tests.support.redis_server import PROGRAM, running
from tests.support.scripted_upstream import Upstream, answer, by_path, pace_turn, pause, stream, text_turn

COUNTING = text_turn(" ".join(map(str, range(1, 30))))
MODELS = answer({"data": [{"id": "local-1", "max_model_len": 32_768}]})


@pytest.fixture
def doctor(capsys, monkeypatch, tmp_path):
    """Lets the doctor look; answers its findings, good ones and bad ones. Warnings are neither."""
    monkeypatch.chdir(tmp_path)
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(name, raising=False)

    async def look(*options, config=None, **environment):
        if config is not None:
            (tmp_path / "proxy.yaml").write_text(config)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        code = await asyncio.to_thread(main, ["doctor", *options])
        lines = capsys.readouterr().out.splitlines()
        good = [line[4:].strip() for line in lines if line.startswith("ok")]
        bad = [line[4:].strip() for line in lines if line.startswith("BAD")]
        look.warnings = [line[4:].strip() for line in lines if line.startswith("WARN")]
        assert len(good) + len(bad) + len(look.warnings) == len(lines)
        assert code == (1 if bad else 0)
        return good, bad

    return look


@pytest.fixture
def find_no_fault(doctor):
    """Runs `doctor` where nothing is bad; returns what is good."""

    async def look(*options, **how):
        good, bad = await doctor(*options, **how)
        assert bad == []
        return good

    return look


@pytest.fixture
async def up():
    scripts = {"/v1/models": MODELS, "/v1/chat/completions": pace_turn(COUNTING, 0.005)}
    async with Upstream(by_path(scripts)) as upstream:
        yield upstream


@pytest.mark.parametrize(
    ("seconds", "finding"), [(0.5, "BAD: a proxy on the way buffers it"), (0, "WARN: too fast to tell")]
)
async def test_a_stream_in_one_piece_is_buffered_unless_it_is_too_fast_to_tell(doctor, up, seconds, finding):
    whole = stream(b"".join(COUNTING.frames())).after(seconds)
    up.script = by_path({"/v1/models": MODELS, "/v1/chat/completions": whole})
    _, bad = await doctor("--upstream", up.url, "--model", "local-1")
    label, _, why = finding.partition(": ")
    assert (len(bad), why in (bad or doctor.warnings)[-1]) == (int(label == "BAD"), True)


def refuse_parameter(name):
    """A model's API that knows the bound of an answer by another name than this."""
    message = f"Unsupported parameter: '{name}' is not supported with this model."
    error = {"message": f"{message} sk-canary", "type": "invalid_request_error", "code": "unsupported_parameter"}
    turn = pace_turn(COUNTING, 0.005)
    return lambda request: answer({"error": error}, 400) if name in request.json else turn(request)


REASONING, OTHER = {"max_completion_tokens": 2_000}, {"max_tokens": 160}
"""Reasoning counts towards the first one."""


@pytest.mark.parametrize(
    ("model", "calls", "bound"),
    [("gpt-5", 1, REASONING), ("o3", 1, REASONING), ("openai/gpt-5.1-mini", 1, REASONING), ("alias", 2, REASONING),
     ("local-1", 1, OTHER)],
)  # fmt: skip
async def test_an_answer_is_bounded_as_the_model_wants_it(find_no_fault, up, model, calls, bound):
    (refused,) = (REASONING | OTHER).keys() - bound.keys()
    up.script = by_path({"/v1/models": MODELS, "/v1/chat/completions": refuse_parameter(refused)})
    good = await find_no_fault("--upstream", up.url, "--model", model)
    assert "streams unbuffered" in good[-1]
    assert [request.path for request in up.requests].count("/v1/chat/completions") == calls
    assert bound.items() <= up.requests[-1].json.items()


@pytest.mark.seconds
async def test_a_stream_after_a_long_silence_is_not_called_buffered(find_no_fault, up):
    reasoned = stream(pause(2.5), *(act for frame in COUNTING.frames() for act in (frame, pause(0.012))))
    up.script = by_path({"/v1/models": MODELS, "/v1/chat/completions": reasoned})
    good = await find_no_fault("--upstream", up.url, "--model", "gpt-5")
    assert "streams unbuffered" in good[-1]


@pytest.fixture
async def anthropic():
    """An API that refuses what Anthropic's refuses: another key header, and requests without a version."""
    rows = [{"type": "model", "id": "claude-sonnet-4-5", "display_name": "Claude Sonnet 4.5"}]
    listed = answer({"data": rows, "has_more": False, "first_id": "claude-sonnet-4-5"})
    counted = stream(*(act for frame in COUNTING.frames() for act in (frame, pause(0.005))))

    def reply(request):
        if request.header("x-api-key") != "sk-ant-own":
            return answer({"type": "error", "error": {"type": "authentication_error", "message": "x"}}, 401)
        if request.header("anthropic-version") is None:
            return answer({"type": "error", "error": {"type": "invalid_request_error", "message": "x"}}, 400)
        pages = {"/v1/models": listed, "/v1/messages": counted}
        return pages.get(request.path, answer({"type": "error", "error": {"type": "not_found_error"}}, 404))

    async with Upstream(reply) as upstream:
        yield upstream


def write_recipe(anthropic, up, more=""):
    return f"""
    upstreams:
      - {{name: anthropic, base_url: "{anthropic}", models: [claude-*]{more}}}
      - {{name: openai, base_url: "{up.url}"}}
    """


async def test_only_the_upstream_that_serves_the_model_is_asked_for_a_stream(find_no_fault, up, anthropic):
    recipe = write_recipe(anthropic.url, up, ", headers: {anthropic-version: '2023-06-01'}")
    keys = {"OPENAI_API_KEY": "sk-own", "ANTHROPIC_API_KEY": "sk-ant-own"}
    good = await find_no_fault("--model", "gpt-5", config=recipe, **keys)
    assert good[-1].startswith("openai: streams unbuffered")
    assert {request.method for request in anthropic.requests} == {"GET"}
    good = await find_no_fault("--model", "claude-sonnet-4-5", config=recipe, **keys)
    assert next(line for line in good if "streams" in line).startswith("anthropic: streams unbuffered")
    assert [request.path for request in anthropic.requests if request.method == "POST"] == ["/v1/messages"]
    assert [request.path for request in up.requests].count("/v1/chat/completions") == 1


async def test_the_recipe_for_anthropic_is_good_with_its_own_key(find_no_fault, up, anthropic):
    """By the name of its host, which leads here by way of an HTTP proxy."""
    recipe = write_recipe("http://api.anthropic.com/v1", up)

    def relay(request):
        request.target = request.target.removeprefix("http://api.anthropic.com")
        return anthropic.script(request)

    async with Upstream(relay) as http_proxy:
        keys = {"OPENAI_API_KEY": "sk-own", "ANTHROPIC_API_KEY": "sk-ant-own", "no_proxy": "127.0.0.1"}
        options = ("--model", "claude-sonnet-4-5")
        good = await find_no_fault(*options, config=recipe, **keys, http_proxy=http_proxy.origin)
    assert any(line.startswith("anthropic: streams unbuffered") for line in good)
    assert {request.header("authorization") for request in http_proxy.requests} == {None}
    assert {request.header("x-api-key") for request in up.requests} == {None}


async def test_a_key_of_anthropic_in_the_configuration_is_the_one_that_is_tried(find_no_fault, up, anthropic):
    recipe = write_recipe(anthropic.url, up, ", key: env:HOUSE_KEY, key_header: x-api-key")
    options = ("--model", "claude-sonnet-4-5")
    await find_no_fault(*options, HOUSE_KEY="sk-ant-own", ANTHROPIC_API_KEY="sk-ant-other", config=recipe)


async def test_a_disk_with_a_block_to_spare_is_reported_as_full(doctor, up):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        _, bad = await doctor("--upstream", up.url)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "is not writable (File too large): " in bad[0]


@pytest.mark.parametrize("text", ['{"format": 1, "ke', '{"format": 2}', None])
async def test_a_registry_that_cannot_be_read_is_reported(doctor, up, tmp_path, text):
    registry = tmp_path / "state" / "registry.json"
    registry.parent.mkdir(mode=0o700)
    registry.mkdir() if text is None else registry.write_text(text)
    _, bad = await doctor("--upstream", up.url)
    assert len(bad) == 1
    assert "registry.json: " in bad[0]


async def test_the_state_can_be_named_as_the_finding_says(find_no_fault, up, tmp_path):
    (tmp_path / "other").mkdir(mode=0o700)
    good = await find_no_fault("--upstream", up.url, "--state", "other")
    assert "state: other is writable" in good


async def test_a_state_that_others_can_read_is_warned_about(doctor, find_no_fault, up, tmp_path):
    (tmp_path / "state").mkdir(mode=0o755)
    (tmp_path / "state").chmod(0o755)
    await find_no_fault("--upstream", up.url)
    assert doctor.warnings[0] == "state: state is writable, and open to other users of this machine: chmod 700 state"


@pytest.mark.skipif(PROGRAM is None, reason="no redis-server")
async def test_a_redis_that_answers_is_good(find_no_fault, up, tmp_path):
    with running(tmp_path) as server:
        (tmp_path / "proxy.yaml").write_text(f'state: {{url: "{server.database(0)}"}}')
        good = await find_no_fault("--upstream", up.url)
    assert good[1] == f"state: {server.database(0)} answers"


@pytest.mark.skipif(bool(MISSING), reason=MISSING or "there is one")
async def test_an_object_store_that_takes_a_file_is_good(doctor, up, tmp_path):
    with s3_server(tmp_path) as server:
        server.bucket()
        (tmp_path / "proxy.yaml").write_text(
            f'transcripts: {{dir: "s3://{BUCKET}/x", endpoint: "{server.url}", key: env:K, secret: env:S}}'
        )
        good, bad = await doctor("--upstream", up.url, K=server.key, S=server.secret)
        assert list(server.bucket(prefix="x").list_objects()) == []
    assert bad == []
    assert good[1] == f"transcripts: s3://{BUCKET}/x: a file was written, read and removed"
