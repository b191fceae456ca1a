"""The documents name every route of the admin API and every refusal."""

import re

import pytest

from proxy.admin import routes
from proxy.admin.dispatch import ROUTES
from proxy.foundation.errors import ProxyError
from tests import ROOT

DOCS = (ROOT / "docs" / "admin.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_the_documents_have_a_row_for_each(route):
    assert re.search(rf"\| `{route.method} {re.escape(route.path)}` \|", DOCS)


def refusals():
    kinds = [
        kind
        for kind in {**vars(routes), **vars(routes)}.values()
        if isinstance(kind, type) and issubclass(kind, ProxyError)
    ]
    return [kind for kind in kinds if kind is not ProxyError]


@pytest.mark.parametrize("fault", refusals())
def test_every_refusal_is_explained_beside_its_status(fault):
    assert re.search(rf"^\| {int(fault.status)} \|.*`{fault.code}`", DOCS, re.MULTILINE)
