"""Words that tell whether something acts: in names of tools, tasks and scripts, and in commands of unknown programs.

mcp__shop__cancel_order                 acts
get_order_details                       looks: the first word tells it
shopctl --env prod charge-card          acts
make release-notes                      the second word tells that nothing is released
"""

import re
from collections.abc import Mapping


def _list_words(table: Mapping[str, str]) -> dict[str, frozenset[str]]:
    return {kind: frozenset(words.split()) for kind, words in table.items()}


_NAMES = _list_words(
    {
        "looks first": "get list read find search show view describe fetch validate verify preview wait",
        "looks": (
            "ls cat look lookup grep glob query retrieve load browse inspect explain status count calculate compare "
            "diff snapshot screenshot tree think resolve analyze history rg ripgrep lsp"
        ),
        "changes": (
            "create add insert write append save set put patch update edit modify replace rename move copy delete "
            "remove close clear reset mark reply upload commit exchange"
        ),
        # In `list_invites` another word tells that this one is a noun.
        "may change": (
            "archive assign disable enable fork grant invite notify request restore schedule subscribe transition "
            "trigger"
        ),
        "runs": "install run exec execute start stop restart kill click type fill press call invoke trigger",
        "acts": (
            "apply approve book buy cancel charge deploy merge order pay post publish push refund release send submit "
            "transfer"
        ),
        "may act": (
            "destroy invoice migrate payout promote provision purge revoke rollback rollout terminate withdraw"
        ),
    }
)
"""Words in the names of tools, by the kind of act. Those of "looks first" tell that only if they stand first."""
_TASKS = _list_words(
    {
        "acts": (
            "deploy publish migrate rollback rollout push promote provision destroy send ship upload charge refund "
            "notify announce purge redeploy undeploy"
        ),
        "acts first": "release apply cancel approve terminate revoke transfer pay submit withdraw payout",
        # These count whatever the other words are: `test_deploy`.
        "looks": (
            "test tests spec check lint build status list plan dry verify show validate dev mock local diff compare "
            "print get describe fetch view find search analyze simulate watch serve generate help"
        ),
        # These count unless the first word acts: `deploy-docs` does.
        "is a thing": "notes history log logs report docs doc stats dump example examples",
    }
)
"""Words in the names of tasks and scripts. Those of "acts first" act if they stand first."""
_VERBS = _list_words(
    {
        "acts": "create delete remove rm restart flush drop truncate update",
        "looks": (
            "help list ls show view get describe status diff log logs check validate search find info version print "
            "plan test"
        ),
    }
)
"""Verbs of programs that have no entry in the table of programs."""
_NAME_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def list_name_words(name: str) -> list[str]:
    """Return `read` and `file` for `readFile` and for `read_file`."""
    return list(map(str.lower, _NAME_WORD.findall(name)))


def reads_by_name(tool: str) -> bool:
    words = list_name_words(tool)
    if not (_NAMES["changes"] | _NAMES["runs"] | _NAMES["acts"]).isdisjoint(words):
        return False
    return not (_NAMES["looks first"] | _NAMES["looks"]).isdisjoint(words)


def acts_by_name(tool: str) -> bool:
    words = list_name_words(tool)
    # `get_order_details` names the thing that it reads, `check_and_deploy` does two things.
    if not _NAMES["looks first"].isdisjoint(words[:1]) and "and" not in words:
        return False
    if not _NAMES["acts"].isdisjoint(words):
        return True
    if not _NAMES["may act"].isdisjoint(words) and _NAMES["looks"].isdisjoint(words):
        return True
    for word in words[:2]:
        if word in _NAMES["looks"]:
            return False
        if word in _NAMES["changes"] | _NAMES["may change"]:
            return True
    return False


def is_acting_task(name: str) -> bool | None:
    """Return whether a task or a script acts, by its name; None if that does not tell.

    `deploy-staging` and `send_invoices.py` act, `test_deploy.py` does not.
    """
    words = list_name_words(name)
    begins_with_verb = not _TASKS["acts"].isdisjoint(words[:1])
    if not _TASKS["looks"].isdisjoint(words) or not (begins_with_verb or _TASKS["is a thing"].isdisjoint(words)):
        return False
    if not _TASKS["acts"].isdisjoint(words) or not _TASKS["acts first"].isdisjoint(words[:1]):
        return True
    return None


def is_acting_verb(word: str) -> bool | None:
    """Return whether a verb acts; None if the word is no known verb, as `card` in `shopctl card charge`."""
    verb = word.rpartition(":")[2].partition("-")[0]
    if verb in _VERBS["looks"]:
        return False
    # Release is a noun as well: `decompile release`.
    if verb in _TASKS["acts"] | _TASKS["acts first"] | _VERBS["acts"] and verb != "release":
        return True
    return None
