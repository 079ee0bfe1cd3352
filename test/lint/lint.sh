# What the scripts of the lint share: they source it, and it sources test/lib.sh. LINT_ROOT names
# another tree to look at, for check_lint_itself.sh and figures.sh.
. "$(dirname "$0")/../lib.sh"
here=$root/test/lint
cd "${LINT_ROOT:-$root}" || exit 1

# A tool that fails finds nothing, and must not pass for that: whatever it complains of is a fault.
complaints=${LINT_COMPLAINTS:-$tmp/complaints}
export LINT_COMPLAINTS="$complaints"
exec 2>>"$complaints"

# rule NAME: the rule holds if $tmp/out, the list of its faults, is empty.
rule() {
    cat "$complaints" >>"$tmp/out"
    : >"$complaints"
    verdict "lint_$1"
}

# sources EXTENSION...: the sources of the tree with these extensions.
sources() {
    find $(ls -d include src kernels examples pkgconfig test 2>/dev/null) -type f |
        grep -E "\.($(echo "$*" | tr ' ' '|'))\$" | LC_ALL=C sort
}
c_family='c h cc hpp cpp cu cuh'

# Generated data is nobody's reading, so its form is free; headers of earlier versions are such.
no_tables() {
    grep -Ev '_tables\.c$|^test/data/abi/'
}
