"""Makes the API's reference, one HTML page, of what pkgconfig/header.py reads in the header.

    python3 docs/reference.py include/specbatch.h OUT.html

The header is the reference, and this page is the header with links: sections, items and comments
are in its order and in its words. It is made by this file and not by Doxygen, because the header's
comments are plain text. Doxygen would want them marked up, or a filter that marks them up, which is
longer than this file; and it would say each thing twice, as a brief and as a full description.

A function without a comment is an error, and so is a word in a comment that looks like a name of
this API and is none.
"""

import html
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "pkgconfig"))
import header  # noqa: E402

STYLE = """
body { max-width: 60em; margin: 2em auto; padding: 0 1em; font: 16px/1.45 sans-serif }
pre, code { font: 14px/1.4 monospace } pre { background: #f4f4f2; padding: .6em; overflow-x: auto }
h3 { margin: 2em 0 .3em; font: bold 16px monospace } table { border-collapse: collapse }
td { padding: .25em .8em .25em 0; vertical-align: top; border-top: 1px solid #ddd }
nav a { margin-right: 1em } a { color: #14548c; text-decoration: none }
"""
# A name, or with a star the beginning of several.
NAME = re.compile(r"\b(?:specbatch_\w+|SPECBATCH_\w+|E_[A-Z]\w+)\b(\*?)")
problems = []


def c_type(kind, name=""):
    """The declaration in C of something of this type that has this name."""
    const = "const " if kind.get("const") else ""
    if kind["kind"] == "pointer":
        if kind["to"]["kind"] == "function":
            return c_function(kind["to"], f"(*{name})")
        return c_type(kind["to"], "*" + ("const " if const else "") + name)
    if kind["kind"] == "function":
        return c_function(kind, f"(*{name})")
    return const + kind.get("name", "void") + (" " if name else "") + name


def c_function(item, name):
    params = ", ".join(c_type(p["type"], p["name"]) for p in item["params"])
    return c_type(item["returns"], f"{name}({params or 'void'})")


class Page:
    def __init__(self, api):
        self.api = api
        self.names = set()
        for kind in ("constants", "handles", "callbacks", "structs", "functions"):
            self.names |= {item["name"] for item in api[kind]}

    def link(self, match):
        word = match.group(0)
        name = "SPECBATCH_" + word if word.startswith("E_") else word
        if name in self.names:
            return f'<a href="#{name}">{word}</a>'
        begins_one = word.endswith("*") and any(n.startswith(name[:-1]) for n in self.names)
        if not begins_one and not name.endswith("_INIT"):
            problems.append(f"a comment speaks of {word}, which is not there")
        return word

    def inline(self, text):
        return NAME.sub(self.link, html.escape(text, quote=False))

    def prose(self, text):
        """Paragraphs; lines that are set in by two spaces or more stay as they are."""
        out, tag, block = [], None, []
        for line in text.split("\n") + [""]:
            now = None if not line.strip() else "pre" if line.startswith("  ") else "p"
            if now != tag:
                if tag:
                    out.append(f"<{tag}>" + self.inline("\n".join(block)) + f"</{tag}>")
                tag, block = now, []
            block.append(line)
        return "\n".join(out)

    def rows(self, items):
        cells = ""
        for item in items:
            cells += (f'<tr id="{item["id"]}"><td><code>{html.escape(item["c"])}</code></td>'
                      f'<td>{self.inline(item["doc"])}</td></tr>\n')
        return f"<table>\n{cells}</table>"

    def struct(self, item):
        fields = [{"id": f'{item["name"]}.{f["name"]}', "c": c_type(f["type"], f["name"]),
                   "doc": f["doc"]} for f in item["fields"]]
        size = f'<p>A struct of {item["size"]} bytes.</p>'
        return self.prose(item["doc"]) + size + self.rows(fields)

    def item(self, kind, item):
        if kind == "structs":
            return self.struct(item)
        if kind == "handles":
            return "<p>A handle.</p>" + self.prose(item["doc"])
        if kind == "functions" and not item["doc"] and not item["group"]:
            problems.append(f'{item["name"]} has no comment')
        typedef = "typedef " if kind == "callbacks" else ""
        name = f'(*{item["name"]})' if typedef else item["name"]
        declaration = f"<pre>{html.escape(typedef + c_function(item, name))};</pre>"
        return declaration + self.prose(item["doc"])

    def section(self, name, items):
        out, group = [f'<h2 id="{name}">{name.capitalize()}</h2>'], ""
        while items:
            kind, item = items.pop(0)
            if item.get("group", "") != group:
                group = item.get("group", "")
                out.append(self.prose(group))
            if kind == "constants":
                table = [item]
                while items and items[0][0] == kind and items[0][1].get("group", "") == group:
                    table.append(items.pop(0)[1])
                out.append(self.rows([{"id": c["name"], "c": f'{c["name"]} = {c["value"]}',
                                       "doc": c["doc"]} for c in table]))
            else:
                out.append(f'<h3 id="{item["name"]}">{item["name"]}</h3>')
                out.append(self.item(kind, item))
        return "\n".join(out)

    def whole(self):
        sections = {}
        for kind in ("constants", "handles", "callbacks", "structs", "functions"):
            for item in self.api[kind]:
                sections.setdefault(item["section"], []).append((kind, item))
        order = sorted(sections, key=lambda name: min(i["line"] for _, i in sections[name]))
        version = "{major}.{minor}.{patch}".format(**self.api["version"])
        body = "\n".join(self.section(name, sorted(sections[name], key=lambda i: i[1]["line"]))
                         for name in order)
        links = " ".join(f'<a href="#{name}">{name}</a>' for name in order)
        return (f'<!DOCTYPE html>\n<html lang="en"><meta charset="utf-8">\n'
                f"<title>libspecbatch {version}</title>\n<style>{STYLE}</style>\n"
                f"<h1>libspecbatch {version}: the API</h1>\n<nav>{links}</nav>\n"
                f'{self.prose(self.api["doc"])}\n{body}\n</html>\n')


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__.split("\n\n")[1].strip())
    page = Page(header.read(sys.argv[1])).whole()
    for problem in problems:
        print("reference.py:", problem, file=sys.stderr)
    if problems:
        sys.exit(1)
    with open(sys.argv[2], "w", encoding="utf-8") as out:
        out.write(page)


main()
