"""Needed spans: of the text that an agent writes next, the part that only an earlier output can have given it."""

from proxy.history.observations import OBSERVATIONS
from proxy.lab.replay.spans import NeededSpans, choose_requests, normalize
from tests.support.messages import assistant, call, history, mark_output, user
from tests.support.replay_cases import view_of

LINE = "def charge(berth, tariff):"
MORE = "return tariff.fee * berth.days"
READ = f"     1\u2192{LINE}\n     2\u2192    {MORE}\n     3\u2192# end of the file, nothing more"
BETWEEN = (call("Run", out="ok"), call("Run", out="ok"))


def needed(*pieces, place=None, own=False):
    """The needed spans of the request that is followed by the last answer."""
    messages = view_of(history(*pieces))
    place = len(messages) - 1 if place is None else place
    spans = NeededSpans(mark_output(messages, OBSERVATIONS), [place], own=own)
    return [span.text for span in spans.by_place.get(place, ())]


def test_text_that_stands_in_an_earlier_output_only_is_needed_whole():
    edit = assistant(f"I change\n{LINE}\n    {MORE}\nto another.")
    assert needed(user("Go."), call("Read", out=READ), *BETWEEN, edit) == [f"{LINE} {MORE}"]


def test_arguments_of_calls_are_searched_like_texts():
    edit = call("Edit", old=f"{LINE}\n    {MORE}", new="pass", out="done")
    place = len(history(user("Go."), call("Read", out=READ), *BETWEEN))
    assert needed(user("Go."), call("Read", out=READ), *BETWEEN, edit, place=place) == [f"{LINE} {MORE}"]


def test_output_in_the_role_of_a_user_counts_as_output():
    output = f"Observation: {READ}"
    pieces = (user("Go."), assistant("ls"), user(output), *([assistant("ok"), user("Observation: ok")] * 2))
    assert needed(*pieces, assistant(f"I change {LINE} now")) == [LINE]


def test_a_short_piece_is_no_span():
    assert needed(user("Go."), call("Read", out="tariff.fee * berth.days"), *BETWEEN, assistant("tariff.fee")) == []


def test_what_every_policy_leaves_whole_is_not_needed():
    edit = assistant(LINE)
    read = call("Read", out=READ)
    assert needed(user(f"Mend {LINE}"), read, *BETWEEN, edit) == []  # the user's words
    assert needed(user("Go."), *BETWEEN, read, edit) == []  # among the newest three messages


def test_text_of_an_output_that_the_agent_has_written_too_is_its_own():
    for own in (call("Run", note=LINE, out="ok"), (*assistant(f"I see {LINE}"), *user("Go on."))):
        pieces = (user("Go."), call("Read", out=READ), own, *BETWEEN, assistant(LINE))
        assert needed(*pieces) == []
        assert needed(*pieces, own=True) == [LINE]


def test_words_that_only_the_agent_has_written_are_its_own():
    pieces = (user("Go."), call("Edit", new=f"{LINE}\n    {MORE}", out="done"), *BETWEEN)
    assert needed(*pieces, assistant(f"I wrote {LINE} {MORE}")) == []
    assert needed(*pieces, assistant(f"I wrote {LINE} {MORE}"), own=True) == [f"{LINE} {MORE}"]
    assert needed(user(f"Write {LINE}"), *pieces[1:], assistant(LINE), own=True) == []  # the user's words


def test_what_was_read_again_in_between_is_not_needed():
    pieces = (user("Go."), call("Read", out=READ), *BETWEEN)
    place = len(history(*pieces))
    assert needed(*pieces, call("Read", out=READ), assistant(LINE), place=place) == []
    assert needed(*pieces, call("Run", out="ok"), assistant(LINE), place=place) == [LINE]


def test_what_is_written_after_sixteen_messages_is_not_looked_at():
    pieces = (user("Go."), call("Read", out=READ), *BETWEEN)
    place = len(history(*pieces))
    for many, spans in ((7, [LINE]), (8, [])):
        assert needed(*pieces, *[call("Run", out="ok")] * many, assistant(LINE), place=place) == spans


def test_a_run_over_two_outputs_is_cut_where_one_ends():
    first, second = call("Read", out=f"x {LINE} {MORE}"), call("Read", out=f"{MORE[2:]} and then some more text")
    edit = assistant(f"{LINE} {MORE} and then some more text")
    assert needed(user("Go."), first, second, *BETWEEN, edit) == [f"{LINE} {MORE}", "and then some more text"][:1]


def test_a_span_is_kept_if_it_stands_in_the_view_word_for_word():
    messages = view_of(history(user("Go."), call("Read", out=READ), *BETWEEN, assistant(LINE)))
    spans = NeededSpans(messages, [7])
    view = messages[:7]
    assert spans.find_lost(7, view) == []
    cut = (*view[:2], view[2].with_text("[Shortened. Names: charge, berth, tariff]", "clear_results"), *view[3:])
    (lost,) = spans.find_lost(7, cut)
    assert (lost.text, lost.source, lost.written) == (LINE, 2, 7)
    excerpt = (*view[:2], view[2].with_text(f"[Shortened.]\n  12: {LINE}", "clear_results"), *view[3:])
    assert spans.find_lost(7, excerpt) == []


def test_line_numbers_and_white_space_make_no_difference():
    assert normalize(READ) == normalize(f"1\t{LINE}\n2\t  {MORE}\n3\t# end of the file,\n nothing   more")


def test_every_fifth_request_from_14000_tokens_on_is_judged():
    places = list(range(1, 27, 2))
    assert choose_requests(places, [13_999, 13_999, *[14_000] * 11]) == [5, 15, 25]
    assert choose_requests([1, 3], [100, 13_000]) == []
