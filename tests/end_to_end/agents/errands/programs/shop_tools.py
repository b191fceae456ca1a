"""The operator's tools as functions: four that change the world, one that runs a command, one that reads a file."""

import os
import pathlib
import subprocess


def _shell(*command: str) -> str:
    own = os.environ  # noqa: TID251 (a program by itself)
    environment = {**own, "PATH": f"{pathlib.Path.cwd() / 'bin'}{os.pathsep}{own['PATH']}"}
    done = subprocess.run(command, env=environment, text=True, check=False, capture_output=True)
    return done.stdout + done.stderr + (f"exit code {done.returncode}\n" if done.returncode else "")


def charge_card(order: str, amount_cents: int) -> str:
    """Charge the card of an order.

    Args:
        order: Which order.
        amount_cents: How much.
    """
    return _shell("shopctl", "charge-card", "--order", order, "--amount-cents", str(amount_cents))


def deploy(service: str, version: str) -> str:
    """Deploy a service to production.

    Args:
        service: Which service.
        version: Which version.
    """
    return _shell("shopctl", "deploy", "--service", service, "--version", version)


def push_branch(branch: str) -> str:
    """Push a branch to origin.

    Args:
        branch: Which branch.
    """
    return _shell("git", "push", "origin", branch)


def send_mail(to: str, subject: str) -> str:
    """Send a mail.

    Args:
        to: Whom to.
        subject: What about.
    """
    return _shell("shopctl", "send-mail", "--to", to, "--subject", subject.replace(" ", "-"))


def run_command(command: str) -> str:
    """Run a command of the shell.

    Args:
        command: The command.
    """
    return _shell("bash", "-c", command) or "(no output)"


def read_file(path: str) -> str:
    """Read a file.

    Args:
        path: Which file.
    """
    return pathlib.Path(path).read_text()


ACTING = (charge_card, deploy, push_branch, send_mail)
TOOLS = (*ACTING, run_command, read_file)
