"""The text of a Rust file as the guards read it: without comments, what strings say, test modules and optional blanks.

A blank stays between two words alone, so that a path has one form: `crate::cache`, however it was written.
"""

import re
from functools import cache
from typing import NamedTuple

TOKEN = re.compile(
    r"""(?P<gap> \s+ | //[^\n]* )
      | (?P<text> [bc]?r(?P<hashes>\#*)".*?"(?P=hashes) | [bc]?"(?:[^"\\]|\\.)*" | b?'(?:[^'\\]|\\(?:x..|u\{[^}]*\}|.))' )
      | (?P<word> (?:r\#)?\w+ | '\w+ )
      | (?P<sign> :: | -> | => | . )""",
    re.VERBOSE | re.DOTALL,
)
TEST_MODULE = re.compile(r"#\[cfg\((?:all\()?test[,)][^\]]*\](?:#\[[^\]]*\])*(?:pub(?:\([^)]*\))? ?)?mod \w+(?=[;{])")
INLINE_MODULE = re.compile(r"\bmod (\w+)(?={)")
USE = re.compile(r"(\bpub(?:\([^)]*\))? ?)?\buse(?=[ {])([^;]*);")

# What hides where a path leads.
HIDDEN = [
    (re.compile(r"(?<!pub\()\b(?:crate|super)\b(?!::[\w{])[^;]{0,20}"), "`crate` and `super` stand only before the name of what is used"),
    (re.compile(r"\binclude\b"), "`include!` brings in code that is not read here"),
    (re.compile(r"[\[(,]path=(?!=)"), "`path` puts a module into another file"),
    (re.compile(r"\bmod\$\w+"), "a module is named by a macro"),
]


class Use(NamedTuple):
    """One name that a `use` brings: the parts of its path, the name that it gets, and whether others see it."""

    parts: list
    name: str
    shown: bool


class Source(NamedTuple):
    """One module's code, apart from the modules inside it: its `use`s; the rest, with its words and paths; what is refused."""

    uses: list
    body: str
    words: set
    paths: list
    hidden: list


def after_comment(text, at):
    """Where the block comment that begins at `at` ends; comments nest."""
    depth = 0
    for mark in re.compile(r"/\*|\*/").finditer(text, at):
        depth += 1 if mark[0] == "/*" else -1
        if depth == 0:
            return mark.end()
    return len(text)


@cache
def code(text):
    """The tokens of a file in their one form; a string or a character is `""`."""
    out, last, at = [], "", 0
    while at < len(text):
        if text.startswith("/*", at):
            at = after_comment(text, at)
            continue
        found = TOKEN.match(text, at)
        at = found.end()
        if found.lastgroup == "gap":
            continue
        token = '""' if found["text"] else found[0].removeprefix("r#")
        # A path that begins with `::`. Behind a keyword it goes on from the keyword, as if that were a crate, and has no door.
        if token == "::" and not re.match(r"[\w>]", last[-1:]):
            continue
        if re.match(r"\w", last[-1:]) and re.match(r"[\w']", token):
            out.append(" ")
        out.append(token)
        last = token
    return re.sub(r"\bpub\(in [\w:]+\)", "pub(crate)", "".join(out)).replace("$crate", "crate")


def after_block(text, at):
    """Where the block ends whose `{` stands at `at`; right behind it if a `;` stands there."""
    depth = 0
    for mark in re.compile(r"[{};]").finditer(text, at):
        depth += {"{": 1, "}": -1, ";": 0}[mark[0]]
        if depth == 0:
            return mark.end()
    return len(text)


@cache
def without_tests(text):
    """What `code` says, without the modules under `#[cfg(test)]`."""
    while found := TEST_MODULE.search(text):
        text = text[: found.start()] + text[after_block(text, found.end()) :]
    return text


@cache
def modules(text):
    """The modules of a file's code by their path inside it; the file's own is ()."""
    return {path: parsed(text) for path, text in separated(text).items()}


def separated(text):
    """The code of each module, without that of the modules inside it; one that `cfg` writes twice has both."""
    inner = {}
    while found := INLINE_MODULE.search(text):
        end = after_block(text, found.end())
        for path, part in separated(text[found.end() + 1 : end - 1]).items():
            inside = (found[1], *path)
            inner[inside] = inner.get(inside, "") + part
        text = text[: found.start()] + text[end:]
    return {(): text} | inner


def parsed(text):
    uses = [Use(parts, name, bool(shown)) for shown, tree in USE.findall(text) for parts, name in leaves(tree.strip())]
    body = USE.sub("", text)
    paths = sorted(set(re.findall(r"(?<![\w$])\w+(?:::\w+)+", body)))
    return Source(uses, body, set(re.findall(r"\w+", body)), [path.split("::") for path in paths], [*hidden(text, uses)])


def leaves(tree):
    """The paths that a `use` tree names: `a::{b, c::D as E}` names (a, b, b) and (a, c, D, E); the last is the name it gets here."""
    head, _, rest = tree.partition("{")
    if not rest:
        path, _, name = tree.partition(" as ")
        parts = path.split("::")
        yield parts, (name or parts[-1])
        return
    head = [part for part in head.split("::") if part]
    depth, begin, inner = 0, 0, rest.removesuffix("}")
    for at, char in enumerate(inner + ","):
        depth += (char == "{") - (char == "}")
        if char == "," and depth == 0:
            if inner[begin:at]:
                for parts, name in leaves(inner[begin:at]):
                    own = parts == ["self"] and head
                    yield (head if own else head + parts), (head[-1] if own and name == "self" else name)
            begin = at + 1


def hidden(text, uses):
    """What in a module hides where its paths lead, with the reason why it is refused."""
    for pattern, reason in HIDDEN:
        for found in pattern.finditer(text):
            yield f"`{found[0]}`: {reason}"
    for use in uses:
        path = "::".join(use.parts)
        if use.parts[-1] == "*":
            yield f"`use {path}`: outside tests each name is written out"
        elif "$" in path:
            yield f"`use {path}`: a macro chooses what is used"
