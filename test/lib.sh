# What the test scripts share. A script test/FOLDER/check_NAME.sh begins with
#     . "$(dirname "$0")/../lib.sh"
# and is then in the root of the source tree, with these variables:
#   root           the full path of the source tree
#   tmp            an empty folder of its own, which is removed when the script ends
#   B              the build folder, relative to the root
#   CC CXX PYTHON  the compilers and the Python of `make check`, or the usual ones
#   SAN            the sanitizers of this build, if it has any
#   failed         1 once a verdict was FAIL, else 0
# A script prints a line `ok   NAME`, `FAIL NAME` or `SKIP NAME: WHY` for each of its tests, which
# test/run.sh counts.
root=$(cd "$(dirname "$0")/../.." && pwd)
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
# Not every shell runs that when a signal ends it.
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM
cd "$root" || exit 1
B=${B:-build/cpu}
CC=${CC:-cc}
CXX=${CXX:-g++}
PYTHON=${PYTHON:-python3}
failed=0
: >"$tmp/out"

# indented FILE: prints a file so that none of its lines counts as a test's.
indented() { sed 's/^/     /' "$1"; }

# verdict NAME [FINDINGS]: a test writes what it finds wrong into $tmp/out, or gives it here. If
# there is nothing, the test has passed; if not, it has failed, and the findings are printed. The
# file is then emptied.
verdict() {
    [ -z "$2" ] || printf '%s\n' "$2" >>"$tmp/out"
    if [ -s "$tmp/out" ]; then
        indented "$tmp/out"
        echo "FAIL $1"
        failed=1
    else
        echo "ok   $1"
    fi
    : >"$tmp/out"
}

# run_make ARGUMENTS...: runs make by itself, not as a part of the make that runs the tests.
run_make() { env -u MAKEFLAGS -u MFLAGS "${MAKE:-make}" -s "$@"; }

# take_kernels BUILD FOLDER: copies a build's kernels, which take longest to compile, into another
# build's folder, and prints the options with which make takes them as they are. What was made of
# others there is removed, since make would not make it anew.
take_kernels() {
    mkdir -p "$2" && rm -f "$2/internal.a" && cp -R "$1/kernels" "$2/" 2>/dev/null || return 0
    find "$2/kernels" -name '*.o' -exec echo -o {} \;
}

# slow NAME: ends the script with a SKIP, unless it is run by `make release-check`.
slow() {
    if [ -z "$RELEASE" ]; then
        echo "SKIP $1: make release-check runs it"
        exit
    fi
}
