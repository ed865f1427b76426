"""A provider of chat completions on a free local port, which fails on demand."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = Callable[["Handler"], None]


@dataclass
class Stub:
    base_url: str
    answers: list[Answer] = field(default_factory=list)
    requests: list[dict[str, Any]] = field(default_factory=list)
    raw_requests: list[bytes] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    released: threading.Event = field(default_factory=threading.Event)

    def will(self, *answers: Answer) -> None:
        self.answers.extend(answers)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    stub: Stub

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers["content-length"]))
        self.stub.raw_requests.append(raw)
        self.stub.requests.append(json.loads(raw))
        self.stub.headers.append({name.lower(): value for name, value in self.headers.items()})
        self.stub.answers.pop(0)(self)

    def send(self, status: int, body: bytes, content_type: str, headers: dict[str, str]) -> None:
        self.send_response(status)
        self.send_header("content-type", content_type)
        self.send_header("content-length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass


def reply(
    body: object, *, status: int = 200, content_type: str = "application/json", headers: dict[str, str] | None = None
) -> Answer:
    """Answers with JSON, or with bytes as they are."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return lambda handler: handler.send(status, raw, content_type, headers or {})


def completion(message: dict[str, Any], *, finish_reason: str = "stop", **more: Any) -> dict[str, Any]:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": "gpt-4o-2024-08-06",
        "choices": [{"index": 0, "finish_reason": finish_reason, "message": {"role": "assistant", **message}}],
        "usage": {"prompt_tokens": 12, "completion_tokens": 3, "total_tokens": 15},
        **more,
    }


def cut(handler: Handler) -> None:
    """Promises more than it sends, and hangs up."""
    handler.send_response(200)
    handler.send_header("content-type", "application/json")
    handler.send_header("content-length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"choices": [')
    handler.close_connection = True


def hang(handler: Handler) -> None:
    """Sends blank lines to keep the connection alive, as a busy provider does, until the test is over."""
    handler.send_response(200)
    handler.send_header("content-type", "application/json")
    handler.end_headers()
    handler.close_connection = True
    try:
        while not handler.stub.released.wait(0.02):
            handler.wfile.write(b"\n")
    except OSError:
        pass


@contextmanager
def provider() -> Generator[Stub]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    stub = Stub(f"http://127.0.0.1:{server.server_port}/v1")
    server.RequestHandlerClass = type("BoundHandler", (Handler,), {"stub": stub})
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield stub
    finally:
        stub.released.set()
        server.shutdown()
        server.server_close()
        thread.join()
