"""A stand-in for the API server of Kubernetes: it stores the objects that Helm creates, and runs nothing."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

# Group and version: what Helm may create there.
RESOURCES = {
    "api/v1": ["ConfigMap", "Secret", "Service", "ServiceAccount"],
    "apis/apps/v1": ["StatefulSet"],
    "apis/autoscaling/v2": ["HorizontalPodAutoscaler"],
    "apis/monitoring.coreos.com/v1": ["ServiceMonitor"],
    "apis/networking.k8s.io/v1": ["Ingress", "NetworkPolicy"],
    "apis/policy/v1": ["PodDisruptionBudget"],
}


def plural_of(kind):
    name = kind.lower()
    if name.endswith("y"):
        return f"{name[:-1]}ies"
    return f"{name}es" if name.endswith("s") else f"{name}s"


def describe(place):
    """The answer to questions about what the cluster knows; None: `place` is not such a question."""
    if place == "version":
        return {"major": "1", "minor": "33", "gitVersion": "v1.33.0"}
    if place == "api":
        return {"kind": "APIVersions", "versions": ["v1"]}
    if place == "apis":
        groups = [path.removeprefix("apis/") for path in RESOURCES if path.startswith("apis/")]
        versions = [{"groupVersion": group, "version": group.split("/")[1]} for group in groups]
        names = [group.split("/")[0] for group in groups]
        about = [{"name": name, "versions": [one]} for name, one in zip(names, versions, strict=True)]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": about}
    if place in RESOURCES:
        verbs = ["create", "delete", "get", "list", "patch", "update"]
        kinds = [
            {"name": plural_of(kind), "singularName": kind.lower(), "kind": kind, "namespaced": True, "verbs": verbs}
            for kind in RESOURCES[place]
        ]
        version = place.removeprefix("apis/").removeprefix("api/")
        return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": kinds}
    return None


class Handler(BaseHTTPRequestHandler):
    objects: dict[str, dict]

    @property
    def place(self):
        return self.path.split("?")[0].strip("/")

    def answer(self, status, body, kind="application/json"):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        about = describe(self.place) or self.objects.get(self.place)
        if about is not None:
            self.answer(200, about)
        elif self.place.endswith("/secrets"):
            self.answer(200, {"kind": "SecretList", "apiVersion": "v1", "items": []})
        else:
            self.answer(404, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404})

    def do_POST(self):
        data = self.rfile.read(int(self.headers["content-length"]))
        kind = self.headers["content-type"]
        if kind == "application/json":
            made = json.loads(data)
            self.objects[f"{self.place}/{made['metadata']['name']}"] = made
        self.answer(201, data, kind)  # Helm's own records come as protobuf

    def do_PUT(self):
        self.do_POST()

    def log_message(self, *_):
        pass


@contextmanager
def kubernetes_api():
    """Its address, and its objects by their paths, in the order of their creation."""
    objects: dict[str, dict] = {}
    handler = type("Recorder", (Handler,), {"objects": objects})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", objects
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
