"""A fake Hugging Face hub on loopback: repositories as commits of files, and simulated faults."""

import base64
import hashlib
import json
import re
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@contextmanager
def fake_hub(monkeypatch, folder):
    """Redirect the client of this process to a fake hub, with a cache in a folder; yield the server.

    The client reads `HF_ENDPOINT` and `HF_HOME` only when it is imported, so its constants are replaced.
    """
    with Hub() as hub:
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", hub.address)
        monkeypatch.setattr(
            "huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE",
            hub.address + "/{repo_id}/resolve/{revision}/{filename}",
        )
        monkeypatch.setattr("huggingface_hub.constants.HF_HOME", str(folder))
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(folder / "hub"))
        monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
        monkeypatch.setenv("HF_TOKEN", "hf_mine")
        yield hub
        hub.shutdown()


class Hub(ThreadingHTTPServer):
    """`repositories` maps a name to its commits, each a hash and a mapping of paths to contents, newest last."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.repositories = {}
        self.cut = False  # while True, downloads of the weights end half way
        self.failing_files: set[str] = set()  # files that the server fails to send
        self.address = f"http://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def commit(self, name, files):
        before = self.repositories.setdefault(name, [])
        whole = {**(before[-1][1] if before else {}), **files}
        listed = json.dumps({path: hashlib.sha1(content).hexdigest() for path, content in sorted(whole.items())})
        before.append((hashlib.sha1(f"{len(before)}{listed}".encode()).hexdigest(), whole))
        return before[-1][0]

    def find(self, name, revision):
        commits = self.repositories.get(name, [])
        return commits[-1] if commits and revision == "main" else next((c for c in commits if c[0] == revision), None)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def answer(self, content, code=200, **headers):
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(code)
        for name, value in {"Content-Length": len(body), "Content-Type": "application/json", **headers}.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        path = self.path.partition("?")[0]
        info = re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/(?:revision|tree)/([^/]+))?", path)
        file = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path)
        if path == "/":
            return self.answer({})
        if info is None and file is None:
            return self.answer({"error": "not found"}, 404)
        name, revision = (info or file)[1], (info or file)[2] or "main"
        commit_and_files = self.server.find(name, revision)
        if commit_and_files is None:
            return self.answer({"error": "not found"}, 404, X_Error_Code="RepoNotFound")
        commit, files = commit_and_files
        if info is not None and "/tree/" in path:
            return self.answer(
                [
                    {"type": "file", "path": p, "size": len(c), "oid": hashlib.sha1(c).hexdigest()}
                    for p, c in files.items()
                ]
            )
        if info is not None:
            return self.answer({"id": name, "sha": commit, "siblings": [{"rfilename": path} for path in files]})
        if file[3] in self.server.failing_files:
            return self.answer({"error": "refused"}, 403)
        content = files.get(file[3])
        if content is None:
            return self.answer({"error": "not found"}, 404, X_Error_Code="EntryNotFound", X_Repo_Commit=commit)
        etag = f'"{hashlib.sha1(content).hexdigest()}"'
        start = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        part = content[int(start[1]) :] if start else content
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(part)))
        self.send_header("ETag", etag)
        self.send_header("X-Repo-Commit", commit)
        if start:
            self.send_header("Content-Range", f"bytes {start[1]}-{len(content) - 1}/{len(content)}")
        self.end_headers()
        if self.command != "HEAD":
            if self.server.cut and file[3] == "model.safetensors":
                self.wfile.write(part[: len(part) // 2])
                self.close_connection = True
                return None
            self.wfile.write(part)
        return None

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path == "/api/repos/create":
            sent = json.loads(body)
            name = f"{sent.get('organization') or 'me'}/{sent['name']}"
            return self.answer({"url": f"{self.server.address}/{name}", "id": name, "name": name})
        if self.path == "/api/validate-yaml":
            return self.answer({"errors": [], "warnings": []})
        where = re.match(r"/api/models/([^/]+/[^/]+)/(preupload|commit)/([^/?]+)", self.path)
        if where is None:
            return self.answer({"error": "not found"}, 404)
        if where[2] == "preupload":
            files = json.loads(body)["files"]
            return self.answer({"files": [{**f, "uploadMode": "regular", "shouldIgnore": False} for f in files]})
        lines = [json.loads(line) for line in body.splitlines()]
        files = {
            line["value"]["path"]: base64.b64decode(line["value"]["content"]) for line in lines if line["key"] == "file"
        }
        commit = self.server.commit(where[1], files)
        return self.answer({"commitUrl": f"{self.server.address}/{where[1]}/commit/{commit}", "commitOid": commit})
