"""The API's own description: whole, and with a word for people in the documents."""

import re
from pathlib import Path

import msgspec
import pytest

from proxy.admin import faults, openapi
from proxy.admin.api import ROUTES
from proxy.errors import ProxyError

DOCS = (Path(__file__).parents[2] / "docs" / "admin.md").read_text(encoding="utf-8")


def test_every_row_of_the_table_is_described():
    document = openapi.document(ROUTES)
    described = {(method, path) for path, methods in document["paths"].items() for method in methods}
    assert described == {(route.method.lower(), "/admin/api" + route.path) for route in ROUTES}


def test_every_reference_leads_somewhere():
    document = openapi.document(ROUTES)
    known = document["components"]["schemas"]
    named = set(re.findall(r"#/components/schemas/([^\"]+)", msgspec.json.encode(document).decode()))
    assert named <= known.keys()


def test_no_two_operations_have_one_name():
    operations = [each for methods in openapi.document(ROUTES)["paths"].values() for each in methods.values()]
    assert len({each["operationId"] for each in operations}) == len(operations)


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_the_documents_have_a_row_for_each(route):
    assert re.search(rf"\| `{route.method} {re.escape(route.path)}` \|", DOCS)


def refusals():
    kinds = [kind for kind in vars(faults).values() if isinstance(kind, type) and issubclass(kind, ProxyError)]
    return [kind for kind in kinds if kind is not ProxyError]


@pytest.mark.parametrize("fault", refusals())
def test_every_refusal_is_explained_beside_its_status(fault):
    assert re.search(rf"^\| {int(fault.status)} \|.*`{fault.code}`", DOCS, re.MULTILINE)
