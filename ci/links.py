#!/usr/bin/env python3
"""Every relative link of every Markdown page leads to a file of the repository, and its anchor to a heading there."""

import re
import subprocess
import sys
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


def broken(page):
    """The links of a page that lead nowhere: line number, link and reason."""
    text = CODE.sub(blanked, FENCE.sub(blanked, page.read_text()))
    for found in LINK.finditer(text):
        link = found[1] or found[2]
        if ELSEWHERE.search(link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / unquote(path)).resolve() if path else page
        reason = None
        if not target.is_relative_to(ROOT) or not target.exists():
            reason = "no such file"
        elif anchor and target.suffix == ".md" and anchor not in anchors(target):
            reason = "no such heading"
        if reason:
            yield text.count("\n", 0, found.start()) + 1, link, reason


def main():
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    pages = [ROOT / name for name in subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()]
    faults = [(page, *fault) for page in pages if page.exists() for fault in broken(page)]
    print(f"{'broken' if faults else 'holds'}:  every relative link of {len(pages)} pages leads to a file and a heading")
    for page, line, link, reason in faults:
        print(f"{page.relative_to(ROOT)}:{line}: {link}: {reason}")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
