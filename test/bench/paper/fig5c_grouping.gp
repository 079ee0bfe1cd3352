# Figure 5c: rows that met others of their length and were not moved, exspec, W = 50, captions of Multi30k.
load "test/bench/paper/common.gp"
set title "exspec, grouping rate on Multi30k captions, W = 50"
set ylabel "percent of decoded rows"
set yrange [0:100]
plot csv("captions_random", "exspec") using "batch":(100.0 * column("group_rows") / column("decode_rows")) \
     ls 2 title "random lengths", \
     csv("captions_equal", "exspec") using "batch":(100.0 * column("group_rows") / column("decode_rows")) \
     ls 4 title "equal lengths"
