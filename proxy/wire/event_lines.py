"""Lines of an event stream: their ends (LF, CRLF, CR, or a mixture), and how a line of data begins."""

import re

LINE_END = re.compile(rb"\r\n|\n|\r")
LINES = re.compile(rb"[^\r\n]*(?:\r\n|\n|\r)|[^\r\n]+\Z")
EVENT_END = re.compile(rb"\n(?:\r\n|\n|\r(?=[^\n]))|\r\r\n?")
"""The end of a line and an empty one. After a line that ended with LF or CRLF a CR waits for the next byte: an LF must
not be left to the next event, which may be rewritten without it. Two CRs end an event at once."""
EVENT_END_MAX_BYTES = 4
DATA = re.compile(rb"(?:\xef\xbb\xbf)?data: ?")
"""The beginning of a line of data."""
EVENT_NAME = re.compile(rb"(?:\A(?:\xef\xbb\xbf)?|[\r\n])event:")
"""The beginning of the line that names an event; before it may be the LF of a CRLF that was cut in two."""
