"""`published`: policies and attachments that came by the admin API, and away with them.

They are laid over the file, so a file can be changed under them until both do not fit together, and the proxy, with its
admin API, does not start any more. This command looks at the file alone.
"""

import argparse
import json
import time

from proxy.access.registry import Published
from proxy.cli import options, registry
from proxy.cli.registry import Act


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser("published", help="policies that came by the admin API: show them, or withdraw them")
    parser.add_argument("act", choices=("show", "withdraw"), help="show prints them as the file could have them")
    options.add_config(parser)
    options.add_state(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    config = options.alone(args, options.state(args)).config
    said = registry.current(config).published
    told = {"policies": said.policies, "attachments": said.attachments}
    print(json.dumps(told, indent=2, ensure_ascii=False))  # noqa: T201
    if args.act == "withdraw":
        nothing = Published(at=time.time(), by="command line")
        registry.change(config, Act("withdraw", "all that was published"), lambda known: known.publishing(nothing))
    return 0
