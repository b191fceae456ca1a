"""Valid settings that are probably mistakes: each causes a warning with the mend, and nothing else does."""

import pytest

from proxy.config import Attachment, Config, find_warnings
from proxy.config.faults import parse_variable

SHADOWED = "upstreams: [{name: a}, {name: b, models: 'qwen*'}]\n"
LABS = "upstreams: [{name: lab, models: 'lab-*'}, {name: main, models: 'm-*'}]\nteams: {red: , own: {upstream: lab}}\n"
OPEN = "listen: {host: 0.0.0.0}\n"
TEXT_FREE = "policies: {x: {store_text: false}}\nupstreams: [{policy: x}]\n"


def warnings_of(text):
    config = Config.model_validate(parse_variable(text) or {}, context={"KEY": "sk-a"})
    return dict(find_warnings(config, lambda model: model == "gpt-known"))


@pytest.mark.parametrize(
    ("text", "path", "why"),
    [
        (SHADOWED, "upstreams.1", "is never reached: upstreams.0 serves 'qwen*' too; move this one above it"),
        ("attachments: [{team: r*}, {team: red, model: gpt-*}]", "attachments.1", "is never reached: attachments.0"),
        (LABS + "attachments: [{model: gtp-4o}]", "attachments.0.model", "is no known model"),
        (LABS + "attachments: [{team: gr*}]", "attachments.0.team", "no team in `teams`"),
        (LABS + "attachments: [{upstream: az*}]", "attachments.0.upstream", "matches no upstream"),
        (LABS + "attachments: [{team: own, upstream: main}]", "attachments.0.upstream", "another upstream"),
        (LABS + "attachments: [{team: red, model: gpt-known}]", "attachments.0.model", "served by no upstream"),
        ("teams: {red: }", "teams.red", "upstream 'default' has no key, and the team has none either"),
        (OPEN + "upstreams: [{key: env:KEY}]", "upstreams.0.key", "without `teams`"),
        ("upstreams: [{window: 31999}]", "upstreams.0.window", "is 31,999 tokens: in so small a window"),
        (OPEN, "listen.host", "0.0.0.0 is open without `teams`"),
        (
            "policies: {default: {inherit: gentle}}",
            "policies.default.inherit",
            "to use 'gentle', name it as `policy` of",
        ),
        (
            "transcripts: {required: true}\npolicies: {x: {transcripts: false}}",
            "policies.x.transcripts",
            "`transcripts.required` does not hold",
        ),
        (
            "transcripts: {keep: off}\npolicies: {x: {without_originals: never}}",
            "policies.x.without_originals",
            "has no effect: `transcripts.keep: off` saves no originals",
        ),
        (
            "policies: {x: {transcripts: false, without_originals: never}}",
            "policies.x.without_originals",
            "has no effect: `transcripts: false` saves no originals",
        ),
        (
            "transcripts: {required: true}\npolicies: {x: {store_text: false}}",
            "policies.x.store_text",
            "`transcripts.required` does not hold",
        ),
        (
            "policies: {x: {store_text: false}}\nteams: {red: {policy: x}}\nattachments: [{tag: night}]",
            "attachments.0.policy",
            "'default' stores text of the requests that match: team 'red' among them, whose own policy 'x' stores none",
        ),
        (
            TEXT_FREE + "teams: {red: {}}\nattachments: [{tag: night}]",
            "attachments.0.policy",
            "those to upstream 'default' among them, whose policy 'x' stores none",
        ),
        ("transcripts: {keep: off, required: true}", "transcripts.required", "has no effect"),
        ("policies: {x: {trigger_tokens: 20000, keep: {tokens: 12000}}}", "policies.x.keep.tokens", "4,266 is used"),
        (
            "policies: {x: {trigger_tokens: 20000, clear_at_least: 20000}}",
            "policies.x.clear_at_least",
            "has no effect: the trigger, 20,000 tokens, comes first",
        ),
        (
            "policies: {x: {inherit: j-cli, trigger_tokens: 5000}}",
            "policies.x.summary.max_tokens",
            "is 20,000, but 833 is used: `target` of the trigger has no room for more",
        ),
        (
            "policies: {x: {inherit: j-cli, trigger_tokens: 15000}}",
            "policies.x.summary.max_tokens",
            "is 20,000, but 2,500 is used: `target` of the trigger has no room for more",
        ),
        (
            "policies: {x: {summary: {model: mini}}}\nupstreams: [{models: gpt-*}]",
            "policies.x.summary.model",
            "no upstream serves 'mini'",
        ),
        (
            "policies: {x: {summary: {model: mini, upstream: a}}}\nupstreams: [{name: a, models: gpt-*}]",
            "policies.x.summary.model",
            "upstream 'a' does not serve 'mini'",
        ),
        (
            "policies: {x: {inherit: j-cli, steps: {tool_hints: {over: 3}}}}",
            "policies.x.steps.tool_hints",
            "no such step is in",
        ),
    ],
)
def test_a_setting_that_has_no_effect_causes_a_warning(text, path, why):
    assert why in warnings_of(text)[path]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "upstreams: [{key: env:KEY}]",
        OPEN + "upstreams: [{key: env:KEY}]\nteams: {red: }",
        "upstreams: [{name: b, models: 'qwen*'}, {name: a}]",
        SHADOWED + "policies: {x: {summary: {upstream: b}}}",
        SHADOWED + "access: {team_header: x-team}\nteams: {red: {upstream: b}}",
        "access: {team_header: x-team}\nteams: {red: , blue: }",  # clients come with keys of their own
        "access: {team_header: x-team}\nattachments: [{team: purple}]",
        "access: {team_header: x-team}\nteams: {red: }\nattachments: [{team: red, model: gpt-known}]",
        TEXT_FREE
        + "access: {team_header: x-team}\nteams: {red: {policy: default}}\nattachments: [{team: red, tag: night}]",
        "policies: {low: {inherit: j-cli}}",
    ],
)
def test_settings_that_count_cause_no_warning(text):
    assert warnings_of(text) == {}


@pytest.mark.parametrize(
    ("earlier", "later", "is_told"),
    [
        ({"rollout": 5}, {"rollout": 5, "team": "red"}, True),  # the same five
        ({"rollout": 5}, {"rollout": 6}, False),
        ({"rollout": 50, "team": "r*"}, {"team": "red"}, False),
        ({"team": "a?"}, {"team": "a*"}, False),
        ({"team": "[ab]*"}, {"team": "?*"}, False),
        ({"team": "a*"}, {"team": "a?[bc]*"}, True),
        ({"model": "*-mini"}, {"model": "gpt-*-mini"}, True),
        ({"model": "gpt-*"}, {"model": "*-mini"}, False),
        ({"tag": "*]*"}, {"tag": "[a]"}, False),
    ],
)
def test_an_attachment_is_unreachable_only_where_an_earlier_one_takes_all_of_its_conversations(earlier, later, is_told):
    assert Attachment(**earlier).covers(Attachment(**later)) is is_told
