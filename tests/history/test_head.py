"""The digest of a head: the same while an agent's conversation goes on, another one wherever heads differ."""

import pytest

from proxy.history.identity import compute_head_digest
from tests.support.cost_growth import assert_grows_in_proportion
from tests.support.messages import body, parse_request, request, system, user

KEY = b"k" * 32

# A line as today's agents write it, and the same line on a later turn or in a resumed session.
LATER = [
    ("Today's date: Tue Jan 06 2026", "Today's date: Wed Jan 07 2026"),
    ("Today's date: 2026-01-06", "Today's date: 2026-01-07"),
    ("Today is Friday", "Today is Saturday"),
    (
        "The current date is Saturday, November 22, 2025 at 3:04:05 PM CET.",
        "The current date is Monday, May 4, 2026 at 11:14:05 AM CET.",
    ),
    ("Current time: 2025-11-22T14:03:22.123Z", "Current time: 2026-01-02T04:13:59.001Z"),
    ("now: 2025-11-22 14:03:22+01:00", "now: 2025-11-23 09:00:00+01:00"),
    ("Sat Nov 22 2025 14:03:22 GMT+0100 (CET)", "Sun Nov 23 2025 04:00:01 GMT+0100 (CET)"),
    ("It is 11/22/2025, 3:05 pm", "It is 1/2/2026, 11:59 am"),
    ("Datum: 22.11.2025", "Datum: 03.12.2025"),
    ('{"timestamp": 1763800000}', '{"timestamp": 1763803600.5}'),
    ("Memory blocks were last modified: 5 minutes ago", "Memory blocks were last modified: 2 hours ago"),
    ("- 16 previous messages between you and the user", "- 18 previous messages between you and the user"),
    ("Token usage: 12,345/200,000; 187,655 remaining", "Token usage: 1,345/200,000; 198,655 remaining"),
    ("Context window usage: 12%", "Context window usage: 44.5%"),
    ("Current step: 3/100", "Current step: 14/100"),
    ("Turn 3 of 50", "Turn 14 of 50"),
    ("Tokens used: 12k of 200k (6%)", "Tokens used: 14.5k of 200k (7%)"),
    ("Time elapsed: 200s", "Time elapsed: 845s"),
    (
        "You have 150,000 tokens left and 3/8 requests remaining.",
        "You have 9,000 tokens left and 4/8 requests remaining.",
    ),
    ("You have 150k tokens left", "You have 9.5k tokens left"),
    ("Budget remaining: $4.35", "Budget remaining: $12.5"),
    ("Customer 4711; requests left: 3", "Customer 4711; requests left: 12"),
    (
        "x-anthropic-billing-header: cc_version=2.1.9; cch=0a1b2;",
        "x-anthropic-billing-header: cc_version=2.1.9; cch=ff;",
    ),
    (
        (
            "gitStatus: This is the git status.\n\nCurrent branch: main\n\nStatus:\nM src/a.py\n?? b.txt\n\n"
            "Recent commits:\n0a1b2c3 Mend it\n"
        ),
        (
            "gitStatus: This is the git status.\n\nCurrent branch: fix\n\nStatus:\n(clean)\n\n"
            "Recent commits:\nffffff1 Mend more\n0a1b2c3 Mend it\n"
        ),
    ),
]
# Heads that differ in little, and belong to different people.
DIFFERENT = [
    ("You serve ACME.", "You serve Foo."),
    ("The launch code is 4711.", "The launch code is 4712."),
    ("Customer 1763800000", "Customer 1763800001"),
    ("On 2026-11-27 customer 1763800000 wrote", "On 2026-11-27 customer 1763800001 wrote"),
    ("User id: 6e0f0f4e-8d7c-4c39-9a4a-000000000001", "User id: 6e0f0f4e-8d7c-4c39-9a4a-000000000002"),
    ("Working directory: /home/a", "Working directory: /home/b"),
    ("Connect to 10.20.30.40:8080", "Connect to 10.20.30.41:8080"),
    ("Use version 1.2.34", "Use version 1.2.35"),
    ("Never deploy on a Friday", "Never deploy on a Monday"),
    ("Git status matters. ACME", "Git status matters. Foo"),
    (
        "gitStatus: clean\nCurrent branch: main\nYou serve ACME.",
        "gitStatus: clean\nCurrent branch: main\nYou serve Foo.",
    ),
    ("Status:\nM ACME", "Status:\nM Foo"),
    ("The budget of ACME is 4711", "The budget of ACME is 4712"),
    ("Customer 4711; requests left: 3", "Customer 4712; requests left: 3"),
    ("Customer 4711, requests left: 3", "Customer 4712, requests left: 3"),
    ("Requests left: 3; customer 4711", "Requests left: 3; customer 4712"),
    ("Requests left: 3, 4711 is the customer", "Requests left: 3, 4712 is the customer"),
    ("Tokens left for customer 4711: 12", "Tokens left for customer 4712: 12"),
    ("Step 3: ask account 4711", "Step 3: ask account 4712"),
    ("Guest 412 left; account 4711 used", "Guest 413 left; account 4712 used"),
    ("Step back if guest 412 left", "Step back if guest 413 left"),
    ("Customer 4711 200k tokens left", "Customer 4712 200k tokens left"),
    ("No time left. 4711 is the customer", "No time left. 4712 is the customer"),
    ("Time used is billed to order 88-4711.", "Time used is billed to order 88-4712."),
]

# Stored blocks with summaries are found again after an upgrade from version 0.2, whose digests these are.
DIGESTS = [
    ("Be brief.  ", "4e7c5dd1ad7922d8"),
    ("Today is Friday, November 27, 2026.", "f3b5a60228bcb6a6"),
    ("Current time: 2026-11-27 09:30:19 UTC", "82d84385e5800556"),
    ("2026-11-27T09:30:19Z", "1943b74ec087c1a2"),
    ("Deploy on Fri. 2026-11-27 09:30 -0800", "cbda8cdfd6ca65b0"),
    ("Tokens used: 12k of 200k (6%).", "2f9d043f13275311"),
    ("Turn 3 of 50.", "75ae692fa682dd16"),
]


def digest(*pieces, key=KEY):
    return compute_head_digest(request(*pieces, user("hi")).head, "tenant", key)


def system_with_environment(text):
    return system(f"You are a coding agent.\n\n<env>\n{text}\n</env>\n\nBe brief.")


@pytest.mark.parametrize(("now", "later"), LATER, ids=[now[:24] for now, _ in LATER])
def test_changing_parts_of_a_head_are_left_out_of_its_digest(now, later):
    assert digest(system_with_environment(now)) == digest(system_with_environment(later))
    assert digest(system_with_environment(now)) != digest(system_with_environment("nothing"))


@pytest.mark.parametrize(("one", "other"), DIFFERENT, ids=[one[:24] for one, _ in DIFFERENT])
def test_any_other_difference_is_another_head(one, other):
    assert digest(system_with_environment(one)) != digest(system_with_environment(other))


@pytest.mark.parametrize(("text", "of_version_0_2"), DIGESTS)
def test_the_digest_of_a_head_is_that_of_version_0_2(text, of_version_0_2):
    assert digest(system(text)) == of_version_0_2


def test_role_order_and_number_of_messages_count():
    developer = [{"role": "developer", "content": "a"}]
    heads = [system("a"), developer, [*system("a"), *system("b")], [*system("b"), *system("a")], system("a\nb"), []]
    assert len({digest(head) for head in heads}) == len(heads)


def test_cache_markers_and_the_wrapping_they_need_make_no_difference():
    part = {"type": "text", "text": "You help."}
    marked = {**part, "cache_control": {"type": "ephemeral"}}
    assert digest(system([marked])) == digest(system([part])) == digest(system("You help."))


def test_content_other_than_text_counts_too():
    heads = [system([{"type": "image_url", "image_url": {"url": url}}]) for url in ("a", "b")]
    assert len({digest(head) for head in [*heads, system(None), system(7)]}) == 4


def test_another_secret_gives_other_digests():
    assert digest(system("a")) != digest(system("a"), key=b"o" * 32)


@pytest.mark.parametrize("opening", ["gitStatus:\n", "tokens used: 5 "])
@pytest.mark.parametrize(
    "piece",
    [
        *("1", "1, ", "may ", "2025-", "12:3", " ", "A now ", "gitStatus:\n", "M a\n", "\0"),
        *("1 ", "1/", "1 of ", "1 tokens used ", "tokens used ", "(", "left: 3 "),
    ],
)
def test_the_work_is_proportional_to_the_length(opening, piece):
    def write(characters):
        return parse_request(body([*system(opening + piece * (characters // len(piece))), *user("hi")])).head

    assert_grows_in_proportion(lambda head: compute_head_digest(head, "tenant", KEY), write, 8_000)
