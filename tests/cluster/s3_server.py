"""A server of the S3 protocol on 127.0.0.1 that can be told to fail: answer 500, refuse keys, or do anything first."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable
from typing import Any
from wsgiref.types import StartResponse, WSGIEnvironment

import boto3
from moto import settings
from moto.moto_api._internal import moto_api_backend
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import make_server

BUCKET = "bucket"
URL = f"s3://{BUCKET}/runs"


class S3Server:
    """One bucket, empty at first."""

    def __init__(self) -> None:
        self.before: Callable[[str, str], bool] = lambda _method, _path: True
        """Asked at every request, method and path; False: it is answered 500."""
        self._inner = DomainDispatcherApplication(create_backend_app)
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True, request_handler=MotoRequestHandler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"
        self.environment = {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_DEFAULT_REGION": "us-east-1",
        }
        self.client("s3").create_bucket(Bucket=BUCKET)

    def _answer(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if not self.before(environ["REQUEST_METHOD"], environ["PATH_INFO"]):
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            start_response("500 Internal Server Error", [("Content-Length", "0")])
            return [b""]
        answer: Iterable[bytes] = self._inner(environ, start_response)
        return answer

    def client(self, service: str) -> Any:
        key, secret = self.environment["AWS_ACCESS_KEY_ID"], self.environment["AWS_SECRET_ACCESS_KEY"]
        return boto3.client(
            service,
            endpoint_url=self.endpoint,
            region_name="us-east-1",
            aws_access_key_id=key,
            aws_secret_access_key=secret,
        )

    def names(self, run: str) -> list[str]:
        """Objects of the run, below its folder."""
        found = self.client("s3").list_objects_v2(Bucket=BUCKET, Prefix=f"runs/{run}/").get("Contents", [])
        return [thing["Key"].removeprefix(f"runs/{run}/") for thing in found]

    def committed(self, run: str) -> list[str]:
        return [name.split("/")[1] for name in self.names(run) if name.endswith("/COMMIT")]

    def only_known_keys(self) -> None:
        """From now on signatures are checked; `environment` gets a pair of keys that may do all."""
        iam = self.client("iam")
        iam.create_user(UserName="runs")
        everything = {"Effect": "Allow", "Action": "*", "Resource": "*"}
        policy = json.dumps({"Version": "2012-10-17", "Statement": [everything]})
        iam.put_user_policy(UserName="runs", PolicyName="all", PolicyDocument=policy)
        pair = iam.create_access_key(UserName="runs")["AccessKey"]
        self.environment |= {
            "AWS_ACCESS_KEY_ID": pair["AccessKeyId"],
            "AWS_SECRET_ACCESS_KEY": pair["SecretAccessKey"],
        }
        settings.INITIAL_NO_AUTH_ACTION_COUNT = 0

    def close(self) -> None:
        """The server keeps its state in this process."""
        settings.INITIAL_NO_AUTH_ACTION_COUNT = float("inf")
        moto_api_backend.reset()
        if self._thread.is_alive():
            self.stop()

    def stop(self) -> None:
        """As if it were killed."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
