"""What the ABI gate (test/api/check_abi_gate.sh) makes of the public header.

    abi_headers.py bare HEADER          the header without comments: what is kept of a release
    abi_headers.py newer HEADER         the header as a later version might be: each struct has one
                                        more field, `newer_field`, and there are a function and a
                                        constant more
    abi_headers.py standin HEADER       a C file with every function of the header, which does
                                        nothing. Compiled, it has the ABI of the library without
                                        what is behind its handles, and soon
    abi_headers.py compare OLD NEW      what of OLD a program misses in NEW, a line for each thing:
                                        "break: " where such a program no longer works, "grown: "
                                        where NEW only has more

abidiff compares libraries and so sees everything that debug information has. But it has nothing of
constants, and cannot tell a struct that has grown at its end, as structs may, from one that has
changed.
"""

import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "pkgconfig"))
import header  # pylint: disable=wrong-import-position

# These are meant to be other numbers in another version.
VERSIONS = re.compile(r"SPECBATCH_(VERSION_\w+|SOVERSION)$")


def text_of(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def bare(path):
    text = re.sub(r"/\*.*?\*/", "", text_of(path), flags=re.DOTALL)
    return "".join(line.rstrip() + "\n" for line in text.splitlines() if line.strip())


def newer(path):
    text = bare(path)
    for struct in header.read(path)["structs"]:
        text, n = re.subn(r"^(} " + struct["name"] + ";)", r"    uint64_t newer_field;\n\1", text,
                          flags=re.MULTILINE)
        if n != 1:
            raise header.HeaderError(f"{path}: the end of {struct['name']} was not found")
    text = re.sub(r"(#define \w+_INIT\b[^}]*?)( *\\\n *})", r"\1, 0\2", text)
    added = "#define SPECBATCH_NEWER 99\nSPECBATCH_API int32_t specbatch_newer(void);\n"
    return text.replace("#ifdef __cplusplus\n}", added + "#ifdef __cplusplus\n}")


def spelled(declared, name=""):
    """A declaration of `name` with this type, in C."""
    const = "const " if declared.get("const") else ""
    if declared["kind"] == "pointer":
        return spelled(declared["to"], "*" + const + name)
    if declared["kind"] == "function":
        return const + spelled(declared["returns"], f"(*{name})({parameters(declared['params'])})")
    return (const + declared.get("name", "void") + " " + name).rstrip()


def parameters(params):
    return ", ".join(spelled(p["type"], p["name"]) for p in params) or "void"


def prototype(function):
    return spelled(function["returns"], f"{function['name']}({parameters(function['params'])})")


def standin(path):
    lines = ['#include "specbatch.h"']
    for function in header.read(path)["functions"]:
        nothing = "" if function["returns"]["kind"] == "void" else "return 0;"
        lines.append(f"{prototype(function)} {{ {nothing} }}")
    return "\n".join(lines) + "\n"


def unnamed(function):
    """Its prototype without names of parameters, which are nothing to a program."""
    return prototype({**function, "params": [{**p, "name": ""} for p in function["params"]]})


def facts(path):
    """By their names: constants, handles, functions with their types, structs with their fields."""
    read = header.read(path)
    plain = {c["name"]: f"{c['type']} {c['value']}" for c in read["constants"]
             if not VERSIONS.match(c["name"])}
    plain.update((h["name"], "a handle") for h in read["handles"])
    plain.update((f["name"], unnamed(f)) for f in read["functions"] + read["callbacks"])
    structs = {s["name"]: [spelled(f["type"], f["name"]) for f in s["fields"]]
               for s in read["structs"]}
    return plain, structs


def compare(old_path, new_path):
    try:
        (old, old_structs), (new, new_structs) = facts(old_path), facts(new_path)
    except header.HeaderError as error:
        return f"break: {error}\n"
    found = []
    for name, was in old.items():
        if new.get(name) != was:
            found.append(f"break: {name} was `{was}` and is `{new.get(name, 'gone')}`")
    found += [f"grown: {name} is new" for name in new if name not in old]
    found += [f"grown: {name} is new" for name in new_structs if name not in old_structs]
    for name, was in old_structs.items():
        now = new_structs.get(name, [])
        for i, field in enumerate(was):
            if now[i:i + 1] != [field]:
                found.append(f"break: {name} had `{field}` where it has "
                             f"`{now[i] if i < len(now) else 'nothing'}`")
                break
        else:
            found += [f"grown: {name} has a field `{field}` at its end" for field in now[len(was):]]
    return "".join(line + "\n" for line in found)


def main(arguments):
    commands = {"bare": bare, "newer": newer, "standin": standin, "compare": compare}
    try:
        sys.stdout.write(commands[arguments[1]](*arguments[2:]))
    except (KeyError, IndexError, TypeError):
        print(__doc__, file=sys.stderr)
        return 2
    except (header.HeaderError, OSError) as error:
        print(f"abi_headers.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
