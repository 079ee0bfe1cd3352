#!/bin/sh
# What a release has to pass, and CI is too short for: `make release-check`, hours in all. Each item
# is a line of the list below: its name, a tool without which it is skipped, and what it runs.
#
#   make release-check ITEMS="soak deb"      these items alone
#   make release-check MINUTES=60            of each fuzz target (10)
#   make release-check REQUESTS=1000000      of the soak (100000)
#
# An item's output goes to build/release/NAME.log. A line tells how it ended, how long it took, and
# the last line of its output; the same lines are in build/release/summary.txt.
cd "$(dirname "$0")/.." || exit 1
out=build/release
mkdir -p $out && : >$out/summary.txt || exit 1
failed=0

# As a make of its own: with as many jobs as processors, and without lines about folders.
mk() { env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL "${MAKE:-make}" "$@"; }

# valgrind emulates no AVX-512, so these run at the level below.
under_valgrind() {
    programs="ground/test_json ground/test_hash ground/test_options text/test_chat
              model/test_safetensors sched/test_slots api/test_stream api/test_events"
    mk CUDA=0 $(for program in $programs; do echo build/cpu/test/$program; done) || return 1
    for program in $programs; do
        echo "$program"
        B=build/cpu valgrind -q --error-exitcode=9 --leak-check=full build/cpu/test/$program ||
            return 1
    done
}

# The same commit gives the same archive, which builds and runs. Its bill follows CycloneDX's schema
# where cyclonedx-python-lib can be asked.
distribution() {
    rm -rf $out/dist && mk dist && cp -R build/dist $out/dist && mk dist &&
        (cd build/dist && sha256sum -c ./*.sha256) && diff -r build/dist $out/dist || return 1
    tar -xzf $out/dist/*.tar.gz -C $out/dist && (cd $out/dist/*/ && mk CUDA=0 demo) || return 1
    "${PYTHON:-python3}" - build/dist/*.cdx.json <<'END'
import json, sys
text = open(sys.argv[1]).read()
json.loads(text)
try:
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator
    wrong = JsonStrictValidator(SchemaVersion.V1_5).validate_str(text)
except ImportError:
    wrong = None
    print("no cyclonedx-python-lib with json-validation here: the bill is JSON")
sys.exit(str(wrong) if wrong else 0)
END
}

soak() {
    mk CUDA=0 build/cpu/test/bench/soak &&
        build/cpu/test/bench/soak --requests "${REQUESTS:-100000}" --drain 200
}

peers() {
    [ -x build/peers-venv/bin/python ] || { echo "make setup-peers has not been run"; return 77; }
    mk peers QUICK=1
}

# item NAME TOOL COMMAND...: a command that exits with 77 skips its item.
item() {
    name=$1 tool=$2
    shift 2
    case " ${ITEMS:-$name} " in *" $name "*) ;; *) return ;; esac
    began=$(date +%s)
    if ! command -v "$tool" >/dev/null 2>&1; then
        status=77
        echo "no $tool here" >"$out/$name.log"
    else
        "$@" >"$out/$name.log" 2>&1 </dev/null
        status=$?
    fi
    case $status in
    0) word="ok  " ;;
    77) word=SKIP ;;
    *) word=FAIL failed=$((failed + 1)) ;;
    esac
    printf '%s %-10s %6d s  %s\n' "$word" "$name" $(($(date +%s) - began)) \
        "$(tail -n 1 "$out/$name.log")" | tee -a $out/summary.txt
}

# The whole suite with all that `make check` leaves out, and for every architecture of CUDA.
item check     make      mk check DEV=1 RELEASE=1
item address   make      mk check SAN=address,undefined
item thread    make      mk check SAN=thread
item valgrind  valgrind  under_valgrind
item fuzz      clang     mk fuzz MINUTES="${MINUTES:-10}"
item soak      make      soak
item dist      git       distribution
item deb       lintian   mk deb
item peers     make      peers

for word in $ITEMS; do
    grep -q "^.... $word " $out/summary.txt && continue
    echo "FAIL $word: there is no such item" | tee -a $out/summary.txt
    failed=$((failed + 1))
done
echo "$(grep -c '^ok' $out/summary.txt) passed, $failed failed," \
    "$(grep -c '^SKIP' $out/summary.txt) skipped; $out/summary.txt" | tee -a $out/summary.txt
[ $failed -eq 0 ]
