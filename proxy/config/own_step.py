"""A step of one's own: a function that a policy names as `module:function` in `when_full` or `fold`.

It gets a `Draft` and returns a shorter one. It must decide by the draft alone: no clock, no chance, no files. The
pipeline checks the returned draft as that of any step, and more strictly.
"""

from collections.abc import Callable
from importlib import import_module
from typing import ClassVar

from msgspec import Struct

from proxy.shorten.pipeline import Draft

# The exceptions that mistakes in a module raise while it is imported. Others are passed on.
_MISTAKES = (ImportError, SyntaxError, NameError, TypeError, ValueError, AttributeError, LookupError, OSError)


class OwnStep(Struct, frozen=True):
    name: str
    """The name in the policy: `module:function`."""
    function: Callable[[Draft], Draft]
    is_own: ClassVar[bool] = True

    def __call__(self, draft: Draft) -> Draft:
        shorter = self.function(draft)
        if not isinstance(shorter, Draft):
            raise TypeError(f"the step {self.name} must return a draft")
        return shorter


def is_own_step(name: str) -> bool:
    return ":" in name


def load_step(name: str) -> OwnStep:
    """Raise ValueError if the module cannot be imported, or has no such function."""
    module_name, _, function_name = name.partition(":")
    try:
        module = import_module(module_name)
    except _MISTAKES as fault:
        why = f"{type(fault).__name__}: {fault}"
        raise ValueError(f"the module {module_name!r} cannot be imported ({why}): is it on PYTHONPATH?") from None
    function = getattr(module, function_name, None)
    if not callable(function):
        raise ValueError(f"the module {module_name!r} has no function {function_name!r}")  # noqa: TRY004 (a fault of the file)
    return OwnStep(name, function)
