# What the ABI gate and the script that writes its baseline share. A script that includes this file
# has included test/lib.sh before. The baseline, test/data/abi, is of each version from 0.2 on
#   specbatch-X.Y.h      its header, without comments
#   specbatch-X.Y.map    its map
# Those of the present version follow include/specbatch.h and src/specbatch.map until a version has
# come behind it, and are never changed from then on. What abidw says of a library is not kept: it
# is twice as large, and all of it can be had from these two by compiling them.
abi=test/data/abi
defined() { sed -n "s/^.define SPECBATCH_$2  *//p" "$1"; }
version_of() { echo "$(defined "$1" VERSION_MAJOR).$(defined "$1" VERSION_MINOR)"; }
present() { echo "$abi/specbatch-$(version_of include/specbatch.h)"; }
headers() { $PYTHON test/api/abi_headers.py "$@"; }

# standin FOLDER: FOLDER/libspecbatch.so of FOLDER/specbatch.h and FOLDER/map, with debug
# information whatever flags the library itself is built with. Its functions do nothing, so what is
# behind the handles is not in it.
standin() {
    headers standin "$1/specbatch.h" >"$1/standin.c" &&
        $CC -g -O0 -shared -fPIC -I"$1" "$1/standin.c" -Wl,--version-script="$1/map" \
            -Wl,-soname,"libspecbatch.so.$(defined "$1/specbatch.h" SOVERSION)" \
            -o "$1/libspecbatch.so"
}
