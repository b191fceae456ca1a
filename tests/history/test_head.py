"""The digest of a head: the same while an agent's conversation goes on, another one wherever heads differ."""

from pathlib import Path

import pytest

from proxy.history.identity import compute_head_digest
from tests.support.cost_growth import assert_grows_in_proportion
from tests.support.messages import body, parse_request, request, system, user
from tests.support.written_steps import assert_case, list_cases, list_given

KEY = b"k" * 32
GOLDEN = Path(__file__).parent / "golden" / "heads"


def digest(*pieces, key=KEY):
    return compute_head_digest(request(*pieces, user("hi")).head, "tenant", key)


def system_with_environment(text):
    return system(f"You are a coding agent.\n\n<env>\n{text}\n</env>\n\nBe brief.")


def judge(case):
    """One head alone, or two within the environment of a prompt; with their digests, or the one that both have."""
    given = list_given(case)
    write = system if len(given) == 1 else system_with_environment
    digests = dict.fromkeys(digest(write(line.replace("\\n", "\n"))) for line in given)
    return "\n".join([*given, *(f"= {each}" for each in digests)])


@pytest.mark.parametrize(("sentence", "case"), list_cases(GOLDEN))
def test_heads_have_the_digests_of_their_golden_file(sentence, case):
    assert_case(GOLDEN, case, judge(case))
    assert case.count("\n= ") == (2 if "different people" in sentence else 1)


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
