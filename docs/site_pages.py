"""A hook of mkdocs: pages that are files elsewhere, pages that are made from the code, and links to source files.

The pages are written to be read on the repository's own site, where a link may lead to any file. Here a link to a file
outside of docs/ is shown as its name alone unless REPOSITORY_URL says where the files can be read.
"""

from __future__ import annotations

import os
import posixpath
import re
import sys
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

if TYPE_CHECKING:
    from mkdocs.structure.files import Files

ROOT = Path(__file__).resolve().parents[1]
# Pages of the site that are files elsewhere, by their names on the site.
ELSEWHERE = {
    "index.md": "README.md",
    "install.md": "environments/README.md",
    "examples.md": "examples/README.md",
    "example.md": "docs/example_report/README.md",
}
REFERENCE = {
    "reference/credit.md": """# Credit API

`atrl_bench.credit` turns attention rows into token credit, in any trainer. These are its public names.

::: atrl_bench.credit
    options: {members_order: __all__, show_root_heading: false}
""",
    "reference/store.md": """# Store and exports

What a run folder holds, and how it is read and written by other programs.

::: atrl_bench.report.frame
    options: {members: [frame]}

::: atrl_bench.report.exports
    options: {members: [export]}

::: atrl_bench.results.records

::: atrl_bench.results.schema
    options: {members: [STATEMENTS], show_source: true, show_attribute_values: true}
""",
}
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)#\s]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: Any) -> Files:
    """Return the pages of docs/ with those that live elsewhere and those that are made from the code."""
    from mkdocs.structure.files import File

    for name, source in ELSEWHERE.items():
        files.append(File.generated(config, name, content=(ROOT / source).read_text(encoding="utf-8")))
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    made = {"reference/commands.md": commands(), "reference/settings.md": settings(), "reference/sets.md": sets()}
    for name, content in (REFERENCE | made).items():
        files.append(File.generated(config, name, content=content))
    return files


def commands() -> str:
    import typer
    from typer.cli import get_docs_for_click

    from atrl_bench.cli import app

    group: Any = typer.main.get_command(app())
    parts = ["# Commands and options\n\nEvery command of `atrl-bench`, as `atrl-bench COMMAND -h` prints it.\n\n"]
    for command in group.commands.values():
        parts.append(get_docs_for_click(obj=command, ctx=typer.Context(command), indent=1, call_prefix=group.name))
    # Help texts are plain: what looks like a tag or a link in them is none.
    texts = re.split(r"(```.*?```|`[^`\n]*`)", "".join(parts), flags=re.DOTALL)
    return "".join(
        text if place % 2 else escape(re.sub(r"([\[\]])", r"\\\1", text)) for place, text in enumerate(texts)
    )


def settings() -> str:
    from atrl_bench.profiles import Profile
    from atrl_bench.training.recipe import KINDS, Recipe

    parts = [
        "# Settings of recipes and profiles",
        "Every field of the files in `recipes/` and `recipes/profiles/`, with what it is when a file leaves it out.",
    ]
    for model in dict.fromkeys(part for whole in (Profile, Recipe, *KINDS.values()) for part in with_parts(whole)):
        of = [base.__name__ for base in model.__bases__ if base.__name__ != "Settings"]
        parts += [f"## {model.__name__}", model.__doc__ or "", *(f"It has the fields of `{name}`, too." for name in of)]
        own = {name: field for name, field in model.model_fields.items() if name in model.__annotations__}
        rows = ["| field | type | default | what it is |", "|---|---|---|---|"]
        for name, field in own.items():
            value = field.get_default(call_default_factory=True)
            default = "" if field.is_required() or hasattr(type(value), "model_fields") else f"`{value!r}`"
            told = (field.description or "see below").replace("|", "&#124;")
            rows.append(f"| `{name}` | `{type_text(field.annotation)}` | {default} | {told} |")
        parts.append("\n".join(rows))
    return "\n\n".join(parts)


def sets() -> str:
    from atrl_bench.data.sets import TRAINING_SETS
    from atrl_bench.evaluation.tasks import list_tasks

    parts = ["# Benchmarks and training sets", "Where each set lies on the hub, and its folder below `--data-dir`."]
    for title, kind in (("Benchmarks", list_tasks()), ("Training sets", TRAINING_SETS.values())):
        names: dict[tuple[str, ...], list[str]] = {}
        for each in kind:
            if each.hub_id or each.publication.made:
                names.setdefault((f"`{each.folder}`", *places(each)), []).append(f"`{each.name}`")
        rows = [(folder, ", ".join(those), *where) for (folder, *where), those in sorted(names.items())]
        head = ("folder", "names", "rows", "images and videos"), ("---",) * 4
        parts += [f"## {title}", "\n".join(f"| {' | '.join(row)} |" for row in (*head, *rows))]
    return "\n\n".join(parts) + "\n"


def places(dataset: Any) -> tuple[str, str]:
    """Where the rows of a dataset are, and its images and videos where they are not in the rows."""
    where = dataset.publication
    if where.made:
        sources = [one.url or f"{one.hub_id}, {one.archive or one.file}" for one in where.made.sources]
        return "; ".join(f"`{source}`" for source in sources), "in the rows, which `fetch` makes of these"
    rows = ", ".join(f"`{name}`" for name in (dataset.hub_id, *where.tables))
    media = ", ".join(f"`{name}`" for name in (where.media, *where.files, *where.archives) if name)
    return rows + (" (agree to its conditions first)" if where.gated else ""), media


def with_parts(model: Any) -> Iterator[Any]:
    """This class of settings, and those that its own fields are made of."""
    yield model
    for name, field in model.model_fields.items():
        for kind in (field.annotation, *get_args(field.annotation)) if name in model.__annotations__ else ():
            if hasattr(kind, "model_fields"):
                yield from with_parts(kind)


def type_text(annotation: Any) -> str:
    name = annotation.__name__ if isinstance(annotation, type) and not get_args(annotation) else str(annotation)
    return re.sub(r"\b[a-z_]\w*(?:\.\w+)*\.(?=\w)", "", name)


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
