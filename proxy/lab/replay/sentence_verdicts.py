r"""Is a sentence of the proxy true? Each is held against the client's own messages.

Nothing here asks the code that writes the sentences. Sizes are counted again, quoted lines are looked up in the
original, a told failure must be one by the harness's exit code, its error flag or a failing line of the program
(`original_facts`), and a way back must not ask for an act to be made twice. If the original says neither yes nor no,
the sentence is not judged, and counted as such:

    [Shortened by the context proxy: Bash(make), 90 lines, 2,410 bytes, exit code 2: no rule. ...]
    "90 lines, 2,410 bytes"     true if the original has them
    "exit code 2: no rule"      true if the harness wrote 2 and the original holds "no rule"
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property

from msgspec import Struct

from proxy.history.messages import HEAD, JOINED, NOTE, WORDS_KEPT, Message, iterate_strings
from proxy.lab.replay.original_facts import (
    Effect,
    Ending,
    changes_file,
    ends_with_failure,
    find_command,
    find_effect,
    find_ending,
    list_exit_codes,
    list_lines,
    marks_failures,
    tells_failure,
)
from proxy.lab.replay.replay_values import Judged, Recall
from proxy.lab.replay.sentences import History, Sentence, collapse, list_sentences
from proxy.tools.tool_call import ToolCall

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f]")
_COUNTS = re.compile(r"([\d,]+) lines?\b")
_BYTES = re.compile(r"([\d,]+) bytes\Z")
_LEFT_OUT = re.compile(r"Left out: ([\d,]+) ")
_CODE = re.compile(r"\Aexit code (-?\d+)")
_CLIPPED = re.compile(r"\[… ([\d,]+) lines?, ([\d,]+) characters left out")
_TOLD_FAILED = re.compile(r"\A(?:exit code -?[1-9]\d*|failed|exit code 0, reports a failure|reports a failure)\b")
_WITHOUT_VERDICT = re.compile(r"\A(?:exit code -?\d+)?(?:, )?(?:reports a failure|failed)?:? ?")
_TOLD_WITHIN = re.compile(r", (?:exit code -?[1-9]|failed|exit code 0, reports a failure|reports a failure)")
_REPEATED = re.compile(
    r"same as (?:the result of (?P<name>.*?)(?: for lines [^,]*?)?|an earlier result)(?:, \w+)? above"
)
_NAMED_RESULT = re.compile(r"(?:the result of (?P<name>.*?)(?: for lines [^,]*?)?|an earlier result)")
_MORE_ERRORS = re.compile(r"\A… [\d,]+ more lines tell of errors\Z")
_LENGTH = re.compile(r"(?:[\w.]+: )?[\d,]+ (?:entry|entries)")
_PATH = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")
_ASKING = re.compile(r"ask|question|user_input", re.IGNORECASE)
_REFUSED = re.compile(r"want to proceed|reject|denied|declined|cancel|interrupted|refused|the user said", re.IGNORECASE)
_ABSENT = re.compile(r"(?:does not exist|no such file|cannot open|can't open)", re.IGNORECASE)
_ASKS_FOR_FAILURES = re.compile(r"\bgh (?:run|pr checks|workflow)\b")
_END_LINES = 5
_CANDIDATES = 30
_SHARED_CHARACTERS = 24
"""A shorter beginning is not left out of a line."""


class Verdict(Struct, frozen=True):
    is_true: bool | None
    """None: the original says neither yes nor no."""
    why: str = ""


TRUE = Verdict(is_true=True)


def _deny(why: str) -> Verdict:
    return Verdict(is_true=False, why=why)


def _pass(why: str) -> Verdict:
    return Verdict(is_true=None, why=why)


NO_SENTENCE = Sentence("", "", "")


class Claim(Struct, frozen=True, dict=True):  # with a dict: the original is read once
    """A sentence with the history that it speaks of, and the view in which it stands."""

    sentence: Sentence
    history: History
    view: Sequence[Message]

    @property
    def words(self) -> str:
        return self.sentence.words

    @cached_property
    def message(self) -> Message:
        return self.history.messages[self.sentence.places[0]]

    @property
    def call(self) -> ToolCall | None:
        return self.history.callers[self.sentence.places[0]]

    @cached_property
    def original(self) -> "Original":
        return self.history_originals(self.sentence.places[0])

    def history_originals(self, place: int) -> "Original":
        originals = self.history.__dict__.setdefault("originals", {})
        if place not in originals:
            originals[place] = Original(self.history.messages[place].text)
        return originals[place]  # type: ignore[no-any-return]

    @cached_property
    def is_marked(self) -> bool:
        known = self.history.__dict__
        if "is_marked" not in known:
            known["is_marked"] = marks_failures(self.history.messages)
        return bool(known["is_marked"])

    def ending(self, place: int) -> Ending:
        return find_ending(self.history.messages[place], self.history.callers[place], is_marked=self.is_marked)


class Original(Struct, frozen=True, dict=True):  # with a dict: its forms are made once
    text: str

    @cached_property
    def texts(self) -> Sequence[str]:
        """The text, and the texts in it if it is JSON."""
        inner = []
        if self.text.lstrip()[:1] in ("{", "["):
            try:
                inner = list(iterate_strings(json.loads(self.text)))
            except (ValueError, RecursionError):
                inner = []
        nested = [list(iterate_strings(json.loads(text))) for text in inner if _is_json(text)]
        return [self.text, *inner, "\n".join(inner), *("\n".join(texts) for texts in nested)]

    @property
    def is_json(self) -> bool:
        return len(self.texts) > 2  # noqa: PLR2004 (the text itself, and inner texts, of which there are none)

    @cached_property
    def flat(self) -> str:
        """All forms, without colours, each white space as one blank."""
        return "\n".join(collapse(_ESCAPES.sub(" ", text)) for text in self.texts)

    def holds(self, shown: str) -> bool:
        """Whether shown words stand here; a gap, or two lines that were joined, divide them."""
        pieces = [piece.strip() for piece in _ESCAPES.sub(" ", shown).split("…")]
        return all(self._holds_piece(collapse(piece).strip(" ,;:")) for piece in pieces)

    def _holds_piece(self, piece: str) -> bool:
        if piece in self.flat or piece.rstrip(".") in self.flat:
            return True
        for mark in ("; ", ": ", ", "):
            if mark in piece and all(map(self._holds_piece, piece.split(mark))):
                return True
        # Members of JSON are named by their path.
        return bool(_LENGTH.fullmatch(piece)) or (
            bool(_PATH.fullmatch(piece)) and piece.rpartition(".")[2] in self.flat
        )

    @cached_property
    def line_counts(self) -> set[int]:
        return {_count_lines(text) for text in self.texts} | {_count_lines(text.strip("\n")) for text in self.texts}


def _count_lines(text: str) -> int:
    return text.removesuffix("\n").count("\n") + 1


def _is_json(text: str) -> bool:
    if text.lstrip()[:1] not in ("{", "["):
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def judge_sentence(sentence: Sentence, history: History, view: Sequence[Message]) -> Verdict:
    if not sentence.places and sentence.kind not in ("words lost", "other"):
        return _judge_unplaced(sentence)
    return JUDGES[sentence.kind](Claim(sentence, history, view))


class SentenceJudge:
    """Judges each sentence of one conversation once, in the first view that holds it."""

    def __init__(self) -> None:
        self._read: set[tuple[int, int, bytes]] = set()
        self._known: set[tuple[str, str, tuple[int, ...]]] = set()

    def judge_view(self, messages: Sequence[Message], view: Sequence[Message]) -> tuple[dict[str, Judged], Recall]:
        """Count the new sentences of a view by kind, and the failed calls that new sentences speak of and tell.

        *messages*: the client's own, up to this request.
        """
        counts: dict[str, Judged] = {}
        failures = Recall()
        for sentence, verdict, history in self.list_verdicts(messages, view):
            judged = Judged(1, int(verdict.is_true is True), int(verdict.is_true is False))
            counts[sentence.kind] = counts.get(sentence.kind, Judged()) + judged
            failures += _ask_for_failure(sentence, history)
        return counts, failures

    def list_verdicts(
        self, messages: Sequence[Message], view: Sequence[Message]
    ) -> Iterator[tuple[Sentence, Verdict, History]]:
        """The sentences of a view that are new, with their verdicts and the history that they speak of."""
        history = History(messages)
        for message in view:
            key = message.start, message.stop, message.raw
            if not message.made or key in self._read:
                continue
            self._read.add(key)
            for sentence in list_sentences(message, history):
                same = sentence.kind, sentence.words, sentence.places
                if same not in self._known:
                    self._known.add(same)
                    yield sentence, judge_sentence(sentence, history, view), history


def measure_acts_told(messages: Sequence[Message], view: Sequence[Message]) -> Recall:
    """Of the acts on the world whose calls a fold has taken, those that a ledger names."""
    history = History(messages)
    standing = {message.start for message in view if message.made != NOTE}
    named: set[int] = set()
    for message in view:
        if message.made == NOTE:
            for sentence in list_sentences(message, history):
                named.update(sentence.places if sentence.kind == "acts" else ())
    acts = []
    for place, call in enumerate(history.callers):
        if call is None or messages[place].start in standing or find_effect(call) != "acts":
            continue
        if Claim(NO_SENTENCE, history, view).ending(place) != "failed":
            acts.append(place)
    return Recall(len(acts), len(named.intersection(acts)))


def _ask_for_failure(sentence: Sentence, history: History) -> Recall:
    """Of a placeholder, and of a ledger's line on one call: did the call fail, and is that told?"""
    is_placeholder = sentence.kind == "size"
    if not (is_placeholder or sentence.kind in ("commands", "other calls", "acts")) or len(sentence.places) != 1:
        return Recall()
    claim = Claim(sentence, history, ())
    if claim.ending(sentence.places[0]) != "failed":
        return Recall()
    if is_placeholder:
        header, _, below = sentence.context.partition("]\n")
        told = _TOLD_WITHIN.search(header) is not None or ends_with_failure(below)
    else:
        told = _TOLD_FAILED.match(sentence.ending) is not None
    return Recall(1, int(told))


def _judge_unplaced(sentence: Sentence) -> Verdict:
    if sentence.kind in ("other calls", "documents lost") and sentence.name.startswith("Notice"):
        return _pass("a notice of the client")
    return _deny("nothing in the history is called so")


def _judge_call(claim: Claim) -> Verdict:
    """The argument may be shown without its folder, or the call by its tool alone."""
    call = claim.call
    tool, _, argument = claim.sentence.name.partition("(")
    if call is None:
        return TRUE if tool == "tool" else _deny("no call asked for this result")
    if tool != call.name:
        return _deny(f"the tool is {call.name}")
    texts = Original(call.arguments)
    pieces = collapse(argument.removesuffix(")")).replace(" in /", " … /").split("…")
    if all(_holds_loosely(texts.flat, piece) for piece in pieces):
        return TRUE
    return _deny("the arguments hold no such words")


def _holds_loosely(text: str, piece: str) -> bool:
    position = 0
    for word in piece.split():
        word = word.strip(",:;")  # noqa: PLW2901
        if word in ("in", "True", "False", "None"):
            continue
        start = text.find(word, position)
        if start < 0:
            start = text.find(word)
        if start < 0 and not re.fullmatch(r"[\[\]{}()\"',]*.*[\[\]{}()\"',]+", word):
            return False
        position = max(position, start)
    return True


def _judge_size(claim: Claim) -> Verdict:
    text = claim.message.text
    size = _BYTES.search(claim.words)
    if claim.message.role == "assistant" or size is None:
        return _pass("the output is a part of an answer")
    attached = [length for _, length in claim.message.list_attachments()]
    told_bytes, bytes_count = _to_number(size[1]), len(text.encode("utf-8", "surrogatepass"))
    if told_bytes not in (bytes_count, bytes_count + sum(attached)) and (told_bytes or list_lines(text)[3:]):
        return _deny(f"it has {bytes_count:,} bytes")
    lines, counts = _COUNTS.search(claim.words), claim.original.line_counts
    if lines is None or _to_number(lines[1]) in counts:
        return TRUE
    # Of JSON the lines of the texts in it count, of which short ones may be left out.
    if claim.original.is_json and _to_number(lines[1]) <= max(counts):
        return TRUE
    return _deny(f"it has {sorted(counts)} lines")


def _to_number(text: str) -> int:
    return int(text.replace(",", ""))


def _judge_verdict(claim: Claim) -> Verdict:
    return _judge_told(claim, claim.words, claim.sentence.places[0])


def _judge_told(claim: Claim, told: str, place: int) -> Verdict:
    """A told ending: the exit code, whether it failed, and the words that are quoted as the reason."""
    original = claim.history_originals(place)
    reason = _WITHOUT_VERDICT.sub("", told)
    if reason and not original.holds(reason):
        return _deny("the original holds no such words")
    code = _CODE.match(told)
    codes = list_exit_codes(original.text)
    if code is not None and int(code[1]) not in codes:
        return _deny(f"the exit codes there are {codes}") if codes else _pass("no exit code is known")
    ending = claim.ending(place)
    if _TOLD_FAILED.match(told) is None:
        return _deny("it failed") if ending == "failed" and code is None else TRUE
    if ending == "failed" or (code is not None and "reports a failure" not in told):
        return _judge_reason(original.text, reason)
    if ending == "worked" and "reports a failure" not in told:
        return _deny("it worked")
    return _judge_unsure(original.text, reason, claim.history.callers[place])


def _judge_reason(text: str, reason: str) -> Verdict:
    """The reason is a line that tells a failure, or one of the last, unless nothing in the text does."""
    beginning = collapse(reason).partition("…")[0][:60].rstrip(".")
    lines = [collapse(line) for line in list_lines(text)]
    if not beginning or tells_failure(beginning) or any(beginning in line for line in lines[-_END_LINES:]):
        return TRUE
    if any(map(tells_failure, lines)):
        holders = [line for line in lines if beginning[:30] in line]
        if not any(map(tells_failure, holders)):
            return _pass("the reason is no line that tells a failure")
    return TRUE


def _judge_unsure(text: str, reason: str, call: ToolCall | None) -> Verdict:
    """No harness says how it ended: a failing line of a program that does not only quote is asked for."""
    if call is not None and find_effect(call) == "looks" and len(text) > 1_000:  # noqa: PLR2004 (a refusal is shorter)
        if _ASKS_FOR_FAILURES.search(find_command(call)) and tells_failure(reason.rpartition("Z ")[2]):
            return _pass("it was asked for the failures of others")
        return _deny("a call that quotes did not fail")
    if tells_failure(reason) or ends_with_failure(text):
        return TRUE
    return _deny("no line of the program tells a failure")


def _judge_changed(claim: Claim) -> Verdict:
    """A later call of the history changes a file that this result shows."""
    call = claim.call
    if call is None:
        return _deny("no call asked for this result")
    names = _list_paths(call)
    for later, index, _ in claim.history.call_texts:
        if index <= claim.sentence.places[0]:
            break
        if any(changes_file(later, name) for name in names) and claim.ending(index) != "failed":
            return TRUE
    return _deny("no later call changes such a file")


def _list_paths(call: ToolCall) -> list[str]:
    words = [word.strip("\"',;:()") for text in iterate_strings(call.value or call.arguments) for word in text.split()]
    return [word for word in words if "/" in word or "." in word[1:-1]]


def _judge_left_out(claim: Claim) -> Verdict:
    told = _LEFT_OUT.match(claim.words)
    if told is None:
        return _pass("not counted")
    shown = set(_expand(claim.sentence.context.partition("]\n")[2]))
    numbers = set()
    for text in claim.original.texts:
        lines = [collapse(_ESCAPES.sub(" ", line)) for line in text.split("\n")]
        missing = [line for line in lines if line and line not in shown and not _is_cut(line, shown)]
        numbers |= {len(missing), sum(line not in shown for line in lines)}
    number = _to_number(told[1])
    # Lines of a frame around the output are no output, and some hold nothing but colours.
    if any(-2 <= count - number <= 12 for count in numbers):  # noqa: PLR2004
        return TRUE
    if claim.original.is_json:
        return _pass("lines of JSON can be counted in many ways")
    return _deny(f"{sorted(numbers)} lines are left out")


def _is_cut(line: str, shown: set[str]) -> bool:
    return any(text.endswith("…") and line.startswith(text[:-1].strip()) for text in shown if text[:-1].strip())


def _expand(text: str) -> Iterator[str]:
    """The lines that are shown, with the beginnings that they have in common with the line above."""
    first = ""
    for line in text.split("\n"):
        if line.startswith("… "):
            words = line.removeprefix("… ").split()
            yield collapse(line)
            for stop in range(_SHARED_CHARACTERS - 1, len(first)):
                if first[stop] == " ":
                    yield collapse(first[: stop + 1] + " ".join(words))
        else:
            first = line
            yield collapse(line)


def _judge_lines(claim: Claim) -> Verdict:
    first = ""
    for line in claim.words.split("\n"):
        shown = line.strip()
        if not shown or _MORE_ERRORS.match(shown):
            continue
        if shown.startswith("… "):
            if not claim.original.holds(shown):
                return _deny(f"not in the original: {shown[:80]}")
        elif not claim.original.holds(shown):
            return _deny(f"not in the original: {shown[:80]}")
        first = first or shown
    return TRUE


def _judge_way_back(claim: Claim) -> Verdict:
    call = claim.call
    if call is None:
        return (
            TRUE
            if claim.words.startswith(("Only a new run", "Doing the same again", "Call "))
            else _deny("no call can be made again")
        )
    effect = find_effect(call)
    for beginning, judge in WAYS_BACK.items():
        if claim.words.startswith(beginning):
            return judge(call, effect)
    return _pass("not recognised")


def _judge_call_again(_call: ToolCall, effect: Effect) -> Verdict:
    if effect == "acts":
        return _deny("it would act again")
    return TRUE if effect == "looks" else _pass("nobody knows what it does")


def _judge_no_call(_call: ToolCall, effect: Effect) -> Verdict:
    if effect == "looks":
        return _deny("it only looks")
    return TRUE if effect == "acts" else _pass("nobody knows what it does")


def _judge_new_run(call: ToolCall, effect: Effect) -> Verdict:
    if effect == "acts":
        return _deny("it would act again")
    return TRUE if find_command(call) else _deny("it is no command")


def _judge_read_file(call: ToolCall, _effect: Effect) -> Verdict:
    if any(changes_file(call, path) for path in _list_paths(call)):
        return TRUE
    return _deny("it changes no file")


def _judge_other_text(call: ToolCall, effect: Effect) -> Verdict:
    """A sub-agent starts anew, and a process prints only new output."""
    if effect == "looks" and not _PRINTS_ANEW.search(call.name):
        return _deny("it only looks")
    return TRUE


def _judge_handle(_call: ToolCall, _effect: Effect) -> Verdict:
    return _pass("the proxy answers this call")


WAYS_BACK: Mapping[str, Callable[[ToolCall, Effect], Verdict]] = {
    "Call the tool again": _judge_call_again,
    "Do not make this call again": _judge_no_call,
    "Calling the tool again would do it again": _judge_no_call,
    "Only a new run": _judge_new_run,
    "Read the file": _judge_read_file,
    "Calling the tool again may not": _judge_other_text,
    "A new call shows": _judge_other_text,
    "Call ": _judge_handle,
}
"""By the beginning of the sentence."""
_PRINTS_ANEW = re.compile(
    r"output|agent|task|wait|browser|screen|state|snapshot|stdin|plan|question|ask", re.IGNORECASE
)


def _judge_repeats(claim: Claim) -> Verdict:
    told = _REPEATED.search(claim.words)
    if told is None:
        return _deny("it names no result")
    place = claim.sentence.places[0]
    name = told["name"] or ""
    for index, message in enumerate(claim.history.messages[:place]):
        if not message.is_bulk or message.text != claim.message.text:
            continue
        if _is_named(claim, name, index):
            return TRUE
    return _deny("no earlier result of that call is the same")


def _judge_clipped(claim: Claim) -> Verdict:
    told = _CLIPPED.match(claim.words)
    if told is None:
        return _deny("it tells no size")
    head, _, tail = claim.sentence.context.partition(f"\n{claim.words}\n")
    for text in claim.original.texts:
        if text.startswith(head) and text.endswith(tail):
            middle = text[len(head) : len(text) - len(tail)]
            count = _count_lines(middle.removeprefix("\n"))
            if (count, len(middle)) != (_to_number(told[1]), _to_number(told[2])):
                return _deny(f"{count} lines, {len(middle):,} characters are left out")
            lines = claim.words.partition(":\n")[2].split("\n")[:-1]
            quoted = [line for line in lines if not _MORE_ERRORS.match(line)]
            return TRUE if all(map(Original(middle).holds, quoted)) else _deny("it quotes other words")
    return _deny("its ends are not those of the original")


def _judge_restored(claim: Claim) -> Verdict:
    text = claim.words.partition("]\n")[2]
    place = claim.sentence.places[0]
    if any(text in message.text for message in claim.history.messages[:place]):
        return TRUE
    return _deny("no earlier message holds this text")


def _judge_carried(claim: Claim) -> Verdict:
    """Behind a result that was fetched again stand earlier results, each whole and with the name of its call."""
    rest = claim.words.partition("]\n\n")[2]
    while rest:
        header, _, rest = rest.partition(":\n")
        named = _NAMED_RESULT.fullmatch(header)
        texts = []
        for place in range(claim.sentence.places[0]):
            text = claim.history.messages[place].text
            if named is not None and text and rest.startswith(text) and _is_named(claim, named["name"] or "", place):
                texts.append(text)
        if not texts:
            return _deny(f"no such earlier result: {header[:100]}")
        rest = rest[max(map(len, texts)) :].removeprefix("\n\n")
    return TRUE


def _is_named(claim: Claim, name: str, place: int) -> bool:
    shown = Sentence("call", name, name, (place,), name=name)
    return not name or _judge_call(Claim(shown, claim.history, claim.view)).is_true is True


def _judge_words_lost(claim: Claim) -> Verdict:
    """A message that joins several of the user's may stand for others between them, too."""
    whole = set()
    for message in claim.view:
        if message.role not in HEAD and message.made in WORDS_KEPT and message.made != JOINED:
            whole.add(message.start)
    joined = "\n".join(message.text for message in claim.view if message.made == JOINED)
    lost = 0
    for message in claim.history.messages:
        if message.role != "user" or message.start in whole:
            continue
        if message.text in joined:
            joined = joined.replace(message.text, "", 1)
        else:
            lost += 1
    if _to_number(claim.sentence.name) <= lost:
        return TRUE
    return _deny(f"{lost} messages in the user's role are left out")


def _judge_assistant_said(claim: Claim) -> Verdict:
    if any(claim.history.messages[place].role == "assistant" for place in claim.sentence.places):
        return TRUE
    return _deny("others said it")


def _judge_user_said(claim: Claim) -> Verdict:
    for place in claim.sentence.places:
        message, call = claim.history.messages[place], claim.history.callers[place]
        if message.role == "user" or (call is not None and _ASKING.search(call.name)):
            return TRUE
        if message.is_result and _REFUSED.search(message.text):
            return TRUE
    return _deny("others said it")


def _judge_refused_words(claim: Claim) -> Verdict:
    if any(_REFUSED.search(claim.history.texts[place]) for place in claim.sentence.places):
        return TRUE
    return _deny("that call was not refused")


def _judge_lost_document(claim: Claim) -> Verdict:
    """Of several parts that were read of one file, the line may speak of any."""
    for place in claim.sentence.places[:_CANDIDATES]:
        text = claim.history.messages[place].text
        if not any(message.is_bulk and text in message.text for message in claim.view):
            return TRUE
    return _deny("it is still shown")


def _judge_row(claim: Claim) -> Verdict:
    """A line of a ledger: a call was made, so many times, and one of these ended as told."""
    sentence = claim.sentence
    places = sentence.places[:_CANDIDATES]
    if sentence.times > len(sentence.places):
        return _deny(f"it was made {len(sentence.places)} times")
    if not sentence.ending:
        return TRUE
    verdicts = [_judge_told(claim, sentence.ending, place) for place in places]
    return min(verdicts, key=_rank)


def _rank(verdict: Verdict) -> int:
    return {True: 0, None: 1, False: 2}[verdict.is_true]


def _judge_act(claim: Claim) -> Verdict:
    row = _judge_row(claim)
    if row.is_true is False:
        return row
    calls = [claim.history.callers[place] for place in claim.sentence.places[:_CANDIDATES]]
    effects = {find_effect(call) for call in calls if call is not None}
    if "acts" in effects:
        return row
    if "unknown" in effects or "works" in effects:
        return _pass("nobody knows what it does")
    return _deny("it only looks")


def _judge_file_changed(claim: Claim) -> Verdict:
    sentence = claim.sentence
    path, words = sentence.name, sentence.ending
    endings = set()
    for place in sentence.places:
        call = claim.history.callers[place]
        if call is not None and changes_file(call, path, words):
            endings.add("unknown" if find_command(call) else claim.ending(place))
    if endings & {"worked", "unknown"}:
        return TRUE
    return _deny("that change failed" if endings else "no call changes the file so")


def _judge_file_read(claim: Claim) -> Verdict:
    calls = [(claim.history.callers[place], place) for place in claim.sentence.places]
    endings = set()
    for call, place in calls:
        if call is not None and (find_effect(call) == "looks" or find_command(call)):
            text = claim.history.messages[place].text
            is_absent = len(text) < 300 and _ABSENT.search(text) is not None  # noqa: PLR2004 (a refusal)
            endings.add("failed" if is_absent else claim.ending(place))
    if endings & {"worked", "unknown"}:
        return TRUE
    return _deny("that read failed" if endings else "no call reads it")


def _judge_other(_claim: Claim) -> Verdict:
    return _pass("not recognised")


JUDGES: Mapping[str, Callable[[Claim], Verdict]] = {
    "call": _judge_call,
    "size": _judge_size,
    "verdict": _judge_verdict,
    "changed since": _judge_changed,
    "left out": _judge_left_out,
    "way back": _judge_way_back,
    "lines": _judge_lines,
    "repeats": _judge_repeats,
    "clipped": _judge_clipped,
    "restored": _judge_restored,
    "carried": _judge_carried,
    "words lost": _judge_words_lost,
    "assistant said": _judge_assistant_said,
    "user said": _judge_user_said,
    "refused words": _judge_refused_words,
    "documents lost": _judge_lost_document,
    "acts": _judge_act,
    "files changed": _judge_file_changed,
    "files read": _judge_file_read,
    "commands": _judge_row,
    "other calls": _judge_row,
    "other": _judge_other,
}
