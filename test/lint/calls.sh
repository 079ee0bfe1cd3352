#!/bin/sh
# What the library may not call, and how its kernels are launched.
. "$(dirname "$0")/lint.sh"

# Comments and strings are taken out before calls are looked for.
sources c h cu cuh | grep -E '^(src|kernels)/' | xargs awk '
    { gsub(/"([^"\\]|\\.)*"/, "\"\""); gsub(/\/\*([^*]|\*[^\/])*\*\//, ""); sub(/\/\/.*/, "") }
    FNR == 1 { inside = 0 }
    inside { if (!/\*\//) next; sub(/.*\*\//, ""); inside = 0 }
    /\/\*/ { sub(/\/\*.*/, ""); inside = 1 }
    { print FILENAME ":" FNR ":" $0 }' >"$tmp/code"
banned='printf|fprintf|vprintf|vfprintf|puts|fputs|putchar|perror|abort|exit|_exit|atexit|assert'
banned="$banned|getenv|setenv|setlocale|signal|sigaction|mmap|system|rand|atoi|atol|atof|gets"
banned="$banned|strcpy|strcat|sprintf|vsprintf|strtok|alloca|qsort"
memory='malloc|calloc|realloc|free|aligned_alloc|posix_memalign|strdup|strndup'
grep -E "[^a-z_0-9>.]($banned) *\(" "$tmp/code" >"$tmp/out"
grep -E "[^a-z_0-9>.]($memory) *\(" "$tmp/code" |
    grep -v '^src/alloc\.c:' | grep -vE '\(\*free\)|^kernels/.*->free' >>"$tmp/out"
rule no_banned_calls_in_the_library

awk -f "$here/launch_bounds.awk" $(sources cu cuh | grep '^kernels/') /dev/null >"$tmp/out"
rule blocks_are_those_of_launch_bounds
exit $failed
