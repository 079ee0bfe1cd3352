#!/bin/sh
# `make install` puts the right files into a staging folder, and `make uninstall` removes them. In
# between, examples/minimal.c is compiled against them and runs: with what pkg-config says and with
# CMake, with the shared library and with the archive. The folder is moved before that, because an
# installed tree may be.
. "$(dirname "$0")/../lib.sh"

if [ -n "$SAN" ]; then
    echo "SKIP install: a sanitized build is not for installation"
    exit
fi
defined() { sed -n "s/^.define SPECBATCH_$1  *//p" include/specbatch.h; }
version=$(defined VERSION_MAJOR).$(defined VERSION_MINOR).$(defined VERSION_PATCH)

# A module of an earlier build must not outlive one without a module.
mkdir -p "$tmp/stage/opt/sb/lib"
echo old >"$tmp/stage/opt/sb/lib/libspecbatch_cuda.so"
run_make install DESTDIR="$tmp/stage" PREFIX=/opt/sb >"$tmp/log" 2>&1 || cat "$tmp/log" >"$tmp/out"
(cd "$tmp/stage" && find . ! -type d | sort) >"$tmp/files"
{
    echo ./opt/sb/include/specbatch.h
    echo ./opt/sb/include/specbatch.hpp
    echo ./opt/sb/lib/libspecbatch.a
    echo ./opt/sb/lib/libspecbatch.so
    echo "./opt/sb/lib/libspecbatch.so.$(defined SOVERSION)"
    echo "./opt/sb/lib/libspecbatch.so.$version"
    [ "$CUDA" = 0 ] || [ ! -e "$B/libspecbatch_cuda.so" ] || echo ./opt/sb/lib/libspecbatch_cuda.so
    echo ./opt/sb/lib/cmake/specbatch/specbatch-config.cmake
    echo ./opt/sb/lib/cmake/specbatch/specbatch-config-version.cmake
    echo ./opt/sb/lib/pkgconfig/specbatch.pc
    for name in bench chat generate quantize table; do
        echo "./opt/sb/bin/specbatch-$name"
        echo "./opt/sb/share/man/man1/specbatch-$name.1"
    done
    echo ./opt/sb/share/man/man3/specbatch.3
} | sort | diff - "$tmp/files" >>"$tmp/out"
verdict install_puts_the_right_files_under_destdir
[ $failed = 0 ] || exit

# What lies beside the library stays, the folders that others use too among it.
cp -R "$tmp/stage" "$tmp/gone"
echo mine | tee "$tmp/gone/opt/sb/include/mine.h" >"$tmp/gone/opt/sb/lib/pkgconfig/mine.pc"
run_make uninstall DESTDIR="$tmp/gone" PREFIX=/opt/sb >"$tmp/log" 2>&1 || cat "$tmp/log" >"$tmp/out"
(cd "$tmp/gone" && find . ! -type d | sort) >"$tmp/files"
printf './opt/sb/%s\n' include/mine.h lib/pkgconfig/mine.pc | diff - "$tmp/files" >>"$tmp/out"
[ ! -e "$tmp/gone/opt/sb/lib/cmake/specbatch" ] || echo "an empty folder is left" >>"$tmp/out"
verdict uninstall_removes_what_install_put_there

mv "$tmp/stage/opt/sb" "$tmp/moved"
lib=$tmp/moved/lib

# The programs find the library from where they are.
echo '{"prompt": "It was"}' >"$tmp/prompts"
env -u LD_LIBRARY_PATH "$tmp/moved/bin/specbatch-generate" --target examples/demo/target \
    --draft examples/demo/draft --prompts "$tmp/prompts" --max-new 4 >"$tmp/log" 2>&1 &&
    grep -q '"text"' "$tmp/log" || cat "$tmp/log" >"$tmp/out"
verdict install_has_programs_that_run_where_they_are_moved_to
for name in generate chat bench quantize table; do
    "$tmp/moved/bin/specbatch-$name" --help | grep -q "^specbatch-$name " &&
        "$tmp/moved/bin/specbatch-$name" --nothing 2>&1 | grep -q "^specbatch-$name: unknown" ||
        echo "specbatch-$name has another name for itself" >>"$tmp/out"
done
verdict install_has_programs_that_know_their_names

# runs PROGRAM: it generates text with the demo pair.
runs() {
    LD_LIBRARY_PATH="$lib" "$1" examples/demo/target examples/demo/draft "It was" \
        >"$tmp/log" 2>&1 && grep -q 'target passes' "$tmp/log" || cat "$tmp/log" >>"$tmp/out"
}
# build_and_run FLAGS...: minimal.c compiled with these flags runs.
build_and_run() {
    $CC -std=c11 examples/minimal.c "$@" -o "$tmp/minimal" >"$tmp/log" 2>&1 &&
        runs "$tmp/minimal" || cat "$tmp/log" >>"$tmp/out"
}
needs() { readelf -d "$1" | grep NEEDED; }

if command -v cmake >/dev/null 2>&1; then
    mkdir "$tmp/project"
    cat >"$tmp/project/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.13)
project(consumer C)
find_package(specbatch ${WANTED} REQUIRED COMPONENTS specbatch static OPTIONAL_COMPONENTS other)
if(specbatch_other_FOUND)
    message(FATAL_ERROR "there is no such component")
endif()
foreach(kind specbatch static)
    add_executable(with_${kind} ${MINIMAL})
    target_link_libraries(with_${kind} specbatch::${kind})
endforeach()
END
    # configure VERSION [OPTIONS]...: in a folder named after it.
    configure() {
        wanted=$1
        shift
        CC=$CC cmake -S "$tmp/project" -B "$tmp/project/$wanted" "$@" \
            -DCMAKE_PREFIX_PATH="$tmp/moved" -DMINIMAL="$root/examples/minimal.c" \
            -DWANTED="$wanted" >"$tmp/log" 2>&1
    }
    configure "$version" && cmake --build "$tmp/project/$version" >"$tmp/log" 2>&1 ||
        cat "$tmp/log" >"$tmp/out"
    for kind in specbatch static; do runs "$tmp/project/$version/with_$kind"; done
    needs "$tmp/project/$version/with_static" | grep libspecbatch >>"$tmp/out"
    verdict install_links_in_a_cmake_project
    # 0.1 had another soname, and another interface.
    for wrong in 99.0 "$(defined VERSION_MAJOR).99" 0.1; do
        configure "$wrong" && echo "version $wrong was found" >>"$tmp/out"
        grep -q 'version: ' "$tmp/log" || cat "$tmp/log" >>"$tmp/out"
    done
    verdict install_cmake_refuses_another_version

    # Without yajl there is no archive to link with, which whoever asks for it is told.
    configure "$version" -DSPECBATCH_YAJL=NOTFOUND -DCMAKE_FIND_LIBRARY_SUFFIXES=.none &&
        echo "an archive without yajl was found" >>"$tmp/out"
    grep -q 'specbatch: no component static' "$tmp/log" || cat "$tmp/log" >>"$tmp/out"
    verdict install_cmake_refuses_a_component_that_is_not_there

    # accepts ANSWER VERSION VARIABLES...: what the version file says of a request for this version,
    # with the variables by which CMake tells it the rest.
    accepts() {
        answer=$1 asked=$2
        shift 2
        {
            for set in "$@"; do echo "set($set)"; done
            echo "set(PACKAGE_FIND_VERSION $asked)"
            echo "include(\"$lib/cmake/specbatch/specbatch-config-version.cmake\")"
            echo 'message("${PACKAGE_VERSION_COMPATIBLE} ${PACKAGE_VERSION_UNSUITABLE}")'
        } >"$tmp/ask.cmake"
        got=$(cmake -P "$tmp/ask.cmake" 2>&1)
        [ "$got" = "$answer" ] || echo "$asked $*: '$got', not '$answer'" >>"$tmp/out"
    }
    accepts 'TRUE ' "$version"
    accepts 'TRUE ' 0.2 'CMAKE_SIZEOF_VOID_P 8'
    accepts 'TRUE TRUE' 0.2 'CMAKE_SIZEOF_VOID_P 4'
    range="PACKAGE_FIND_VERSION_RANGE TRUE"
    accepts 'TRUE ' 0.2 "$range" 'PACKAGE_FIND_VERSION_MAX 99'
    accepts 'TRUE ' 0.2 "$range" "PACKAGE_FIND_VERSION_MAX $version"
    accepts 'FALSE ' 0.2 "$range" "PACKAGE_FIND_VERSION_MAX $version" \
        'PACKAGE_FIND_VERSION_RANGE_MAX EXCLUDE'
    accepts 'FALSE ' 0.2 "$range" 'PACKAGE_FIND_VERSION_MAX 0.1.9'
    accepts ' ' 0.1
    verdict install_cmake_knows_ranges_of_versions_and_the_size_of_pointers
else
    echo "SKIP install_cmake: no cmake here"
fi

if ! command -v pkg-config >/dev/null 2>&1; then
    echo "SKIP install_pkg_config: no pkg-config here"
    exit
fi
export PKG_CONFIG_PATH="$lib/pkgconfig"
[ "$(pkg-config --modversion specbatch)" = "$version" ] ||
    echo "pkg-config says $(pkg-config --modversion specbatch), the header $version" >"$tmp/out"
verdict install_pkg_config_knows_the_version
build_and_run $(pkg-config --cflags --libs specbatch)
needs "$tmp/minimal" | grep -q libspecbatch.so || echo "it does not need the library" >>"$tmp/out"
needs "$tmp/minimal" | grep yajl >>"$tmp/out"
verdict install_links_the_shared_library
rm -f "$lib"/*.so*
build_and_run $(pkg-config --cflags specbatch) $(pkg-config --static --libs specbatch)
verdict install_links_the_static_library

# A program without any shared library. Debian calls yajl's archive libyajl_s.a, which its yajl.pc
# does not say.
yajl=-lyajl
[ -e "$($CC -print-file-name=libyajl.a)" ] || yajl=-lyajl_s
if ! echo 'int main(void) { return 0; }' | $CC -static -x c - $yajl -o "$tmp/p" 2>/dev/null; then
    echo "SKIP install_links_a_fully_static_program: no static C library, or yajl"
    exit
fi
build_and_run -static $(pkg-config --cflags specbatch) \
    $(pkg-config --static --libs specbatch | sed "s/-lyajl/$yajl/g")
needs "$tmp/minimal" >>"$tmp/out"
verdict install_links_a_fully_static_program
