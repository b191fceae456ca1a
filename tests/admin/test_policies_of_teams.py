"""The policies that the page of teams names: those that decide."""

from proxy.admin.teams import list_deciding
from proxy.config import Config


def test_an_attachment_for_all_conversations_of_a_team_leaves_nothing_to_the_others():
    attachments = [
        {"policy": "observe", "team": "support", "rollout": 10},
        {"policy": "default", "team": "support", "mode": "observe"},
        {"policy": "off", "team": "*"},
    ]
    config = Config.model_validate({"teams": {"support": {}, "red": {}}, "attachments": attachments})
    shown = [(one["policy"], one["rollout"], one["mode"]) for one in list_deciding(config, "support")]
    assert shown == [("observe", 10, ""), ("default", 100, "observe")]
    assert [one["policy"] for one in list_deciding(config, "red")] == ["off"]
