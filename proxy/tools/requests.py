"""Requests and statements in command lines: whether they act.

    curl -s api/orders                         looks: GET
    curl api/orders/_search -d '{...}'         looks: a search that is posted
    gh api graphql -f query='mutation {...}'   acts
    psql -c 'WITH t AS (...) DELETE FROM ...'  acts

A statement in a file counts as one that acts, because the file is not read.
"""

import re
from collections.abc import Iterator, Sequence

from proxy.tools.command_line import SimpleCommand
from proxy.tools.programs import Program, has_option

# curl takes short options in one word: https://curl.se/docs/manpage.html
_CLUSTER = re.compile(r"-[sSfLkgivqNIOJ]*([XdFT])(.*)", re.DOTALL)
_MUTATION = re.compile(r"(?:\A|query=|\"query\"\s*:\s*\\?\"|')\s*mutation\b")
_READING_METHODS = ("GET", "HEAD", "OPTIONS")
_COMMENTS = {"sql": r"--[^\n]*", "mongodb": r"//[^\n]*"}
"""Comments that end with the line, by the language. In a program, `--` counts down."""
_ACTING_STATEMENT = re.compile(
    r"[\s(]*(?:INSERT|UPDATE|DELETE|DROP|ALTER|CREATE|TRUNCATE|GRANT|REVOKE|REPLACE|MERGE|UPSERT|RENAME|VACUUM|REINDEX"
    r"|CALL|LOAD|OPTIMIZE|REFRESH|KILL)\b"
    # A change may stand within another statement: `WITH t AS (...) DELETE FROM ...`.
    r"|\s*(?=WITH\b|COPY\b).*?\b(?:INSERT\s+INTO|UPDATE\s+\S+\s+SET|DELETE\s+FROM|COPY\s+\S+\s+FROM)\b",
    re.IGNORECASE | re.DOTALL,
)
# MongoDB's shell takes a program: `db.orders.deleteMany({})`. A database may have a function: `shop.create_order(7)`.
_ACTING_METHOD = re.compile(
    r"\.(?:insert|update|delete|replace|drop|remove|save|create|rename|bulkWrite|findOneAnd|findAndModify)\w*\("
    r"|\bload\(",
    re.IGNORECASE,
)


def is_acting_request(program: Program, command: SimpleCommand, operands: Sequence[str]) -> bool:
    """Return whether the request or a statement in a command changes the service or database that it is sent to."""
    if program.language == "http":
        return _acts_by_http(program, command, operands)
    if command.input_files or has_option(command.words, program.acts_with):
        return True
    for text in _list_statements(command, operands):
        statements = _remove_comments(text, _COMMENTS[program.language])
        if _ACTING_METHOD.search(statements):
            return True
        if program.language == "sql" and any(map(_ACTING_STATEMENT.match, statements.split(";"))):
            return True
    return False


def _remove_comments(statements: str, line_comment: str) -> str:
    """Replace comments by spaces, but not those within quotes. In doubt a text is quoted, so that no act is missed."""
    quoted = "|".join(rf"{quote}(?:[^{quote}\\]|\\(?s:.))*+(?:{quote}|\\?\Z)" for quote in "'\"`")
    tokens = rf"({quoted})|{line_comment}|/\*(?:[^*]|\*(?!/))*+(?:\*/|\Z)"
    return re.sub(tokens, lambda token: token[1] or " ", statements)


def _acts_by_http(program: Program, command: SimpleCommand, operands: Sequence[str]) -> bool:
    words, method, has_body = command.words, "", False
    if not program.acts_with:
        # HTTPie takes words: `POST`, `a=5`, `a:=5`, `file@a.txt`. https://httpie.io/docs/cli/request-items
        methods = (*_READING_METHODS, "POST", "PUT", "PATCH", "DELETE")
        method = "".join(word for word in operands[:1] if word.upper() in methods)
        has_body = any(re.match(r"[\w.\[\]-]+(?::=|=(?!=)|@)", word) for word in operands[1:])
    for word, following in zip(words, (*words[1:], ""), strict=True):
        option, _, value = word.partition("=")
        cluster = _CLUSTER.fullmatch(word)
        if option in ("-X", "--request", "--method"):
            method = value or following
        elif cluster is not None and cluster[1] == "X":
            method = cluster[2] or following
        elif option in program.acts_with.split() or (cluster is not None and "-d" in program.acts_with.split()):
            has_body = True
    if (method or "GET").upper() in _READING_METHODS and (method or not has_body):
        return False
    addresses = [operand.partition("?")[0].rstrip("/") for operand in operands]
    if any(address.endswith("graphql") for address in addresses):
        return any(map(_MUTATION.search, (*words, command.text)))
    searches = ("_search", "_msearch", "_count", "_mget", "_analyze", "_explain", "search", "query", "query_range")
    return not any(address.endswith(tuple(f"/{search}" for search in searches)) for address in addresses)


def _list_statements(command: SimpleCommand, operands: Sequence[str]) -> Iterator[str]:
    options = ("-c", "--command", "-e", "--execute", "-q", "--query", "-Q", "--eval")
    for word, following in zip(command.words, (*command.words[1:], ""), strict=True):
        option, _, value = word.partition("=")
        if option in options:
            yield value or following
        elif word[:2] in options:
            yield word[2:]
    yield from (operand for operand in operands if " " in operand.strip())
    yield command.text
