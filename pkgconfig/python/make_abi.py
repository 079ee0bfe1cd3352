"""Writes specbatch/_abi.py, the header in ctypes, from include/specbatch.h.

    python3 pkgconfig/python/make_abi.py [--check]

With --check nothing is written, and it fails if the file is not what it would write. What ctypes
cannot say is decided here: a function that returns int32_t is marked STATUS if its comment names
error codes, and its negative values are raised as exceptions; handles are c_void_p; and text that
comes with a length is c_void_p too, since a c_char_p ends at the first NUL.
"""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import header  # noqa: E402  (the path comes first)

HEADER = os.path.join(HERE, "..", "..", "include", "specbatch.h")
OUTPUT = os.path.join(HERE, "specbatch", "_abi.py")

TOP = '''"""The header in ctypes, generated from include/specbatch.h by make_abi.py."""

from ctypes import (CFUNCTYPE, POINTER, Structure, c_char_p, c_float, c_int32, c_int64, c_size_t,
                    c_uint32, c_uint64, c_void_p)

'''


def short(name):
    return name[len("specbatch_"):]


def function_type(item):
    kinds = [ctype(item["returns"])] + [ctype(param["type"]) for param in item["params"]]
    return f"CFUNCTYPE({', '.join(kinds)})"


def ctype(kind):
    """The ctypes spelling of a type of header.py."""
    if kind["kind"] == "void":
        return "None"
    if kind["kind"] == "scalar":
        return "c_" + kind["name"].replace("_t", "") if kind["name"] != "size_t" else "c_size_t"
    if kind["kind"] == "callback":
        return short(kind["name"])
    if kind["kind"] == "function":
        return function_type(kind)
    to = kind["to"]
    if to["kind"] in ("void", "handle"):
        return "c_void_p"
    if to == {"kind": "scalar", "name": "char", "const": True}:
        return "c_char_p"
    if to["kind"] == "scalar" and to["name"] == "char":
        return "c_void_p"  # a buffer, which the library writes
    return f"POINTER({short(to['name']) if to['kind'] == 'struct' else ctype(to)})"


def prototype(function):
    """NAME: (RETURNS, PARAMS) for a function; text beside a length is an address."""
    params = [ctype(param["type"]) for param in function["params"]]
    returns = ctype(function["returns"])
    if any(param["name"] == "length" and param["type"]["kind"] == "pointer"
           for param in function["params"]):
        returns = returns.replace("c_char_p", "c_void_p")
        params = [param.replace("POINTER(c_char_p)", "POINTER(c_void_p)") for param in params]
    if returns == "c_int32" and "E_" in function["doc"]:
        returns = "STATUS"
    return f'    "{short(function["name"])}": ({returns}, ({"".join(p + ", " for p in params)})),'


def wrapped(line):
    """Lines of at most 100 columns, broken between tuples if there are any."""
    indent = " " * 8
    lines = []
    while len(line) > 100:
        mark = "), (" if "), (" in line[20:99] else ", "
        at = line.rindex(mark, 0, 99) + mark.index(",") + 1
        lines.append(line[:at])
        line = indent + line[at + 1:]
    return "\n".join(lines + [line])


def generated(data):
    version = data["version"]
    lines = ["VERSION = \"{major}.{minor}.{patch}\"".format(**version),
             f"VERSION_NUMBER = {version['number']}", f"SOVERSION = {version['abi']}", ""]
    lines += [f"{constant['name'][len('SPECBATCH_'):]} = {constant['value']}"
              for constant in data["constants"] if "VERSION" not in constant["name"]]
    lines += [""] + [f"{short(item['name'])} = {function_type(item)}" for item in data["callbacks"]]
    for struct in data["structs"]:
        fields = ", ".join(f'("{field["name"]}", {ctype(field["type"])})'
                           for field in struct["fields"])
        lines += ["", "", f"class {short(struct['name'])}(Structure):",
                  wrapped(f"    _fields_ = [{fields}]")]
    sizes = ", ".join(f"({short(item['name'])}, {item['size']})" for item in data["structs"])
    lines += ["", "", wrapped(f"SIZES = ({sizes})"),
              "# What functions return, and their arguments. A negative STATUS is an error.",
              "STATUS = \"status\"", "FUNCTIONS = {"]
    lines += [wrapped(prototype(function)) for function in data["functions"]]
    return TOP + "\n".join(lines + ["}"]) + "\n"


def main(arguments):
    text = generated(header.read(HEADER))
    if arguments == ["--check"]:
        with open(OUTPUT, encoding="utf-8") as file:
            if file.read() != text:
                sys.exit("specbatch/_abi.py is not that of the header: run make_abi.py")
    else:
        with open(OUTPUT, "w", encoding="utf-8") as file:
            file.write(text)


if __name__ == "__main__":
    main(sys.argv[1:])
