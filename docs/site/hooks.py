"""What MkDocs does for this site beside reading docs/. The pages are written for GitHub, and stay as they are.

- A link that leaves docs/ leads to the repository, whose address `pyproject.toml` has.
- The changelog and its like, which stand beside docs/, are pages of the site, too.
- GitHub reads Markdown by other rules than MkDocs. A page in which the two see different lists or tables is named.
"""

from __future__ import annotations

import logging
import posixpath
import re
import tomllib
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt
from mkdocs.structure.files import File

_log = logging.getLogger("mkdocs.hooks")

ROOT = Path(__file__).parents[2]
REPOSITORY = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Source"]
BESIDE_DOCS = {"changelog.md": "CHANGELOG.md", "contributing.md": "CONTRIBUTING.md", "security.md": "SECURITY.md"}
"""Pages of the site, and the files of the repository that they are made of."""
_SITE = {**{file: page for page, file in BESIDE_DOCS.items()}, "README.md": "index.md"}
_LINK = re.compile(r"(\]\()([^)\s#:]+)((?:#[^)\s]*)?\))")


def on_config(config: Any) -> Any:
    """Name the repository."""
    config.repo_url = REPOSITORY
    config.repo_name = REPOSITORY.rpartition("/")[2]
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the pages whose files stand beside docs/."""
    for page, file in BESIDE_DOCS.items():
        files.append(File.generated(config, page, content=(ROOT / file).read_text()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Let each link lead to where the site has its target, or else to the repository."""
    at = page.file.src_uri
    source = BESIDE_DOCS.get(at, f"docs/{at}")
    return _LINK.sub(lambda link: f"{link[1]}{_target(link[2], source, at)}{link[3]}", markdown)


def _target(link: str, source: str, at: str) -> str:
    file = posixpath.normpath(posixpath.join(posixpath.dirname(source), link))
    page = _SITE.get(file) or (file.removeprefix("docs/") if file.startswith("docs/") else None)
    if page is not None:
        return posixpath.relpath(page, posixpath.dirname(at) or ".")
    # What is not there stays as it is: MkDocs names it, and --strict makes it an error.
    return f"{REPOSITORY}/blob/main/{file}" if (ROOT / file).exists() else link


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """Name a page in which GitHub sees other lists or tables; of what is made from docstrings, it sees nothing."""
    if "\n::: " not in page.markdown:
        github = MarkdownIt("commonmark").enable("table").render(page.markdown)
        unlike = [tag for tag in ("<li>", "<ul>", "<tr>", "<blockquote>") if github.count(tag) != html.count(tag)]
        if unlike:
            _log.warning("GitHub and this site see different %s in '%s'", " and ".join(unlike), page.file.src_uri)
    return html
