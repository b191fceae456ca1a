"""The proxy, and each address that it connects to or looks up, as a line of the file `connections` in its folder.

Run as a script it is `python -m proxy`.
"""

import sys

from proxy.__main__ import main


def watch() -> None:
    file = open("connections", "a", buffering=1, encoding="utf-8")  # noqa: SIM115, PTH123 (open until the process ends)

    def note(event: str, arguments: tuple) -> None:
        if event == "socket.connect" and isinstance(arguments[1], tuple):  # else it is a path on this machine
            file.write(f"{arguments[1][0]}:{arguments[1][1]}\n")
        elif event == "socket.getaddrinfo":
            file.write(f"look-up of {arguments[0]}\n")

    sys.addaudithook(note)


if __name__ == "__main__":
    watch()
    sys.exit(main())
