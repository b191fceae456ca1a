"""Words in the names of tools, tasks and scripts, and in commands of programs that nobody lists: what they say is done.

mcp__shop__cancel_order                 acts
get_order_details                       looks: the first word tells it
shopctl --env prod charge-card          acts
make release-notes                      the second word tells that nothing is released
"""

import re
from collections.abc import Mapping

NAME_WORDS = {
    "reads, if it is the first word": (
        "get list read find search show view describe fetch validate verify preview wait"
    ),
    "reads": (
        "ls cat look lookup grep glob query retrieve load browse inspect explain status count calculate compare diff "
        "snapshot screenshot tree think resolve analyze history rg ripgrep lsp"
    ),
    "changes things": (
        "create add insert write append save set put patch update edit modify replace rename move copy delete remove "
        "close clear reset mark reply upload commit exchange"
    ),
    "changes things, or names what another word reads": (
        "archive assign disable enable fork grant invite notify request restore schedule subscribe transition trigger"
    ),
    "runs programs or changes a page": (
        "install run exec execute start stop restart kill click type fill press call invoke trigger"
    ),
    "acts on the world": (
        "apply approve book buy cancel charge deploy merge order pay post publish push refund release send submit "
        "transfer"
    ),
    "acts on the world, or names what another word reads": (
        "destroy invoice migrate payout promote provision purge revoke rollback rollout terminate withdraw"
    ),
}
(
    _FIRST_READING_WORDS,
    _READING_WORDS,
    _CHANGING_WORDS,
    _OTHER_CHANGING_WORDS,
    _RUNNING_WORDS,
    _ACTING_WORDS,
    _OTHER_ACTING_WORDS,
) = map(frozenset, map(str.split, NAME_WORDS.values()))
COMMAND_WORDS: Mapping[str, str] = {
    "a task or a script acts": (
        "deploy publish migrate rollback rollout push promote provision destroy send ship upload charge refund notify "
        "announce purge redeploy undeploy"
    ),
    "a task or a script acts, if it is the first word": (
        "release apply cancel approve terminate revoke transfer pay submit withdraw payout"
    ),
    "a task or a script does not act, whatever the other words are": (
        "test tests spec check lint build status list plan dry verify show validate dev mock local diff compare print "
        "get describe fetch view find search analyze simulate watch serve generate help"
    ),
    "a task or a script does not act, unless the first word acts": (
        "notes history log logs report docs doc stats dump example examples"
    ),
    "a program acts by such a verb": "create delete remove rm restart flush drop truncate update",
    "a program does not act by such a verb": (
        "help list ls show view get describe status diff log logs check validate search find info version print plan "
        "test"
    ),
}
_TASK_VERBS, _FIRST_TASK_VERBS, _NO_TASK_WORDS, _TASK_THINGS, _MORE_VERBS, _LOOKING_VERBS = map(
    frozenset, map(str.split, COMMAND_WORDS.values())
)
# Release is a noun as well: `decompile release`.
_VERBS = (_TASK_VERBS | _FIRST_TASK_VERBS | _MORE_VERBS) - {"release"}
_NAME_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def list_name_words(name: str) -> list[str]:
    """`read` and `file` of `readFile` and of `read_file`."""
    return list(map(str.lower, _NAME_WORD.findall(name)))


def reads_by_name(tool: str) -> bool:
    words = list_name_words(tool)
    if not (_CHANGING_WORDS | _RUNNING_WORDS | _ACTING_WORDS).isdisjoint(words):
        return False
    return not (_FIRST_READING_WORDS | _READING_WORDS).isdisjoint(words)


def acts_by_name(tool: str) -> bool:
    words = list_name_words(tool)
    # `get_order_details` names the thing that it reads, `check_and_deploy` does two things.
    if not _FIRST_READING_WORDS.isdisjoint(words[:1]) and "and" not in words:
        return False
    if not _ACTING_WORDS.isdisjoint(words):
        return True
    if not _OTHER_ACTING_WORDS.isdisjoint(words) and _READING_WORDS.isdisjoint(words):
        return True
    for word in words[:2]:
        if word in _READING_WORDS:
            return False
        if word in _CHANGING_WORDS | _OTHER_CHANGING_WORDS:
            return True
    return False


def is_acting_task(name: str) -> bool | None:
    """Whether the name of a task or a script says that it acts: `deploy-staging`, `send_invoices.py`, `test_deploy.py`.

    None if it does not tell.
    """
    words = list_name_words(name)
    begins_with_verb = not _TASK_VERBS.isdisjoint(words[:1])
    if not _NO_TASK_WORDS.isdisjoint(words) or not (begins_with_verb or _TASK_THINGS.isdisjoint(words)):
        return False
    if not _TASK_VERBS.isdisjoint(words) or not _FIRST_TASK_VERBS.isdisjoint(words[:1]):
        return True
    return None


def is_acting_verb(word: str) -> bool | None:
    """None if the word is no verb that is known: `card` of `shopctl card charge`."""
    verb = word.rpartition(":")[2].partition("-")[0]
    if verb in _LOOKING_VERBS:
        return False
    if verb in _VERBS:
        return True
    return None
