"""The table of all programs. To add one, add an entry to one of its parts: the examples of the entry are its tests."""

from proxy.tools.machine_programs import MACHINE_PROGRAMS
from proxy.tools.programs import Program, name_program
from proxy.tools.project_programs import PROJECT_PROGRAMS
from proxy.tools.service_programs import SERVICE_PROGRAMS

PROGRAMS = (*MACHINE_PROGRAMS, *SERVICE_PROGRAMS, *PROJECT_PROGRAMS)
_BY_NAME = {name: program for program in PROGRAMS for name in program.names.split()}
UNKNOWN = Program("", {})


def find_program(word: str) -> Program:
    """Return the entry of a program, or `UNKNOWN`."""
    program = _BY_NAME.get(name_program(word)) or _BY_NAME.get(word, UNKNOWN)
    # A script of a project may be named as a program of the machine: `python bin/test`.
    if program.quotes == "*" and "/" in word and not word.startswith("/"):
        return UNKNOWN
    return program
