"""Writes what specbatch-sys has of include/specbatch.h.

    python3 pkgconfig/rust/generate.py FOLDER

writes FOLDER/src/bindings.rs, the declarations, and FOLDER/tests/layout.rs, a test that structs
have the header's sizes and offsets in Rust. Both are committed in pkgconfig/rust/specbatch-sys, so
that nobody needs Python to build the crate; test/package/check_rust.sh runs this again and
compares. Comments are left out: the safe crate has its own, and the header is the manual.

What the header can say is read by pkgconfig/header.py. bindgen would need libclang, and its output
depends on the version of it.
"""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))

import header  # noqa: E402

SCALARS = {"char": "c_char", "float": "f32", "int32_t": "i32", "uint32_t": "u32", "int64_t": "i64",
           "uint64_t": "u64", "size_t": "usize"}
WIDTH = 100


def rust_type(type_):
    kind = type_["kind"]
    if kind == "void":
        return "c_void"
    if kind == "scalar":
        return SCALARS[type_["name"]]
    if kind == "pointer":
        to = type_["to"]
        return f"*{'const' if to.get('const') else 'mut'} {rust_type(to)}"
    if kind == "function":
        return function_type(type_)
    return type_["name"]


def result(returns):
    return "" if returns["kind"] == "void" else f" -> {rust_type(returns)}"


def params(function):
    return [f"{param['name']}: {rust_type(param['type'])}" for param in function["params"]]


def wrapped(indent, before, items, behind):
    """The items on the line if there is room, or else on lines of their own, as rustfmt does."""
    line = f"{indent}{before}({', '.join(items)}){behind}"
    if len(line) <= WIDTH:
        return [line]
    return [f"{indent}{before}(", *(f"{indent}    {item}," for item in items), f"{indent}){behind}"]


def function_type(function):
    """A function pointer on one line. In C any may be NULL, which is None here."""
    arguments = ", ".join(params(function))
    return f"Option<unsafe extern \"C\" fn({arguments}){result(function['returns'])}>"


def callback(item):
    line = f"pub type {item['name']} = {function_type(item)};"
    if len(line) <= WIDTH:
        return [line]
    return [f"pub type {item['name']} =", f"    {function_type(item)};"]


def field(item):
    """A field, whose function pointer is wrapped by rustfmt's rules if it is too long."""
    line = f"    pub {item['name']}: {rust_type(item['type'])},"
    if len(line) <= WIDTH:
        return [line]
    kind = item["type"]
    return [f"    pub {item['name']}: Option<",
            *wrapped("        ", "unsafe extern \"C\" fn", params(kind),
                     result(kind["returns"]) + ","),
            "    >,"]


def initial(struct):
    """The header's INIT: its fields that are not zero, but for the first, the size."""
    values = [value.strip() for value in struct["init"].strip("{} ").split(",")]
    if len(values) != len(struct["fields"]):
        sys.exit(f"{struct['name']}: its INIT has not as many values as it has fields")
    others = [f"{item['name']}: {value}" for item, value in zip(struct["fields"][1:], values[1:])
              if value not in ("0", "0.0f", "NULL")]
    return f"initial!({', '.join([struct['name'], *others])});"


def bindings(read):
    lines = ["// Written by pkgconfig/rust/generate.py from include/specbatch.h. Do not edit.", "",
             "use std::os::raw::{c_char, c_void};", ""]
    for item in read["constants"]:
        lines.append(f"pub const {item['name']}: {SCALARS[item['type']]} = {item['value']};")
    for item in read["handles"]:
        lines += ["", "#[repr(C)]", f"pub struct {item['name']} {{", "    _opaque: crate::Opaque,",
                  "}"]
    lines.append("")
    for item in read["callbacks"]:
        lines += callback(item)
    for struct in read["structs"]:
        lines += ["", "#[repr(C)]", "#[derive(Clone, Copy, Debug)]",
                  f"pub struct {struct['name']} {{"]
        for item in struct["fields"]:
            lines += field(item)
        lines.append("}")
        if struct["init"]:
            lines.append(initial(struct))
    lines += ["", "extern \"C\" {"]
    for function in read["functions"]:
        lines += wrapped("    ", f"pub fn {function['name']}", params(function),
                         result(function["returns"]) + ";")
    return lines + ["}"]


def layout(read):
    lines = ["// Written by pkgconfig/rust/generate.py from include/specbatch.h. Do not edit.",
             "//! Structs have the sizes and offsets of the header.", "",
             "use specbatch_sys::*;", "use std::mem::{size_of, MaybeUninit};", "",
             "/// Checks the size of a struct, and the offset of each field.",
             "macro_rules! layout {",
             "    ($name:ident, $size:literal, $($field:ident $offset:literal),+) => {{",
             "        assert_eq!(size_of::<$name>(), $size, stringify!($name));",
             "        let place = MaybeUninit::<$name>::uninit();",
             "        let start = place.as_ptr();",
             "        $(",
             "            // SAFETY: the field's address is taken, and nothing is read.",
             "            let field = unsafe { std::ptr::addr_of!((*start).$field) };",
             "            let offset = field as usize - start as usize;",
             "            let name = concat!(stringify!($name), \".\", stringify!($field));",
             "            assert_eq!(offset, $offset, \"{name}\");",
             "        )+",
             "    }};",
             "}", "", "#[test]", "#[rustfmt::skip]", "fn structs_have_the_headers_layout() {"]
    for struct in read["structs"]:
        lines.append(f"    layout!({struct['name']}, {struct['size']},")
        line = "       "
        for i, item in enumerate(struct["fields"]):
            last = i + 1 == len(struct["fields"])
            word = f" {item['name']} {item['offset']}{');' if last else ','}"
            if len(line) + len(word) > WIDTH:
                lines.append(line)
                line = "       "
            line += word
        lines.append(line)
    lines += ["}", "", "#[test]", "fn the_library_has_the_headers_version() {",
              "    // SAFETY: both functions take nothing and may be called at any time.",
              "    unsafe {",
              "        assert!(specbatch_version() >= SPECBATCH_VERSION_NUMBER);",
              "        assert_eq!(specbatch_abi_version(), SPECBATCH_SOVERSION);",
              "    }", "}"]
    return lines


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    root = os.path.dirname(os.path.dirname(HERE))
    read = header.read(os.path.join(root, "include", "specbatch.h"))
    for path, lines in (("src/bindings.rs", bindings(read)), ("tests/layout.rs", layout(read))):
        path = os.path.join(sys.argv[1], path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="ascii") as out:
            out.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
