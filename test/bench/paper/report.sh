#!/bin/sh
# Writes the page docs/results.md from the CSV files of `make paper` to the standard output:
# report.sh DIR
# Times are left out if other programs had more than 5 % of the processors when they were taken. E
# and P, counts, and what is simulated do not depend on the load.
dir=$1
command=$(cat "$dir/command.txt") || exit 1
# fact NAME [RUN]: what DIR/RUN.txt says about NAME; RUN is machine unless given.
fact() { sed -n "s/^$1	//p" "$dir/${2:-machine}.txt"; }
# is_quiet RUN: 1 if this run's times may be shown, else 0. Those of a short trial may not either.
is_quiet() {
    awk -v others="$(fact others "$1")" -v quick="$(fact quick "$1")" \
        'BEGIN { print (others <= 5 && quick == 0) ? 1 : 0 }'
}
not_quiet() {
    echo "Not measured on a quiet machine yet: other programs had $(fact others "$1") % of the"
    echo "processors during the last run."
}
quiet=$(is_quiet machine)
have() { [ -s "$dir/$1.csv" ] && [ "$(wc -l <"$dir/$1.csv")" -gt 1 ]; }

# table FILE PROGRAM: runs an awk program over a CSV file, whose first line names the columns.
# f("tps") is this line's field of that name.
table() {
    file=$1
    shift
    awk -F, 'function f(name) { return $(h[name]) }
             NR == 1 { for (i = 1; i <= NF; i++) h[$i] = i; next } '"$1" "$dir/$file.csv"
}
# throughput FILE: tokens/s of every method at every B, and in brackets times plain's at the same B.
throughput() {
    echo
    echo "| tokens/s (times plain) | B = 1 | 2 | 4 | 8 | 16 | 32 | least E |"
    echo "|---|---|---|---|---|---|---|---|"
    table "$1" '{ m = f("method")
                  if (!(m in least)) { order[++n] = m; least[m] = f("E") }
                  if (f("E") + 0 < least[m] + 0) least[m] = f("E")
                  tps[m, f("batch")] = f("tps") }
                END { for (i = 1; i <= n; i++) {
                          m = order[i]
                          printf "| %s |", m
                          for (b = 1; b <= 32; b *= 2)
                              if ((m, b) in tps)
                                  printf " %.0f (%.2f) |", tps[m, b], tps[m, b] / tps["plain", b]
                              else
                                  printf " - |"
                          print " " least[m] " |" } }'
}
# The same in the classes that were measured beside F32, each with an E of its own: a class's
# outputs are compared with plain decoding at batch 1 in that class.
other_classes() {
    for class in auto bf16; do
        have $class/speed || continue
        printf '\n### In the class %s\n' "$(echo $class | tr a-z A-Z)"
        if [ "$(fact fingerprint $class/machine)" = "$(fact fingerprint)" ]; then
            echo "The table above: it is what AUTO chooses for this processor."
        elif [ "$(is_quiet $class/machine)" = 1 ]; then
            throughput $class/speed
            echo
            provenance $class/machine
        else
            not_quiet $class/machine
        fi
    done
}
# timed FILE...: whether the times of these files may be shown. If not, it writes why.
timed() {
    for file in "$@"; do
        if ! have "$file"; then
            echo "Not measured yet."
            return 1
        fi
    done
    [ "$quiet" = 1 ] && return 0
    not_quiet machine
    return 1
}
# provenance [RUN]: one line about where and how a run was made, and in which class.
provenance() {
    class_of_run=$(fact fingerprint "$1")
    echo "*$(fact machine "$1"); $(fact date "$1");" \
        "${class_of_run:-$(fact fingerprint)}; \`$command\`.*"
}
# kept HEADING: this section of the page that is there, which names its own machine and date. The
# peers are measured by another command than the rest, and seldom together with it.
kept() {
    awk -v heading="## $1" '/^## / { inside = $0 == heading; next }
                            inside { lines[++n] = $0 }
                            END { while (n && lines[n] == "") n--
                                  for (i = 1; i <= n; i++) print lines[i]
                                  if (!n) print "Not measured yet." }' docs/results.md
}
# figure NAME CAPTION
figure() {
    echo
    echo "![$2](figures/$1.svg)"
    echo
    echo "$2. $(provenance)"
}

cat <<EOF
# Results of \`make paper\`

Written by \`test/bench/paper/report.sh\` from what \`make paper\` measured; not edited by hand. The
demo pair (\`examples/demo\`), $(fact prompts) Spec-Bench prompts (\`$(fact prompts_file)\`, first
turns), greedy, K = 5, W = 48; 50 new tokens where outputs are compared, 128 where time is. E is the
share of requests whose tokens are exactly those of plain decoding at batch 1, P the mean share of
tokens before the first difference, both in percent. A figure is never shown for a method whose E is
not given here. "adaptive" is what a pool does unless told otherwise: ragged, with K chosen as it
runs, 5 at most; for all others K is fixed.

$(provenance)

## Table 1: equivalence
EOF
if have equivalence; then
    {
        table equivalence '{ print f("method"), f("batch"), f("E"), f("P") }'
        have faults && table faults '{ print f("method"), f("batch"), f("E"), f("P") }'
    } | awk '!($1 in seen) { seen[$1] = 1; order[++n] = $1 }
             { cell[$1, $2] = sprintf("%.1f / %.1f", $3, $4) }
             END {
                 paper["plain"] = "- ; 53.8-93.3 / 96.5-98.2"
                 paper["eqspec"] = "94.6-97.3 / 96.9-98.6; 92.1-96.5 / 95.7-98.6"
                 paper["exspec"] = "94.6-97.3 / 96.9-98.6; 90.8-95.2 / 97.1-97.7"
                 paper["DSD"] = "0.0-0.2 / 1.0-8.1; 0.0 / 0.6-2.2"
                 paper["BSP"] = "1.0-3.5 / 15.3-39.7; 0.2-2.1 / 8.1-31.3"
                 print "| E / P | B = 1 | B = 4 | B = 8 | B = 16 | the paper: B = 1; B = 4 |"
                 print "|---|---|---|---|---|---|"
                 for (i = 1; i <= n; i++) {
                     m = order[i]
                     printf "| %s |", m
                     for (b = 1; b <= 16; b = b == 1 ? 4 : 2 * b)
                         printf " %s |", ((m, b) in cell) ? cell[m, b] : "-"
                     print " " (m in paper ? paper[m] : "-") " |"
                 }
             }'
    cat <<'EOF'

The paper's figures are ranges over its three model pairs in fp16 on a GPU. DSD and BSP are
test-only re-creations of what the paper finds wrong with each (`test/bench/paper_faults.c`), on the
library built with deliberate faults: DSD takes its correction token from the draft, counts padding
as content and keeps stale entries; BSP masks rejected tokens but goes on counting them in
positions. `-`: not run.
EOF
else
    echo "Not measured yet."
fi

printf '\n## Table 2: anatomy at B = 4 and 8\n'
cat <<'EOF'
The paper's table is at B = 4: EQSPEC 95.6 tokens/s in 1469 verifications, EXSPEC 156.4 in 952. The
log of that EXSPEC run, in `analyze_group_rate.py` of its code (https://github.com/eBay/spec_dec),
has 40 of its 952 rounds grouped, 4.2 %: too few to explain its gain. Most of that is another
difference: EXSPEC replaces finished rows, and EQSPEC runs a batch until its last row ends.
eqspec-replace is EQSPEC with that alone (`SPECBATCH_POOL_EQSPEC_REPLACE`), here and in the
simulation below. exspec's rule of which rows a round takes is this library's own: the paper's
Algorithm 3 leaves it open, and its code takes whole groups of one padded length or, failing that,
the first rows of the window.

EOF
if timed speed; then
    printf '| | B | tokens/s | E | verifications | ms a verification |'
    echo " verify % | draft % | realign % | other % |"
    echo "|---|---|---|---|---|---|---|---|---|---|"
    table speed '(f("batch") == 4 || f("batch") == 8) && f("method") ~ /^e.spec/ {
        r = f("round_ns"); v = f("verify_ns"); d = f("draft_ns"); a = f("realign_ns")
        printf "| %s | %d | %s | %s | %d |", f("method"), f("batch"), f("tps"), f("E"),
               f("target_passes")
        printf " %.2f | %.1f | %.1f | %.2f | %.2f |\n", v / f("target_passes") / 1e6,
               100 * v / r, 100 * d / r, 100 * a / r, 100 * (r - v - d - a) / r }'
fi

printf '\n## Throughput and scaling (Figures 1, 5a, 6)\n'
if timed speed; then
    cat <<'EOF'
End to end, prompts included. Every cell is one run, the methods of a batch size one after the
other. On a shared machine single runs differ within minutes, mostly by a tenth or two and sometimes
by a third: smaller differences than that say nothing.
EOF
    throughput speed
    figure fig1_throughput "Tokens/s over batch size"
    figure fig5a_scaling "Tokens/s over batch size, each method against its own B = 1"
    figure fig6_concurrency "Speculative against plain decoding at equal concurrency"
    other_classes
fi

printf '\n## Realignment (Figure 5b)\n'
if timed speed; then
    echo "In decode rounds, those beside no prompt's chunk. [Equation 1](#equation-1) says how many"
    echo "rows they had: with few prompts and a large B they are the end of a run."
    echo
    echo "| | B | share of decode rounds, % | us a round | rows moved a round |"
    echo "|---|---|---|---|---|"
    table speed 'f("method") ~ /^e.spec/ {
        printf "| %s | %d | %.2f | %.1f | %.2f |\n", f("method"), f("batch"),
               100 * f("d_realign_ns") / f("d_round_ns"), f("d_realign_ns") / f("d_rounds") / 1e3,
               f("d_realigned_rows") / f("d_rounds") }'
    figure fig5b_overhead "Realignment's share and time a round over batch size"
fi

printf '\n## Grouping (Figure 5c)\n'
if have captions_random && have captions_equal; then
    cat <<'EOF'
exspec as the paper's script runs it (K = 5, W = 50, 50 new tokens, admitted by length), on 100
captions drawn at random and 100 cut to the mean length. Rounds: the share of rounds whose rows, two
or more, met without a move; the paper counts so. Rows: the share of rows that met others and were
not moved. Neither means anything without the rows a round has: small rounds are easily of one
column, and cost more than moves. No claim is made about the paper's Figure 5c, whose numbers are in
no text; its code groups by another key, whole batches only.

| prompts | B | grouped: rounds, % | rows, % | rows a round | least E |
|---|---|---|---|---|---|
EOF
    for kind in random equal; do
        table captions_$kind '{
            printf "| %s | %d | %.1f | %.1f | %.2f | %s |\n", "'$kind' lengths", f("batch"),
                   100 * f("group_rounds") / f("decode_rounds"),
                   100 * f("group_rows") / f("decode_rows"),
                   f("decode_rows") / f("decode_rounds"), f("E") }'
    done
    figure fig5c_grouping "exspec's grouping rates and rows a round over batch size"
else
    echo "Not measured yet."
fi

printf '\n## Equation 1\n'
if timed speed ablation; then
    cat <<'EOF'
Costs of a decode round, each row's share against plain decoding of a row at the same B; alpha is
the share of proposals accepted, the paper's S = alpha K / (c_draft + c_verify + c_overhead), which
leaves the target's own token out; a is the probability that one proposal is right, measured at K =
1, and E(a, K) = (1 - a^(K+1)) / (1 - a). Measured: tokens a second of decode rounds against
plain's. Rounds beside a prompt's chunk are left out. With few prompts and a large B those are most
rounds of policies that let newcomers in at once, and what is left is the end of the run: few rows
a round, and those of the longest answers, whose alpha need not be that of all.

EOF
    printf '| | B | rows a round | c_draft | c_verify | c_overhead | alpha | a |'
    echo " S, the paper's | S, exact E | measured |"
    echo "|---|---|---|---|---|---|---|---|---|---|---|"
    a=$(table ablation 'f("method") == "ragged" && f("draft_len") == 1 {
            print f("tokens_accepted") / f("tokens_drafted") }')
    table speed 'f("method") == "plain" { p[f("batch")] = f("d_round_ns") / f("d_decode_rows") }
        f("method") ~ /^(eqspec|eqspec-replace|exspec|ragged)$/ {
            a = '"$a"'; k = f("draft_len"); u = p[f("batch")] * f("d_decode_rows")
            d = f("d_draft_ns") / u; v = f("d_verify_ns") / u; all = f("d_round_ns") / u
            alpha = f("d_tokens_accepted") / f("d_tokens_drafted")
            printf "| %s | %d | %.1f |", f("method"), f("batch"),
                   f("d_decode_rows") / f("d_decode_rounds")
            printf " %.3f | %.3f | %.3f | %.3f | %.3f |", d, v, all - d - v, alpha, a
            printf " %.2f | %.2f | %.2f |\n", alpha * k / all, (1 - a ^ (k + 1)) / (1 - a) / all,
                   f("d_tokens_committed") / f("d_decode_rows") / all }'
fi

printf '\n## Draft length: ragged, eqspec, exspec at equal tokens\n'
if timed ablation; then
    plain=$(table ablation 'f("method") == "plain" { print f("tps") }')
    echo "tokens/s at B = 8 on 24 of the prompts; plain: $plain."
    echo
    echo "| K | 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8 |"
    echo "|---|---|---|---|---|---|---|---|---|"
    table ablation 'f("method") != "plain" {
            m = f("method")
            if (!(m in seen)) { seen[m] = 1; order[++n] = m }
            tps[m, f("draft_len")] = f("tps") }
        END { for (i = 1; i <= n; i++) {
                  printf "| %s |", order[i]
                  for (k = 1; k <= 8; k++) printf " %s |", tps[order[i], k]
                  print "" } }'
    figure ablation "Tokens/s over draft length at B = 8"
fi

printf '\n## Shape-true pairs\n'
if have pairs && [ -e "$dir/pairs.txt" ]; then
    cat <<'EOF'
Random weights in the shapes of the paper's three pairs, width / 8 and depth / 4 (1/256 of the
weights; `test/bench/shapes.sh`), and acceptance set by an oracle: the draft model runs all its
passes, and its proposals are then replaced by plain decoding's own tokens, each right with
probability a. 16 requests of 32 tokens; K = 5. c is a draft pass over a plain pass of the target, v
a verify pass over it, both as measured at that B. A cell: decode rounds' tokens/s, times plain at
the same B, and in brackets the limit E(a, K) / (1 + K c), which takes v for 1. `make bench-gpu` has
the full sizes.
EOF
    pairs_quiet=$(is_quiet pairs)
    [ "$pairs_quiet" = 1 ] || { echo; not_quiet pairs; }
    for pair in vicuna qwen3 glm4; do
        case $pair in
        vicuna) name="Vicuna-7B and 68M" ;;
        qwen3) name="Qwen3-8B and 0.6B" ;;
        glm4) name="GLM-4-9B and 0.6B" ;;
        esac
        printf '\n### %s\n' "$name"
        table pairs 'f("pair") == "'$pair'" {
                m = f("method"); b = f("batch"); a = f("accept") + 0; K = f("draft_len")
                if (f("E") + 0 < least || !n_lines++) least = f("E") + 0
                speed = 1e9 * f("d_tokens_committed") / f("d_round_ns")
                verify = f("d_verify_ns") / f("d_target_passes")
                if (m == "plain") { tps[b] = speed; pass[b] = verify; next }
                if (!(a in seen)) {
                    seen[a] = 1
                    as[++n] = a
                    kept[a] = f("tokens_committed") / f("decode_rows")
                    e[a] = (1 - a ^ (K + 1)) / (1 - a)
                }
                if (!((m, b) in row)) { row[m, b] = 1; rows[++r] = m SUBSEP b }
                c = f("d_draft_ns") / f("d_draft_passes") / pass[b]
                sum_c[m, b] += c
                sum_v[m, b] += verify / pass[b]
                cell[m, b, a] = sprintf("%.0f, %.2f (%.2f)", speed, speed / tps[b],
                                        e[a] / (1 + K * c))
            }
            END {
                printf "| | B | plain tokens/s | c | v |"
                for (i = 1; i <= n; i++) printf " a = %.1f |", as[i]
                printf "\n|---|---|---|---|---|"
                for (i = 1; i <= n; i++) printf "---|"
                printf "\n| tokens a row and round, measured (E) | | | | |"
                for (i = 1; i <= n; i++) printf " %.2f (%.2f) |", kept[as[i]], e[as[i]]
                print ""
                for (i = 1; '"$pairs_quiet"' && i <= r; i++) {
                    split(rows[i], k, SUBSEP)
                    printf "| %s | %d | %.0f | %.3f | %.2f |", k[1], k[2], tps[k[2]],
                           sum_c[rows[i]] / n, sum_v[rows[i]] / n
                    for (j = 1; j <= n; j++) printf " %s |", cell[rows[i], as[j]]
                    print ""
                }
                printf "\n%d runs; the least E of all: %.1f.\n", n_lines, least
            }'
    done
    echo
    provenance pairs | sed 's/; [^;]*; `/; random bf16 weights; `/'
else
    echo "Not measured yet."
fi

printf '\n## Peers\n'
if have peers && [ -e "$dir/peers.txt" ]; then
    cat <<EOF
The demo pair, $(fact prompts peers) Spec-Bench prompts (first turns), $(fact max_new peers) new
tokens at most, greedy, K = $(fact draft_len peers), $(fact threads peers) threads, everybody in one
run. E / P: each peer against *its own* plain output at batch 1 in the same arithmetic. "As ours"
compares its outputs with this library's plain ones in f32 (E): of the f32 rows it shows that the
weights are the same, and nobody promises it. Transformers' generate() runs a batch until its
longest row ends, the others replace finished rows. On a pair this small, overheads count for more
than arithmetic; with a big model they count for less.

EOF
    peers_quiet=$(is_quiet peers)
    [ "$peers_quiet" = 1 ] || { not_quiet peers; echo; }
    table peers '{ k = f("peer") SUBSEP f("method"); b = f("batch")
            if (!(b in is_b)) { is_b[b] = 1; bs[++nb] = b }
            if (!(k in is_k)) { is_k[k] = 1; ks[++nk] = k }
            ep[k, b] = f("E") " / " f("P"); tps[k, b] = f("tps"); note[k] = f("note")
            if (!(k in ours) || f("ours") + 0 < ours[k]) ours[k] = f("ours") + 0 }
        END {
            printf "| | |"
            for (i = 1; i <= nb; i++) printf " E / P, B = %d |", bs[i]
            printf " as ours, least |"
            for (i = 1; i <= nb; i++) printf " tokens/s, B = %d |", bs[i]
            printf " |\n|---|---|---|---|"
            for (i = 1; i <= 2 * nb; i++) printf "---|"
            print ""
            for (i = 1; i <= nk; i++) {
                split(ks[i], part, SUBSEP); printf "| %s | %s |", part[1], part[2]
                for (j = 1; j <= nb; j++)
                    printf " %s |", (ks[i], bs[j]) in ep ? ep[ks[i], bs[j]] : "-"
                printf " %.1f |", ours[ks[i]]
                for (j = 1; j <= nb; j++) {
                    shown = '"$peers_quiet"' && (ks[i], bs[j]) in tps
                    printf " %s |", shown ? tps[ks[i], bs[j]] : "-"
                }
                printf " %s |\n", note[ks[i]]
            } }'
    echo
    echo "Versions:"
    table peers '!(f("version") in seen) {
            seen[f("version")] = 1
            peer = f("peer")
            sub(/ [(].*/, "", peer)
            print "- " peer ": " f("version") }'
    fact missing peers | sed 's/^/- not run: /'
    echo
    echo "*$(fact machine peers); $(fact date peers); \`make peers\`, \`$(fact command peers)\`.*"
else
    kept Peers
fi

printf '\n## Peers on models of real sizes\n'
if [ -e "$dir/peers_speed.txt" ] && [ "$(is_quiet peers_speed)" = 1 ]; then
    cat "$dir/peers_speed.md"
elif [ -e "$dir/peers_speed.txt" ]; then
    not_quiet peers_speed
else
    kept "Peers on models of real sizes"
fi

printf '\n## The scheduler at scale\n'
if have sched; then
    cat <<'EOF'
The real pool over a backend that computes nothing: 40 requests for each of the B rows (1,000 at
least, 100,000 at most), prompts of 16-112 and 16-256 new tokens, K = 5, W = 6 B. What is grouped,
realigned and waited is simulated by the cost model that `test/bench/sched_sim.c` states (Qwen3-8B
with a 0.6B draft; a unit of time is one read of the target's weights, a proposal is right with
probability 0.8): with the queue kept full, then with Poisson arrivals at 0.9 of the rate that this
gave. At a B every policy has the same requests; "equal" prompts all have 64 tokens. Grouped: of the
rounds, those whose rows, two or more, met without a move; of the rows, those that met others and
were not moved. Realigned: of the time. Speed-up: over plain at the same B, the queue full.
eqspec-replace is eqspec with finished rows replaced at once: most of what exspec gains over eqspec
is that.

EOF
    printf '| policy | B | prompts | load | requests | rounds | rows a round |'
    printf ' grouped: rounds | rows | realigned | rows moved a round | MB moved a round |'
    echo ' speed-up | queue | wait: median | 99 % |'
    echo '|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|'
    table sched '
        function percent(share, shown) { return shown ? sprintf("%.1f %%", 100 * share) : "-" }
        f("policy") != "adaptive" {
            exspec = f("policy") == "exspec"
            printf "| %s | %d | %s | %s | %d |", f("policy"), f("batch"), f("prompts"), f("load"),
                   f("requests")
            printf " %d | %.2f | %s | %s |", f("rounds"), f("rows"),
                   percent(f("group_rounds"), exspec), percent(f("group_rows"), exspec)
            printf " %s | %.1f | %.1f |", percent(f("realign_share"), f("policy") ~ /^e.spec/),
                   f("realigned_rows"), f("realign_mb")
            printf " %.2f | %.0f | %.2f | %.2f |\n", f("speedup"), f("queue"), f("wait_p50"),
                   f("wait_p99")
        }'
    cat <<'EOF'

The scheduler's own time a round on this machine, in microseconds, the queue kept full. Scheduling
is a whole step but for what drafting and verifying report: admission, choosing rows and prompt
chunks, planning moves, committing, retiring. Building the passes, a table of every row's tokens, is
beside it. Rounds in which another program took the processor are left out; a request is its
submission and collection. "adaptive": ragged, K chosen by what these empty rounds take.

EOF
    if timed sched; then
        printf '| policy | B | W | prompts | scheduling: median | 99 %% |'
        echo ' building: median | 99 % | a request |'
        echo "|---|---|---|---|---|---|---|---|---|"
        table sched 'f("load") == "full" {
            printf "| %s | %d | %d | %s | %.1f | %.1f | %.1f | %.1f | %.1f |\n",
            f("policy"), f("batch"), f("window"), f("prompts"), f("sched_us"), f("sched_p99_us"),
            f("build_us"), f("build_p99_us"), f("event_us") }'
        figure scheduler "The scheduler at scale: time a round (real); grouping, realignment and \
queueing (simulated)"
    fi
else
    echo "Not measured yet."
fi

cat <<'EOF'

## GPU
`make paper` runs on the CPU. What an H100 has shown of the CUDA backend is in
[performance](performance.md#gpu), and so are kernels and end-to-end decoding on the CPU.
EOF
