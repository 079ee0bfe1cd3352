#!/bin/sh
# The rule for public structs (docs/abi.md), over every struct that the header has: it begins with
# its size, no byte of it is padding, and its size is a multiple of 8. A field that filled padding
# later would lie where older callers have garbage. test_abi.c states what the layouts are, and
# test_newer_callers.c that flags and fields of a newer header are refused; both must have each
# struct, so nothing can be added to the header without them.
. "$(dirname "$0")/../lib.sh"

# An element of an array: the functions that take one are told its size.
without_size=specbatch_message

# plain FOLDER: FOLDER/specbatch.h without comments, macros and other headers, as one line.
plain() { sed '/^#include/d' "$1/specbatch.h" | $CC -E -P -x c - | tr '\n' ' '; }

# fields FOLDER: a line `STRUCT FIELD` for each field of the public structs in FOLDER/specbatch.h,
# in their order.
fields() {
    plain "$1" | sed 's/[{};]/&\n/g' | awk '
        /(struct|union)( [a-z_0-9]+)? *[{]$/ {
            if (!/typedef struct specbatch_[a-z_0-9]+ [{]$/) next
            struct = $(NF - 1)
            next
        }
        /^ *[}]/ { struct = ""; next }
        struct {
            n = /[(]/ ? 1 : split($0, part, ",") # a pointer to a function is alone
            for (i = 1; i <= n; i++) {
                name = /[(]/ ? $0 : part[i]
                sub(/^[^(]*[(][*]/, "", name)
                sub(/[)].*/, "", name)
                sub(/ *(\[.*)?;? *$/, "", name)
                sub(/.*[ *]/, "", name)
                print struct, name
            }
        }'
}

# findings FOLDER: what is wrong with the structs of FOLDER/specbatch.h.
findings() {
    # Every brace after `struct` or `union` must be one of those that were read.
    plain "$1" | grep -Eo '(typedef )?(struct|union)( [A-Za-z_0-9]+)? *[{]' |
        grep -vEx 'typedef struct specbatch_[a-z_0-9]+ [{]' |
        sed 's/$/: is not of the form typedef struct specbatch_NAME {/'
    fields "$1" | awk -v without_size="$without_size" '
        function must(condition, what) {
            print "_Static_assert(" condition ", \"" what "\");"
        }
        function finish() {
            if (!struct) return
            must("sizeof(" struct ") == " end, struct ": padding behind " field)
            must("sizeof(" struct ") % 8 == 0", struct ": the size is no multiple of 8")
        }
        BEGIN { print "#include \"specbatch.h\"" }
        $1 != struct {
            finish()
            struct = $1
            end = "0"
            if (struct != without_size) {
                must("offsetof(" struct ", struct_size) == 0", struct ": struct_size is not first")
                must("_Generic(((" struct " *)0)->struct_size, size_t: 1, default: 0)",
                     struct ": struct_size is no size_t")
            }
        }
        {
            field = $2
            must("offsetof(" struct ", " field ") == " end, struct ": padding before " field)
            end = "offsetof(" struct ", " field ") + sizeof ((" struct " *)0)->" field
        }
        END { finish() }' >"$tmp/rule.c"
    LC_ALL=C $CC -std=c11 -fsyntax-only -I"$1" "$tmp/rule.c" 2>&1 | sed -n 's/.*error: //p'
}

fields include >"$tmp/fields"
[ "$(cut -d' ' -f1 "$tmp/fields" | sort -u | wc -l)" -ge 11 ] || echo "too few structs" >"$tmp/out"
case $($CC -dM -E -x c /dev/null) in
    *__LP64__*) findings include >>"$tmp/out"; verdict abi_structs_follow_the_rule ;;
    *) echo "SKIP abi_structs_follow_the_rule: the rule is for machines with pointers of 64 bits" ;;
esac

# Every field is stated in test_abi.c, and every struct has its size there.
while read -r struct field; do
    grep -q "^SIZE($struct, " test/api/test_abi.c || echo "no SIZE($struct, ...) in test_abi.c"
    grep -q "^AT($struct, $field, " test/api/test_abi.c ||
        echo "no AT($struct, $field, ...) in test_abi.c"
done <"$tmp/fields" | sort -u >"$tmp/out"
verdict abi_every_field_is_stated

# Every struct that passes between program and library, all flags and all reserved fields have a
# line in test_newer_callers.c. Rows of a draft and of a mask are given by the library and not
# filled by a caller.
{
    cut -d' ' -f1 "$tmp/fields" | sort -u | grep -vx 'specbatch_\(draft\|mask\)_row'
    sed -n 's/^\([^ ]*\) \(.*flags\|.*reserved.*\)$/\1.\2/p' "$tmp/fields"
    plain include | tr ';' '\n' |
        sed -n 's/.*[ *]\(specbatch_[a-z_0-9]*\)(.*uint32_t [a-z_]*flags.*/\1/p'
} >"$tmp/taken"
while read -r name; do
    grep -q "{\"$name\"," test/api/test_newer_callers.c ||
        echo "no \"$name\" in test_newer_callers.c"
done <"$tmp/taken" >"$tmp/out"
[ "$(wc -l <"$tmp/taken")" -ge 17 ] || echo "too few structs and flags were found" >>"$tmp/out"
verdict abi_all_that_a_newer_program_may_set_is_tried

# What the rule forbids is found.
mkdir "$tmp/broken"
# broken WHAT SED_SCRIPT: a header that sed has changed has a finding with WHAT in it.
broken() {
    sed "$2" include/specbatch.h >"$tmp/broken/specbatch.h"
    cmp -s include/specbatch.h "$tmp/broken/specbatch.h" && echo "nothing was changed by: $2"
    findings "$tmp/broken" | grep -qF "$1" || echo "not found: $1"
}
new='/^\/\* -* audit/i'
{
    broken 'specbatch_pool_options: padding before queue_max' \
        's/^    int32_t policy; .*/&\n    int32_t inserted;/'
    broken 'specbatch_event: padding behind status' '/^    int32_t finish; .* its last event/d'
    broken 'specbatch_new: padding behind a' \
        "$new typedef struct specbatch_new { size_t struct_size; int32_t a; } specbatch_new;"
    broken 'specbatch_new: the size is no multiple of 8' \
        "$new typedef struct specbatch_new { int32_t struct_size; } specbatch_new;"
    broken 'specbatch_new: struct_size is no size_t' \
        "$new typedef struct specbatch_new { int32_t struct_size, a; } specbatch_new;"
    broken 'specbatch_new: struct_size is not first' \
        "$new typedef struct specbatch_new { int64_t a; size_t struct_size; } specbatch_new;"
    broken "no member named 'struct_size'" \
        "$new typedef struct specbatch_new { int64_t a; } specbatch_new;"
    broken 'is not of the form' "$new typedef struct { size_t struct_size; } specbatch_new;"
    broken 'is not of the form' "$new struct specbatch_new { size_t struct_size; };"
} >"$tmp/out"
verdict abi_the_rule_finds_what_it_forbids
