# What the ABI gate and the script that writes its baseline share. A script that includes this file
# has included test/lib.sh before. The baseline, test/data/abi, is:
#   libspecbatch.abi     what abidw says of a library with the present header and map
#   specbatch-X.Y.h      the header of each version from 0.2 on, without comments. That of the
#                        present version follows include/specbatch.h until a version has come
#                        behind it, and is never changed from then on
abi=test/data/abi
defined() { sed -n "s/^.define SPECBATCH_$2  *//p" "$1"; }
version_of() { echo "$(defined "$1" VERSION_MAJOR).$(defined "$1" VERSION_MINOR)"; }
frozen() { echo "$abi/specbatch-$(version_of include/specbatch.h).h"; }
headers() { $PYTHON test/api/abi_headers.py "$@"; }

# standin FOLDER [SONAME]: FOLDER/libspecbatch.so of FOLDER/specbatch.h and FOLDER/map, with debug
# information whatever flags the library itself is built with. Its functions do nothing, so what is
# behind the handles is not in it.
standin() {
    headers standin "$1/specbatch.h" >"$1/standin.c" &&
        $CC -g -O0 -shared -fPIC -I"$1" "$1/standin.c" -Wl,--version-script="$1/map" \
            -Wl,-soname,"${2:-libspecbatch.so.$(defined "$1/specbatch.h" SOVERSION)}" \
            -o "$1/libspecbatch.so"
}

# described LIBRARY: what abidw says of it, without what neither abidiff nor a reader needs.
described() {
    abidw --no-corpus-path --no-comp-dir-path --no-show-locs --no-elf-needed --no-parameter-names \
        --no-write-default-sizes "$1" |
        sed -E "s/^ +//; s/ visibility='default(-visibility)?'//; s/ access='public'//
            s/type-id-([0-9]+)/t\1/g; s/ mangled-name='[^']*'//"
}
