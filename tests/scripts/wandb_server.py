"""A small stand-in for W&B's server on this machine: takes a run's rows, artifacts and files as the real one does."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PROJECT = {"id": "project", "name": "refork", "entity": {"id": "entity", "name": "me"}}


class Received:
    """What the server has got."""

    def __init__(self) -> None:
        self.rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
        """By run id, at the places the client gave them."""
        self.artifacts: list[dict[str, Any]] = []
        self.runs: list[dict[str, Any]] = []
        self.files: list[str] = []

    def answer(self, operation: str, given: dict[str, Any]) -> Any:
        """The data of a GraphQL operation; those not known get none."""
        if operation == "Viewer":
            return {"viewer": {"id": "user", "entity": "me", "username": "me", "flags": "{}", "teams": {"edges": []}}}
        if operation == "RunResumeStatus":
            return {"model": {**PROJECT, "bucket": self._bucket(given["name"])}}
        if operation == "UpsertBucket":
            self.runs.append(given)
            bucket = {"id": "run", "name": given["name"], "displayName": "run", "config": "{}", "project": PROJECT}
            return {"upsertBucket": {"inserted": True, "bucket": bucket}}
        if operation == "CreateArtifact":
            self.artifacts.append(given["input"])
            new = {"id": "artifact", "state": "COMMITTED", "artifactSequence": {"id": "models", "latestArtifact": None}}
            return {"createArtifact": {"artifact": new}}
        if operation == "CreateRunFiles":
            self.files += given["files"]
            files = [{"name": name, "uploadUrl": f"/upload/{name}"} for name in given["files"]]
            return {"createRunFiles": {"runID": "run", "uploadHeaders": [], "files": files}}
        return {}

    def _bucket(self, run: str) -> dict[str, Any] | None:
        rows = self.rows[run]
        if not rows:
            return None
        last = json.dumps(rows[-1])
        empty = {"eventsLineCount": 0, "logLineCount": 0, "eventsTail": "[]", "config": "{}", "tags": []}
        return {
            "id": "run",
            "name": run,
            "displayName": "run",
            "historyLineCount": len(rows),
            "historyTail": json.dumps([last]),
            "summaryMetrics": last,
            "wandbConfig": '{"t":{}}',
            **empty,
        }

    def stream(self, run: str, files: dict[str, Any]) -> None:
        if history := files.get("wandb-history.jsonl"):
            self.rows[run][history["offset"] :] = [json.loads(line) for line in history["content"]]


@contextmanager
def wandb_server(status: int = 200) -> Iterator[tuple[str, Received]]:
    """Its address, and what it has got. `status` is that of every answer to GraphQL."""
    received = Received()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            pass

        def do_GET(self) -> None:
            self._say(200, {})

        def do_PUT(self) -> None:
            self._body()
            self._say(200, {})

        def do_POST(self) -> None:
            body = self._body()
            if self.path == "/graphql":
                asked = json.loads(body)
                name = asked.get("operationName", "")
                if status != 200:
                    self._say(status, {"errors": [{"message": "user is not logged in"}]})
                    return
                self._say(200, {"data": received.answer(name, asked.get("variables") or {})})
                return
            if self.path.endswith("/file_stream"):
                received.stream(self.path.split("/")[-2], json.loads(body).get("files") or {})
            self._say(200, {})

        def _body(self) -> bytes:
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))

        def _say(self, code: int, content: Any) -> None:
            data = json.dumps(content).encode()
            self.send_response(code)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", received
    finally:
        server.shutdown()
        server.server_close()
