#!/bin/sh
# What fits on a screen: lines of 100 columns, functions of 80 lines, files of 800, in every
# language of the tree. A public header is one file by design, with its manual: it may have 1600.
. "$(dirname "$0")/lint.sh"
sources $c_family | no_tables >"$tmp/c"
sources py >"$tmp/py"
sources sh >"$tmp/sh"
{ sources mk awk; ls Makefile .ci/run 2>/dev/null; } >"$tmp/other"
cat "$tmp/c" "$tmp/py" "$tmp/sh" "$tmp/other" >"$tmp/all"

# Of specbatch.h most is comments, for it is the reference manual too; specbatch.hpp has a function
# for each of its functions.
awk '{ most = FILENAME ~ /^include\/specbatch[.](h|hpp)$/ ? 1600 : 800 }
     FNR == most + 1 { print FILENAME ": more than " most " lines" }' $(cat "$tmp/all") >"$tmp/out"
rule files_of_at_most_800_lines

# Columns are characters: the bytes that continue one in UTF-8 do not count.
LC_ALL=C awk 'length > 100 {
         line = $0
         gsub(/[\200-\277]/, "", line)
         if (length(line) > 100)
             print FILENAME ":" FNR ": " length(line) " columns, the limit is 100"
     }' $(cat "$tmp/all") >"$tmp/out"
rule lines_of_at_most_100_columns

# In C, C++, CUDA and shell a `}` of the same indentation closes what `{` alone on a line, or the
# head of a shell function, has opened. A struct or a namespace looks the same and is no function.
closed='
    function indent(line) { match(line, /^ */); return RLENGTH }
    FNR == 1 { split("", start) }
    opens() { start[indent($0)] = FNR; name[indent($0)] = shell ? $0 : previous }
    /^ *[}]/ && indent($0) in start {
        lines = FNR - start[indent($0)] - 1
        if (lines > 80) print FILENAME ": " lines " lines in " name[indent($0)]
        delete start[indent($0)]
    }
    { previous = $0 }'
awk "$closed"'
    function opens() {
        return /^ *[{]$/ && previous !~ /^ *(struct|union|enum|class|namespace|extern)( |$)/
    }' $(cat "$tmp/c") >"$tmp/out"
awk "$closed"'
    function opens() {
        return /^ *[a-z_A-Z0-9]+\(\) *[{]$/
    }' shell=1 $(cat "$tmp/sh") /dev/null >>"$tmp/out"
# In Python a function ends before the next line that is indented no deeper and not inside a string
# of several lines.
awk 'function finish(depth) {
         for (; open && at[open] >= depth; open--)
             if (last - start[open] > 80) print file ": " last - start[open] " lines in " name[open]
     }
     FNR == 1 { finish(0); file = FILENAME; text = 0 }
     /[^ ]/ && !text && !/^ *[#)\]}]/ {
         match($0, /^ */)
         finish(RLENGTH)
         if (/^ *(async )?def /) { at[++open] = RLENGTH; start[open] = FNR; name[open] = $0 }
     }
     /[^ ]/ { last = FNR }
     { quotes = gsub(/"""|'"'''"'/, ""); text = (text + quotes) % 2 }
     END { finish(0) }' $(cat "$tmp/py") /dev/null >>"$tmp/out"
rule functions_of_at_most_80_lines
exit $failed
