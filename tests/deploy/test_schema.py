"""The JSON Schema of proxy.yaml: editors that check by it accept what `check` accepts, and mark what it refuses."""

import json
import subprocess

import pytest
import yaml

from proxy.config.defaults import as_json_schema, as_yaml
from proxy.config.faults import InvalidConfig
from proxy.config.loading import load
from tests import ROOT
from tests.support import environments

MISSING = environments.missing("deploy")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(MISSING is not None, reason=str(MISSING))]

CHECK = """
import json, sys, jsonschema
schema, files = json.load(sys.stdin)
jsonschema.Draft202012Validator.check_schema(schema)
validator = jsonschema.Draft202012Validator(schema)
print(json.dumps([[error.message for error in validator.iter_errors(file)] for file in files]))
"""
SECRETS = {"K": "v9Qw3kZr7LpX2mTb4hYd"}
GOOD = (
    "upstreams: [{name: a, key: 'env:K', models: '*'}]\nteams: {research: , support: {policy: observe}}",
    "policies: {mine: {when_full: [{clear_results: {over: 800}}, {dedup_old: }], summary: {prompt: workflow}}}",
    "state: {url: 'redis://localhost:6379/0'}\naccess: {hosts: proxy.example.com}",
)
BAD = (
    "listn: {}",
    "upstreams: [{key: sk-plain}]",
    "log: {level: loud}",
    "policies: {mine: {when_full: [{clear_result: {}}]}}",
    "policies: {mine: {when_full: [{clear_results: {over: many}}]}}",
    "listen: {port: 99999}",
)


def find_faults(texts):
    found = json.dumps([as_json_schema(), [yaml.safe_load(text) for text in texts]])
    command = [environments.program_of("deploy", "python"), "-c", CHECK]
    done = subprocess.run(command, input=found, capture_output=True, text=True, check=True, timeout=60)
    return json.loads(done.stdout)


def is_refused(text, place):
    (place / "proxy.yaml").write_text(text)
    try:
        load(place / "proxy.yaml", SECRETS)
    except InvalidConfig:
        return True
    return False


def test_an_editor_accepts_and_marks_what_check_does(tmp_path):
    assert [is_refused(text, tmp_path) for text in (*GOOD, *BAD)] == [False] * len(GOOD) + [True] * len(BAD)
    faults = find_faults([*GOOD, *BAD])
    assert faults[: len(GOOD)] == [[]] * len(GOOD)
    assert all(faults[len(GOOD) :])


def test_the_shipped_files_are_accepted():
    files = [as_yaml(), (ROOT / "deploy" / "compose" / "proxy.yaml").read_text()]
    assert find_faults(files) == [[], []]
