#!/usr/bin/env python3
"""Every relative link of every Markdown page leads to a file of the repository, and its anchor to a heading there.

`links.py FOLDER...`: the same of the README in each of these folders, whose links must not leave the folder.
"""

import re
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from urllib.parse import unquote

ROOT = Path(__file__).resolve().parent.parent
FENCE = re.compile(r"^(?P<fence>`{3,}|~{3,}).*?^(?P=fence)`*\s*?$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)", re.DOTALL)
LINK = re.compile(r"\]\(\s*<?([^()\s<>]+(?:\([^()\s]*\)[^()\s<>]*)?)>?[^()]*\)|^\[[^\]]+\]:\s+(\S+)", re.MULTILINE)
HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*#*$", re.MULTILINE)
# Links to other sites, and rustdoc's links to items of a crate.
ELSEWHERE = re.compile(r"^[a-z][a-z+.-]*:(?!:)|::")


def blanked(found):
    """Newlines only, so that later lines keep their numbers."""
    return "\n" * found[0].count("\n")


@cache
def anchors(page):
    """The anchors of a page, as GitHub makes them from its headings."""
    text = FENCE.sub(blanked, page.read_text())
    seen, known = {}, set(re.findall(r'\b(?:id|name)="([^"]+)"', text))
    for heading in HEADING.findall(text):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        known.add(f"{slug}-{seen[slug]}" if slug in seen else slug)
        seen[slug] = seen.get(slug, 0) + 1
    return known


def broken(page, root):
    """The links of a page that lead to nothing below `root`: line number, link and reason."""
    text = CODE.sub(blanked, FENCE.sub(blanked, page.read_text()))
    for found in LINK.finditer(text):
        link = found[1] or found[2]
        if ELSEWHERE.search(link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / unquote(path)).resolve() if path else page
        reason = None
        if not target.is_relative_to(root) or not target.exists():
            reason = "no such file"
        elif anchor and target.suffix == ".md" and anchor not in anchors(target):
            reason = "no such heading"
        if reason:
            yield text.count("\n", 0, found.start()) + 1, link, reason


# Texts of a page beside b.md, which has the heading "One two": with good links, and with broken
# links.
FINE = ["[a](b.md)", "[a](b.md#one-two)", "[a](<b.md>)", "`[a](c.md)`", "```\n[a](c.md)\n```", "[a](crate::Lease)",
        "[a](https://example.org/c.md#no)", "# Own\n[a](#own)"]
BROKEN = ["[a](c.md)", "[a](b.md#two)", "[a](#own)", "[a](../outside.md)", "![a](c.svg)", "[a]\n\n[a]: c.md"]


def misjudged():
    """The texts of FINE and BROKEN that are judged wrongly."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve() / "repository"
        root.mkdir()
        (root.parent / "outside.md").touch()
        (root / "b.md").write_text("# One two\n")
        for number, text in enumerate(FINE + BROKEN):
            page = root / f"{number}.md"
            page.write_text(text)
            if bool([*broken(page, root)]) != (text in BROKEN):
                yield text


def pages():
    """The pages to look at, each with the folder that its links must not leave."""
    if folders := sys.argv[1:]:
        return [(Path(folder).resolve() / "README.md", Path(folder).resolve()) for folder in folders]
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    names = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    return [(ROOT / name, ROOT) for name in names if (ROOT / name).exists()]


def main():
    if wrong := [*misjudged()]:
        sys.exit(f"broken: ci/links.py judges links rightly: {wrong}")
    looked_at = pages()
    faults = [(page.relative_to(root), *fault) for page, root in looked_at for fault in broken(page, root)]
    print(f"{'broken' if faults else 'holds'}:  every relative link of {len(looked_at)} pages leads to a file and a heading")
    for page, line, link, reason in faults:
        print(f"{page}:{line}: {link}: {reason}")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
