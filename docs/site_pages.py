"""A hook of mkdocs: the README as first page, the examples as a page, and links to source files that lead to GitHub's.

The pages are written to be read on the repository's own site, where a link may lead to any file. Here a link to a file
outside of docs/ is shown as its name alone unless REPOSITORY_URL says where the files can be read.
"""

from __future__ import annotations

import os
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
# Pages of the site that are files elsewhere, by their names on the site.
ELSEWHERE = {
    "index.md": "README.md",
    "install.md": "environments/README.md",
    "examples.md": "examples/README.md",
    "example.md": "docs/example_report/README.md",
}
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)#\s]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: Any) -> Files:
    """Return the pages of docs/ with those that live elsewhere."""
    for name, source in ELSEWHERE.items():
        files.append(File.generated(config, name, content=(ROOT / source).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Return the page with each link relative to the site, and those to other files of the repository rewritten."""
    source = ELSEWHERE.get(page.file.src_uri, f"docs/{page.file.src_uri}")
    markdown = (
        re.sub(r"(?<!\[)`index\.html`", "[index.html](index.html)", markdown) if "example" in source else markdown
    )
    known = set(files.src_uris)
    moved = {elsewhere: name for name, elsewhere in ELSEWHERE.items()}

    def rewritten(match: re.Match[str]) -> str:
        image, text, target, anchor = match.groups()
        if "://" in target or target.startswith("mailto:"):
            return match[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        on_site = moved.get(path) or path.removeprefix("docs/")
        if (path.startswith("docs/") and on_site in known) or path in moved:
            relative = posixpath.relpath(on_site, posixpath.dirname(page.file.src_uri) or ".")
            return f"{image}[{text}]({relative}{anchor or ''})"
        if (ROOT / path).exists():
            url = os.environ.get("REPOSITORY_URL")
            return f"[{text}]({url}/blob/main/{path})" if url else f"{text} (`{path}`)"
        return match[0]

    return LINK.sub(rewritten, markdown)
