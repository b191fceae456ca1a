"""The names by which a person looks for a user, from the name that the client gives that user in its requests."""

import json


def list_user_names(user: str) -> set[str]:
    """Return the user's text, and the texts in it if it is a JSON object.

    Claude Code sends {"account_uuid": "4b7e…", "device_id": "91c0…", "session_id": ""}: `4b7e…` and `91c0…` find it.
    """
    names = {user}
    if user.startswith("{"):
        try:
            values = json.loads(user).values()
        except (ValueError, RecursionError):  # it was cut, or has another form
            return names
        names.update(value for value in values if isinstance(value, str) and value)
    return names
