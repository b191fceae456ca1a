"""A judge follows a conversation request by request. Everything here can be added up on paper."""

from msgspec.structs import replace

from proxy.lab.replay.replay_history import PROVIDER
from proxy.lab.replay.replay_values import Documents, Judged, Needed, Recall, Scores, Tokens
from proxy.lab.replay.scoring import Judge, UpstreamModel, sum_scores
from proxy.lab.replay.simulation import Sent
from proxy.lab.replay.summarizers import SummaryRequest
from tests.support.messages import assistant, call, history, user
from tests.support.replay_cases import AS_SENT, PLAIN, judge_views, recorded_case, sizes

LONG = "x = 1\n" * 400
PIECES = (user("Mend it."), call("Read", path="src/a.py", out=LONG), call("Run", out="ok"), assistant("Done."))
SENT = history(*PIECES)
# Three requests: of 1 message, of 3, of 5.
FIRST, SECOND, THIRD = (sum(sizes(SENT[:many])) for many in (1, 3, 5))
CLEARED = [*SENT[:2], {**SENT[2], "content": "[cleared]"}, *SENT[3:5]]
SMALL = sum(sizes(CLEARED))
SAME = sum(sizes(SENT[:2]))


def test_nothing_in_between_costs_what_was_sent_and_breaks_nothing():
    scores = judge_views(recorded_case(*PIECES), AS_SENT, AS_SENT, AS_SENT).scores
    plain = Tokens(fresh=THIRD, cached=FIRST + SECOND)
    assert (scores.requests, scores.raw, scores.forwarded) == (3, plain, plain)
    assert (scores.rewrites, scores.peak, scores.over, scores.invalid) == (0, THIRD, 0, {})
    assert scores.mean == (FIRST + SECOND + THIRD) // 3


def test_a_rewrite_is_uncached_from_its_first_change():
    result = judge_views(recorded_case(*PIECES), AS_SENT, AS_SENT, CLEARED)
    scores = result.scores
    assert scores.rewrites == 1
    assert scores.forwarded == Tokens(fresh=SECOND + SMALL - SAME, cached=FIRST + SAME)
    assert scores.peak == max(SECOND, SMALL)
    assert [point.rewrote for point in result.points] == [False, False, True]
    assert [(point.raw, point.forwarded, point.cached) for point in result.points] == [
        (FIRST, FIRST, 0),
        (SECOND, SECOND, FIRST),
        (THIRD, SMALL, SAME),
    ]
    assert [point.raw_cached for point in result.points] == [0, FIRST, SECOND]


def test_a_view_that_was_short_from_the_start_breaks_nothing():
    assert judge_views(recorded_case(*PIECES), AS_SENT, CLEARED[:3], CLEARED).scores.rewrites == 0


def test_a_view_that_loses_its_end_breaks():
    assert judge_views(recorded_case(*PIECES), AS_SENT, AS_SENT, SENT[:1]).scores.rewrites == 1


def test_other_tools_break_the_cache():
    case = recorded_case(*PIECES, tools=[{"type": "function", "function": {"name": "Read"}}])
    judge, tools = Judge(case), case.history.request.tools
    for turn, text in zip(case.turns, (tools, tools, None), strict=True):
        judge.score(turn, Sent(turn.request.messages, text))
    scores = judge.result("p").scores
    assert scores.rewrites == 1
    assert scores.raw.read == FIRST + SECOND + THIRD + 3 * (len(tools) // 4)
    assert scores.forwarded == Tokens(fresh=SECOND + len(tools) // 4 + THIRD, cached=FIRST + len(tools) // 4)


def test_a_request_over_the_window_is_counted():
    case = recorded_case(*PIECES, upstream=UpstreamModel(window=SECOND - 1, habit=PLAIN.habit))
    assert judge_views(case, AS_SENT, AS_SENT, AS_SENT).scores.over == 2
    assert judge_views(case, AS_SENT, CLEARED[:3], CLEARED).scores.over == 0


def test_a_cache_goes_cold_by_the_recorded_times():
    long = (user("w " * 3_000), call("Read", out="ok"), assistant("Done."))
    warm = recorded_case(*long, at=(1_000.0, 1_300.0), upstream=UpstreamModel(habit=PROVIDER))
    cold = recorded_case(*long, at=(1_000.0, 1_301.0), upstream=UpstreamModel(habit=PROVIDER))
    first = sizes(history(*long))[0]
    assert judge_views(warm, AS_SENT, AS_SENT).scores.raw.cached == first // 128 * 128
    assert judge_views(cold, AS_SENT, AS_SENT).scores.raw.cached == 0


def test_where_no_times_are_recorded_answers_come_at_the_usual_pace():
    assert [turn.seconds for turn in recorded_case(*PIECES).turns] == [0, 8, 16]
    assert [turn.seconds for turn in recorded_case(*PIECES, at=(5.0, 7.5, 7.0)).turns] == [0, 2.5, 2.5]


def test_requests_of_what_was_carried_over_are_not_counted_again():
    assert [turn.place for turn in recorded_case(*PIECES, begins=3).turns] == [3, 5]


def test_summaries_are_charged_with_what_they_read_and_write():
    case = recorded_case(*PIECES)
    judge = Judge(case)
    asked = SummaryRequest((*case.history.pieces[:3], b"t" * 400), written=50)
    for turn, before, after in zip(case.turns, ((), (), (asked,)), ((), (asked,), ()), strict=True):
        judge.score(turn, Sent(turn.request.messages, None, "", before, after))
    result = judge.result("p")
    assert result.scores.summary_calls == 2
    # The first read what was just forwarded, and 100 tokens more; the second found these in the cache, too.
    assert result.scores.summaries == Tokens(fresh=100, cached=SECOND + SECOND + 100, written=100)
    assert [point.summaries for point in result.points] == [0, 1, 1]


def test_a_real_models_reported_usage_is_charged_as_reported():
    case = recorded_case(*PIECES)
    judge, text = Judge(case), Tokens(fresh=7, cached=11, written=13)
    for turn in case.turns:
        judge.score(turn, Sent(turn.request.messages, None, after=(SummaryRequest(usage=text),)))
    assert judge.result("p").scores.summaries == Tokens(21, 33, 39)


def test_only_what_was_right_before_counts_as_invalid():
    case = recorded_case(*PIECES)
    assert judge_views(case, AS_SENT, AS_SENT, [*SENT[:2], *SENT[3:5]]).scores.invalid == {
        "openai": 1,
        "alternating": 1,
        "anthropic": 1,
    }
    assert judge_views(case, AS_SENT, AS_SENT, history(user("a"), user("b"))).scores.invalid == {"alternating": 1}
    broken = recorded_case(user("a"), user("b"), assistant("c"))
    assert judge_views(broken, history(user("b"), user("a"))).scores.invalid == {}
    assert judge_views(broken, history(user("b"), user("a"), user("c"))).scores.invalid == {}


CODE = "".join(f"def charge_{number}(berth): return berth.fee * {number}\n" for number in range(1_200))
EDIT = {"old_string": "def charge_7(berth): return berth.fee * 7\n", "new_string": "pass"}
EDITED = (
    user("Mend it."),
    call("Read", path="src/a.py", out=CODE),
    *[call("Run", out="ok")] * 5,
    call("Edit", path="src/a.py", **EDIT),
    assistant("Done."),
)


def forget(messages):
    """The messages with the text that was read left out."""
    return [{**each, "content": "[cleared]"} if each["content"] == CODE else each for each in messages]


def test_needed_spans_are_looked_for_in_every_fifth_large_request_and_what_is_lost_is_read_again():
    # The first large request is that after the read, whose result is among the newest three messages. The other one
    # that is judged is the sixth, and its answer is the edit.
    case = recorded_case(*EDITED)
    sent = history(*EDITED)
    as_sent = [AS_SENT] * 8
    whole = judge_views(case, *as_sent).scores.needed
    assert whole == Needed(asked=1, kept=1)
    for number in (1, 5, 7):
        views = [*as_sent[:number], forget(sent[: 2 * number + 1]), *as_sent[number + 1 :]]
        assert judge_views(case, *views).scores.needed == whole
    result = judge_views(case, *as_sent[:6], forget(sent[:13]), AS_SENT)
    point = result.points[6]
    assert result.scores.needed == Needed(
        asked=1,
        rereads=1,
        reread=Tokens(fresh=point.forwarded - point.cached + sizes(sent)[2], cached=point.cached),
    )
    assert result.scores.removed == sizes(sent)[2] - sizes(forget(sent))[2]


def test_a_need_that_two_judged_requests_see_coming_is_charged_once():
    pieces = (*EDITED[:7], *[call("Run", out="ok")] * 5, call("Edit", path="src/a.py", **EDIT), assistant("Done."))
    case = recorded_case(*pieces)
    sent = history(*pieces)
    views = [AS_SENT, *(forget(sent[: 2 * number + 1]) for number in range(1, 13))]
    needed = judge_views(case, *views).scores.needed
    assert (needed.asked, needed.kept, needed.rereads) == (2, 0, 1)


def test_recall_is_of_the_last_request():
    case = recorded_case(*PIECES)
    assert judge_views(case, AS_SENT, AS_SENT, AS_SENT).scores.recall["user messages"] == Recall(1, 1)
    lost = judge_views(case, AS_SENT, AS_SENT, history(user("Go on."))).scores.recall
    assert lost == {
        "user messages": Recall(1, 0),
        "pins": Recall(0, 0),
        "acts told": Recall(0, 0),
        "failures told": Recall(0, 0),
    }


RULES = "".join(f"{number}. Run the tests of quay {number} before each commit.\n" for number in range(40))


def test_documents_are_asked_for_after_each_rewrite():
    pieces = (user(f"# AGENTS.md instructions\n{RULES}"), *PIECES)
    sent = history(*pieces)
    cut = [{**sent[0], "content": f"# AGENTS.md instructions\n{RULES[:900]}"}, *sent[1:]]
    scores = judge_views(recorded_case(*pieces), AS_SENT, cut[:4], cut[:6]).scores
    assert (scores.rewrites, scores.documents) == (1, Documents(cut=1))
    gone = judge_views(recorded_case(*pieces), AS_SENT, sent[1:4], AS_SENT).scores
    assert (gone.rewrites, gone.documents) == (2, Documents(whole=1, gone=1))


def test_sentences_are_judged_once_in_the_first_view_that_has_them():
    case = recorded_case(*PIECES)
    judge = Judge(case)
    told = (
        "[Shortened by the context proxy: Read(src/a.py), 401 lines, 2,401 bytes. Call the tool again for all of it.]"
    )
    for turn in case.turns:
        messages = turn.request.messages
        if messages[2:]:
            shortened = replace(messages[2], start=2, stop=3).with_text(told, "clear_results")
            messages = (*messages[:2], shortened, *messages[3:])
        judge.score(turn, Sent(messages, None))
    sentences = judge.result("p").scores.sentences
    assert sentences == {"call": Judged(1, 1, 0), "size": Judged(1, 0, 1), "way back": Judged(1, 1, 0)}


OWN = "def leave(berth): return berth.fee - berth.discount"


def test_own_words_that_the_agent_writes_again_are_needed_too():
    written = call("Edit", path="src/b.py", new_string=OWN, out="ok")
    pieces = (user("Mend it."), call("Read", out=CODE), written, *[call("Run", out="ok")] * 4, written, assistant("."))
    case = recorded_case(*pieces)
    as_sent = [AS_SENT] * 8
    assert judge_views(case, *as_sent).scores.own == Recall(1, 1)
    sent = history(*pieces)
    folded = [*sent[:3], *sent[5:13]]
    assert judge_views(case, *as_sent[:6], folded, AS_SENT).scores.own == Recall(1, 0)


def test_scores_add_up():
    one = judge_views(recorded_case(*PIECES), AS_SENT, AS_SENT, CLEARED).scores
    both = sum_scores([one, one])
    assert both.requests == 6
    assert both.forwarded == one.forwarded + one.forwarded
    assert (both.peak, both.rewrites) == (one.peak, 2)
    assert both.recall["user messages"] == Recall(2, 2)
    assert sum_scores([]) == Scores(peak=0)


def test_an_answer_that_did_not_come_as_it_should_is_counted():
    assert judge_views(recorded_case(*PIECES), AS_SENT, AS_SENT, AS_SENT, failed=True).scores.failed == 3
