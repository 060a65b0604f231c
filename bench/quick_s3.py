"""An S3 service that costs next to nothing: what a checkpoint needs of the protocol, objects in memory, conditions honoured.

`python -m bench.quick_s3 PORT` serves one. The testbed's service (moto) takes some milliseconds of a core for each request,
which on a small machine is much of what a launch takes; the difference between the two is its share.
"""

from __future__ import annotations

import argparse
import hashlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

_MOST_KEYS = 1000
_objects: dict[str, tuple[bytes, str]] = {}
_guard = threading.Lock()


class Handler(BaseHTTPRequestHandler):
    """GET and PUT of objects, and lists of a bucket; any login is good."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        """Return an object, or a list of keys."""
        bucket, key, query = self._asked()
        if not key:
            self._answer(200, _listing(bucket, query))
            return
        found = _objects.get(f"{bucket}/{key}")
        if found is None:
            self._answer(404, _error("NoSuchKey"))
        else:
            self._answer(200, found[0], found[1])

    def do_PUT(self) -> None:
        """Keep an object, if its conditions hold; a bucket needs no making."""
        bucket, key, _ = self._asked()
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if not key:
            self._answer(200, b"")
            return
        tag = f'"{hashlib.md5(content, usedforsecurity=False).hexdigest()}"'
        path = f"{bucket}/{key}"
        with _guard:
            known = _objects.get(path)
            expected = self.headers.get("If-Match")
            taken = known is not None and self.headers.get("If-None-Match") == "*"
            if taken or (expected is not None and (known is None or known[1] != expected)):
                status = 412
            else:
                status = 200
                _objects[path] = (content, tag)
        self._answer(status, b"" if status == 200 else _error("PreconditionFailed"), tag)

    def _asked(self) -> tuple[str, str, dict[str, str]]:
        parts = urlsplit(self.path)
        bucket, _, key = unquote(parts.path).lstrip("/").partition("/")
        return bucket, key, {name: values[0] for name, values in parse_qs(parts.query).items()}

    def _answer(self, status: int, content: bytes, tag: str | None = None) -> None:
        self.send_response_only(status)
        self.send_header("Content-Length", str(len(content)))
        if tag is not None:
            self.send_header("ETag", tag)
        self.end_headers()
        self.wfile.write(content)


def _listing(bucket: str, query: dict[str, str]) -> bytes:
    prefix, delimiter = f"{bucket}/{query.get('prefix', '')}", query.get("delimiter", "")
    files, folders = [], set()
    with _guard:
        found = [(path, len(content)) for path, (content, _) in _objects.items() if path.startswith(prefix)]
    for path, size in sorted(found):
        rest = path[len(prefix) :]
        key = path[len(bucket) + 1 :]
        if delimiter and delimiter in rest:
            folders.add(key[: len(key) - len(rest) + rest.index(delimiter) + 1])
        else:
            files.append(f"<Contents><Key>{escape(key)}</Key><Size>{size}</Size></Contents>")
    assert len(files) <= _MOST_KEYS, "one page is enough for a benchmark"
    shared = [f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>" for folder in sorted(folders)]
    body = f"<Name>{bucket}</Name><IsTruncated>false</IsTruncated>{''.join(files)}{''.join(shared)}"
    return f'<?xml version="1.0"?><ListBucketResult>{body}</ListBucketResult>'.encode()


def _error(code: str) -> bytes:
    return f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>{code}</Message></Error>'.encode()


def main() -> None:
    """Serve until the process is ended."""
    parser = argparse.ArgumentParser(prog="python -m bench.quick_s3", description=__doc__)
    parser.add_argument("port", type=int)
    ThreadingHTTPServer.request_queue_size = 128
    ThreadingHTTPServer(("127.0.0.1", parser.parse_args().port), Handler).serve_forever()


if __name__ == "__main__":
    main()
