"""Reads include/specbatch.h: what generators of bindings and checks of the ABI know of it.

    python3 pkgconfig/header.py --json include/specbatch.h

prints what `read(path)` returns, a dict of lists in the header's order:

    version    {"major": 0, "minor": 2, "patch": 0, "number": 200, "abi": 1}
    doc        the comment at the top
    constants  {name, value, type, doc, group, section, line}
                 all of enums, and #defines of a number; type: "int32_t", or "uint32_t" of flags,
                 which are those that the header writes as 1 << n
    handles    {name, doc, section, line}                    opaque structs
    callbacks  {name, returns, params, doc, section, line}   typedefs of function pointers
    structs    {name, size, fields, init, doc, section, line}
                 fields: {name, type, offset, size, doc, line}; init: the C text of the INIT macro
    functions  {name, returns, params, doc, group, since, section, line}
                 params: {name, type}; since: "0.2" if the function's own comment has it, or None

A `doc` is the comment before an item, or behind a field, without stars and with its line breaks;
"" where there is none. A `group` is a comment about several items: one with a blank line behind
it, or that of an enum. A type is a dict by its "kind":

    {"kind": "void"}
    {"kind": "scalar", "name": "int32_t"}             char, float, size_t and the intN_t
    {"kind": "struct" or "handle" or "callback", "name": "specbatch_pool"}
    {"kind": "pointer", "to": TYPE}
    {"kind": "function", "returns": TYPE, "params": [...]}   a pointer to a function

each with "const": true where it is const. Offsets are those of LP64 machines. The header's rules
make them simple, and are checked: every size is a multiple of 8, and nothing is padded.

This is no parser of C but of this header: a tokenizer, and a function for each form that occurs.
Whatever else comes is an error with its line, because a binding that leaves something out is worse
than none. A C compiler's parser (libclang, pycparser) would be one more thing to install, and gives
no comments. Python 3.9 or later, and nothing but its standard library.
"""

import json
import re
import sys

SCALARS = {"char": 1, "float": 4, "int32_t": 4, "uint32_t": 4, "int64_t": 8, "uint64_t": 8,
           "size_t": 8}

TOKEN = re.compile(r"""
    (?P<space>[ \t\n]+)
  | (?P<comment>/\*.*?\*/)
  | (?P<directive>^\#(?:[^\\\n]|\\\n)*)
  | (?P<word>[A-Za-z_]\w*)
  | (?P<number>-?\d+)
  | (?P<string>"[^"\\\n]*")
  | (?P<mark>[{}()\[\];,*=]|<<)
""", re.VERBOSE | re.DOTALL | re.MULTILINE)

SECTION = re.compile(r"/\* -{5,} (.*) \*/", re.DOTALL)


class HeaderError(Exception):
    """The header has something that this file does not understand; the message has its line."""


class Token:
    """A token; the line where it begins and ends; and the lines between it and the one before."""

    def __init__(self, kind, text, line, gap):
        self.kind, self.text, self.line, self.gap = kind, text, line, gap
        self.end = line + text.count("\n")


def tokenize(path, text):
    tokens, position, line, end = [], 0, 1, 0
    while position < len(text):
        match = TOKEN.match(text, position)
        if not match:
            raise HeaderError(f"{path}:{line}: unknown text {text[position:position + 20]!r}")
        if match.lastgroup != "space":
            tokens.append(Token(match.lastgroup, match.group(), line, line - end))
            end = tokens[-1].end
        line += match.group().count("\n")
        position = match.end()
    tokens.append(Token("end", "the end", line, line - end))
    return tokens


def plain_comment(text):
    """The text of a comment without its marks and stars."""
    lines = text[2:-2].split("\n")
    lines = [lines[0].strip()] + [re.sub(r"^\s*\*? ?", "", line).rstrip() for line in lines[1:]]
    return "\n".join(lines).strip("\n")


class Parser:
    """Walks over the tokens; `self.out` is what `read` returns."""

    def __init__(self, path, text):
        self.path = path
        self.tokens = tokenize(path, text)
        self.at = 0
        self.section, self.doc, self.group = "", "", ""
        self.names = {}  # of a type that the header has made: "struct", "handle" or "callback"
        self.seen = set()
        self.defines = {}
        self.out = {"version": {}, "doc": "", "constants": [], "handles": [], "callbacks": [],
                    "structs": [], "functions": []}

    # ------------------------------------------------------------ tokens

    def fail(self, token, why):
        raise HeaderError(f"{self.path}:{token.line}: {why}")

    def peek(self):
        return self.tokens[self.at]

    def take(self, *expected):
        """The next token, which has to be one of these texts or kinds."""
        token = self.tokens[self.at]
        if expected and token.text not in expected and token.kind not in expected:
            self.fail(token, f"{' or '.join(expected)} was expected, and {token.text!r} found")
        self.at += 1
        return token

    def taken(self, text):
        """Whether the next token is this one, which is taken then."""
        if self.peek().text != text:
            return False
        self.at += 1
        return True

    def comment(self):
        """The comment that stands here, or ""."""
        return plain_comment(self.take().text) if self.peek().kind == "comment" else ""

    def trailing_comment(self, line):
        """A comment that begins on this line, behind a field or a constant."""
        if self.peek().kind == "comment" and self.peek().line == line:
            return plain_comment(self.take().text)
        return ""

    # ------------------------------------------------------------ types

    def type(self):
        const = self.taken("const")
        self.taken("struct")
        word = self.take("word")
        if word.text == "void":
            type_ = {"kind": "void"}
        elif word.text in SCALARS:
            type_ = {"kind": "scalar", "name": word.text}
        elif word.text in self.names:
            type_ = {"kind": self.names[word.text], "name": word.text}
        else:
            self.fail(word, f"unknown type {word.text!r}")
        if const:
            type_["const"] = True
        while self.taken("*"):
            type_ = {"kind": "pointer", "to": type_}
            if self.taken("const"):
                type_["const"] = True
        return type_

    def params(self):
        """(TYPE NAME, ...), or (void)."""
        found = []
        self.take("(")
        if self.peek().text == "void" and self.tokens[self.at + 1].text == ")":
            self.take()
        else:
            while True:
                type_ = self.type()
                found.append({"name": self.take("word").text, "type": type_})
                if not self.taken(","):
                    break
        self.take(")")
        return found

    def function_pointer(self, returns):
        """(*NAME)(PARAMS), behind what it returns."""
        self.take("(")
        self.take("*")
        name = self.take("word").text
        self.take(")")
        return name, {"kind": "function", "returns": returns, "params": self.params()}

    # ------------------------------------------------------------ items

    def item(self, into, name, token, **more):
        if name in self.seen:
            self.fail(token, f"{name} is there twice")
        self.seen.add(name)
        self.out[into].append({"name": name, **more, "doc": self.doc, "section": self.section,
                               "line": token.line})

    def function(self, token):
        returns = self.type()
        name = self.take("word").text
        params = self.params()
        self.take(";")
        since = re.findall(r"Since (\d+\.\d+)\.", re.sub(r"\s+", " ", self.doc))
        self.item("functions", name, token, returns=returns, params=params, group=self.group,
                  since=since[-1] if since else None)

    def enum(self):
        """enum { NAME = NUMBER, ... }; where every number is written out, or 1 << n in each of
        them. Its comment is the group of its constants, or one inside it that a blank line
        follows."""
        group, kinds = self.doc, set()
        self.take("{")
        while True:
            self.doc = self.comment()
            if self.peek().gap > 1 and self.doc:
                group, self.doc = self.doc, self.comment()
            name = self.take("word")
            self.take("=")
            value, type_ = self.enum_value()
            kinds.add(type_)
            last = not self.taken(",")
            self.doc = self.doc or self.trailing_comment(name.line)
            self.item("constants", name.text, name, value=value, type=type_, group=group)
            if len(kinds) > 1:
                self.fail(name, "flags, which are 1 << n, and other numbers in one enum")
            if self.taken("}"):
                break
            if last:
                self.fail(self.peek(), "an enum goes on without a comma")
        self.take(";")

    def enum_value(self):
        """The number of a constant and its type: 4, an int32_t, or 1 << 2, a flag."""
        number = self.take("number")
        if not self.taken("<<"):
            return int(number.text), "int32_t"
        if number.text != "1":
            self.fail(number, "a flag is 1 << n")
        return 1 << int(self.take("number").text), "uint32_t"

    def typedef(self, token):
        if self.peek().text == "struct":
            self.take()
            name = self.take("word").text
            if self.peek().text == "{":
                self.struct(name, token)
            else:
                self.take(name)
                self.take(";")
                self.names[name] = "handle"
                self.item("handles", name, token)
            return
        name, pointer = self.function_pointer(self.type())
        self.take(";")
        self.names[name] = "callback"
        self.item("callbacks", name, token, returns=pointer["returns"], params=pointer["params"])

    def struct(self, name, token):
        """{ fields } NAME; where every field begins at the end of the one before it."""
        fields, offset, doc = [], 0, self.doc
        self.take("{")
        while True:
            comment = self.comment()
            if self.taken("}"):
                break
            field = self.peek()
            type_ = self.type()
            if self.peek().text == "(":
                field_name, type_ = self.function_pointer(type_)
            else:
                field_name = self.take("word").text
            self.take(";")
            size = SCALARS.get(type_.get("name"), 8)
            if type_["kind"] in ("void", "struct", "handle") or offset % size:
                self.fail(field, f"{name}.{field_name}: padding, or a field of an unknown size")
            fields.append({"name": field_name, "type": type_, "offset": offset, "size": size,
                           "doc": comment or self.trailing_comment(field.line),
                           "line": field.line})
            offset += size
        self.take(name)
        self.take(";")
        if offset % 8:
            self.fail(token, f"the size of {name}, {offset}, is no multiple of 8")
        self.names[name] = "struct"
        self.doc = doc
        self.item("structs", name, token, size=offset, fields=fields, init=None)

    # ------------------------------------------------------------ preprocessor

    def define(self, token, text):
        match = re.fullmatch(r"(SPECBATCH_\w+)\s*(.*)", text, re.DOTALL)
        if not match:
            self.fail(token, f"unknown #define {text!r}")
        name, value = match.group(1), " ".join(match.group(2).split())
        if name == "SPECBATCH_API" or (name == "SPECBATCH_H" and not value):
            return
        if name.endswith("_INIT"):
            self.init(token, name, value)
            return
        number = re.sub(r"\bSPECBATCH_\w+", lambda word: str(self.defines.get(word.group(), "?")),
                        value)
        if not re.fullmatch(r"[0-9 ()*+]+", number):
            self.fail(token, f"{name} is no number: {value!r}")
        self.defines[name] = eval(number)  # it has digits, spaces, + and * only
        self.item("constants", name, token, value=self.defines[name], type="int32_t", group="")

    def init(self, token, name, value):
        """SPECBATCH_POOL_OPTIONS_INIT is of specbatch_pool_options."""
        for struct in self.out["structs"]:
            if struct["name"] == name[:-len("_INIT")].lower():
                struct["init"] = value
                values = re.fullmatch(r"\{ (.*) \}", value)
                if not values or len(values.group(1).split(",")) != len(struct["fields"]):
                    self.fail(token, f"{name} does not have a value for each field")
                return
        self.fail(token, f"{name} is of no struct")

    def directive(self, token):
        text = re.sub(r"\\\n", " ", token.text)
        word, _, rest = text[1:].strip().partition(" ")
        rest = rest.strip()
        if word == "define":
            self.define(token, rest)
        elif (word, rest) == ("ifdef", "__cplusplus"):
            while self.peek().kind != "directive":
                self.take("extern", '"C"', "{", "}")
        elif (word, rest) not in (("ifndef", "SPECBATCH_H"), ("include", "<stddef.h>"),
                                  ("include", "<stdint.h>"), ("if", "defined(__GNUC__)"),
                                  ("else", ""), ("endif", "")):
            self.fail(token, f"unknown directive {text!r}")

    # ------------------------------------------------------------ the whole

    def documentation(self):
        """Takes comments: a section's name, that of a group (a blank line follows), or a doc."""
        token = self.take()
        section = SECTION.fullmatch(token.text)
        if section:
            self.section, self.group, self.doc = section.group(1), "", ""
            return
        text = plain_comment(token.text)
        if not self.out["doc"]:
            self.out["doc"] = text
        elif self.peek().gap > 1:
            self.group, self.doc = text, ""
        else:
            self.doc = text

    def read(self):
        while self.peek().kind != "end":
            if self.peek().kind == "comment":
                self.documentation()
                continue
            token = self.take()
            if token.kind == "directive":
                self.directive(token)
            elif token.text == "SPECBATCH_API":
                self.function(token)
            elif token.text == "typedef":
                self.typedef(token)
            elif token.text == "enum":
                self.enum()
            else:
                self.fail(token, f"unknown declaration {token.text!r}")
            self.doc = ""
        self.version()
        return self.out

    def version(self):
        names = {"major": "VERSION_MAJOR", "minor": "VERSION_MINOR", "patch": "VERSION_PATCH",
                 "number": "VERSION_NUMBER", "abi": "SOVERSION"}
        for key, name in names.items():
            if "SPECBATCH_" + name not in self.defines:
                self.fail(self.peek(), f"SPECBATCH_{name} is missing")
            self.out["version"][key] = self.defines["SPECBATCH_" + name]


def read(path):
    """The header at this path, as the text above says; HeaderError if there is more in it."""
    with open(path, encoding="utf-8") as file:
        return Parser(path, file.read()).read()


def main(arguments):
    if len(arguments) != 2 or arguments[0] != "--json":
        print(__doc__, file=sys.stderr)
        return 2
    try:
        json.dump(read(arguments[1]), sys.stdout, indent=1)
    except (HeaderError, OSError) as error:
        print(f"header.py: {error}", file=sys.stderr)
        return 1
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
