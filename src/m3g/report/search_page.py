"""HTML page of search results; thumbnails and sounds are embedded, so that the page makes no external requests."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import BinaryIO

from m3g.data.storage.limits import open_image
from m3g.data.storage.moved import Folders

SIDE = 128  # maximum side of a thumbnail in pixels
MAX_SOUND_BYTES = 2**20  # maximum size of an embedded sound file in bytes
SOUNDS = {".wav": "audio/wav", ".flac": "audio/flac", ".ogg": "audio/ogg", ".mp3": "audio/mpeg"}
STYLE = """body{font:16px/1.45 system-ui,sans-serif;margin:1rem auto;max-width:60rem;padding:0 .75rem;color:#222}
table{border-collapse:collapse;width:100%}td,th{padding:.3rem .5rem;text-align:left;border-bottom:1px solid #ddd;
overflow-wrap:anywhere}th{white-space:nowrap}td{min-width:4rem}img{max-width:128px;max-height:128px;display:block}audio{max-width:14rem;display:block}
.scroll{overflow-x:auto}@media(prefers-color-scheme:dark){body{background:#161616;color:#ddd}td,th{border-color:#444}}"""


def search_page(title: str, head: Sequence[str], results: Mapping[str, Sequence[Sequence[str]]]) -> str:
    """Return a page with one table of results per query.

    `title` and `head` are text. The keys and the cells of `results` are HTML (`cell_html`).
    """
    columns = "".join(f"<th>{escape(name)}</th>" for name in head)
    tables = []
    for query, rows in results.items():
        body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>\n" for row in rows)
        tables.append(f'<h2>{query}</h2>\n<div class="scroll"><table><tr>{columns}</tr>\n{body}</table></div>')
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; media-src data:"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style></head>\n<body><h1>{escape(title)}</h1>\n"
        + "\n".join(tables)
        + "\n</body></html>\n"
    )


def cell_html(value: object, kind: str | None, folders: Folders, *, outside: bool) -> str:
    """Return a cell of a table as HTML: an image or a sound with its path, or text.

    If a file cannot be embedded, the cell contains only its path, or nothing if the file was given as bytes. Sounds
    given as bytes are never embedded. Files outside `folders` are read only if `outside` is True.
    """
    if isinstance(value, dict):  # the Hugging Face library `datasets` stores files as mappings
        value = value.get("bytes") or value.get("path")
    is_path = isinstance(value, str) and value and kind in ("image", "audio")
    path = folders.find(str(value), allow_outside=outside) if is_path else None
    caption = "" if isinstance(value, bytes) or value is None else escape(str(value))
    if kind == "image" and value:
        return _thumbnail(io.BytesIO(value) if isinstance(value, bytes) else path) + caption
    sound = None if kind != "audio" or path is None else SOUNDS.get(path.suffix.lower())
    if sound is None or path is None or path.stat().st_size > MAX_SOUND_BYTES:
        return caption
    return f'<audio controls src="data:{sound};base64,{base64.b64encode(path.read_bytes()).decode()}"></audio>{caption}'


def _thumbnail(file: Path | BinaryIO | None) -> str:
    if file is None:
        return ""
    try:
        with open_image(file) as image:
            image.thumbnail((SIDE, SIDE))
            out = io.BytesIO()
            image.convert("RGB").save(out, format="JPEG", quality=85)
    except (OSError, SyntaxError, ValueError):
        return ""
    return f'<img alt="" src="data:image/jpeg;base64,{base64.b64encode(out.getvalue()).decode()}">'
