#!/bin/sh
# Installs what the build needs and this machine lacks: `make setup` runs it, with CC and CXX set
# when the user chose other compilers. It installs by apt-get, so on Debian and Ubuntu only;
# elsewhere it says what is missing, and fails. With DEV=1 it also installs what checks use that are
# skipped without it; that this fails is no failure.
CC=${CC:-cc}
CXX=${CXX:-c++}
has_header() { echo "#include <$1>" | $CC -E - >/dev/null 2>&1; }

missing=
command -v $CC >/dev/null 2>&1 || missing="$missing gcc libc6-dev"
command -v $CXX >/dev/null 2>&1 || missing="$missing g++"
command -v make >/dev/null 2>&1 || missing="$missing make"
has_header yajl/yajl_parse.h || missing="$missing libyajl-dev"
# wants TOOL PACKAGES: with DEV=1, the packages that a tool is in.
wanted=
wants() {
    tool=$1
    shift
    [ -z "$DEV" ] || command -v "$tool" >/dev/null 2>&1 || wanted="$wanted $*"
}
wants python3 python3
wants pkg-config pkg-config
wants abidiff abigail-tools
wants mandoc mandoc
wants cargo cargo rustc
if [ -z "$missing$wanted" ]; then
    echo "setup: nothing is missing"
    exit 0
fi
echo "setup: missing:$missing$wanted"
if ! command -v apt-get >/dev/null 2>&1; then
    [ -n "$missing" ] || exit 0
    echo "setup: this is not Debian or Ubuntu (no apt-get); install by hand, with headers:"
    echo "setup: a C11 and a C++ compiler with binutils, and yajl 2"
    exit 1
fi

sudo=
[ "$(id -u)" = 0 ] || sudo=sudo
apt() {
    echo "setup: $sudo apt-get $*"
    $sudo env DEBIAN_FRONTEND=noninteractive apt-get -q "$@"
}
# install PACKAGES: a machine that has never fetched the lists of packages knows none of them. One
# whose lists are old may ask for files that the server no longer has.
install() {
    fetched=
    apt-cache show "$@" >/dev/null 2>&1 || { apt update && fetched=1; }
    apt install -y --no-install-recommends "$@" ||
        { [ -z "$fetched" ] && apt update && apt install -y --no-install-recommends "$@"; }
}
[ -z "$missing" ] || install $missing || exit 1
[ -z "$wanted" ] || install $wanted ||
    echo "setup: not installed:$wanted; the checks that use them are skipped"
