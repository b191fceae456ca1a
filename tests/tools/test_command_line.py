"""Command lines as shells read them, and the commands that other programs run."""

import pytest

from proxy.tools.command_line import UNREAD, WRAPPERS, find_command_line, list_commands, read_commands
from tests.support.cost_growth import assert_grows_in_proportion


def read_words(line):
    return [" ".join(command.words) for command in read_commands(line)]


def test_the_files_of_redirections_and_texts_that_are_given_as_input_stand_beside_the_words():
    (first, second) = read_commands("psql 2> e.txt < a.sql &> b.txt <<E | tee c.txt >&2 2>/dev/null\nselect 1\nE")
    assert (first.words, first.text) == (("psql",), "select 1\n")
    assert (first.input_files, first.output_files) == (("a.sql",), ("b.txt",))
    assert (second.words, second.output_files) == (("tee", "c.txt"), ())
    assert read_commands("psql <<< 'select 1'")[0].text == "select 1"
    assert read_commands("echo 'select 1' | psql")[1].text == "select 1"
    assert read_commands("cat a.sql | psql")[1].text == ""


@pytest.mark.parametrize(
    ("word", "text", "rest"),
    [
        ("E", "EE\nxE\n E E\n", " \tE\r\nls"),
        ("E", "", "E\nls"),
        ("' E F'", "E F\n", "   E F \nls"),
        ("''", "a\n b\n", " \nls"),
        ("'a\nb'", "a\nc\na\nb\nls", ""),
        ("E", "all of it\nE ends it not", ""),
    ],
)
def test_a_here_document_ends_at_the_first_line_that_holds_only_its_word(word, text, rest):
    first, *others = read_commands(f"psql <<{word}\n{text}{rest}")
    assert (first.text, [command.words for command in others]) == (text, [("ls",)] if rest else [])


def test_a_command_whose_output_becomes_a_word_is_marked():
    assert [command.is_inner for command in read_commands('cat "$(ls `pwd`)"; (make)')] == [True, True, False, False]


@pytest.mark.parametrize("wrapper", WRAPPERS, ids=lambda wrapper: wrapper.example)
def test_each_entry_of_the_table_of_wrappers_has_an_example(wrapper):
    (command,) = list_commands(wrapper.example)
    assert command.words == read_commands(wrapper.inner)[0].words
    assert command.is_elsewhere == wrapper.is_elsewhere


def test_a_list_of_words_is_quoted_unless_it_is_a_shell_with_a_script():
    assert find_command_line({"command": ["bash", "-lc", "cd a && make"]}) == "cd a && make"
    words = ["git", "commit", "-m", "It's done; git push"]
    assert read_commands(find_command_line({"command": words}))[0].words == tuple(words)


@pytest.mark.parametrize(
    "piece",
    [
        *(
            "a;",
            "x",
            "'",
            '"$(',
            "cat <<a\n",
            " a",
            "<<a ",
            "<<a\nba\n",
            "(",
            "`a",
            "a\\\n",
            '"a\\',
            "if ",
            " #",
            "echo x|",
            "sudo ",
        ),
        *("bash -c '", "bash -c 'ls;'; ", "python -m ", "kubectl -n ", "find . -exec ", "x=", ")", "$((", "2>", "# \n"),
    ],
)
def test_a_longer_line_costs_more_in_proportion(piece):
    assert_grows_in_proportion(list_commands, lambda size: piece * (size // len(piece)), 12_000)


def test_the_rest_of_a_line_with_too_many_words_is_one_unknown_command_but_a_text_is_one_word():
    assert read_commands("ls;" * 20_000)[-1] is UNREAD
    assert read_words("cat > a <<E\n" + "x y z\n" * 20_000 + "E\ngit push") == ["cat", "git push"]
