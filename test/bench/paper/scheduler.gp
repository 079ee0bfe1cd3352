# The scheduler at scale, from sched_sim: the real time of a round's scheduling with the queue kept
# full, and grouping, realignment and queueing as its cost model simulates them.
load "test/bench/paper/common.gp"
set multiplot layout 2,2
set xrange [0.7:6000]
set xtics (1, 4, 16, 64, 512, 4096)
line(m, load) = sprintf("< grep -e '^policy,' -e '^%s,[0-9]*,[0-9]*,%s,' %s/sched.csv", m, load, dir)
full = "mixed,full"
set key inside left top
set title "Scheduling, 99 % of rounds"
set ylabel "microseconds"
set logscale y
set yrange [0.1:1e6]
set format y "%.10g" # 1000000, where gnuplot would write a power that is too high for its line
plot for [i=1:4] line(word(methods, i), full) using "batch":"sched_p99_us" ls i title word(methods, i), \
     2000 lc rgb "#999999" title "2 ms"
set key right top
set yrange [*:*]
set title "Wait in the queue, 99 % of requests, load 0.9"
set ylabel "reads of the weights"
plot for [i=1:4] line(word(methods, i), "mixed,0.9") using "batch":"wait_p99" ls i title word(methods, i)
unset logscale y
set yrange [0:100]
set key center bottom
set title "exspec: grouped, and how full rounds are"
set ylabel "percent"
plot line("exspec", full) using "batch":(100.0 * column("group_rows")) ls 3 title "rows", \
     line("exspec", full) using "batch":(100.0 * column("group_rounds")) ls 3 dt 2 title "rounds", \
     line("exspec", "equal,full") using "batch":(100.0 * column("group_rows")) ls 4 title "rows, prompts equal", \
     line("exspec", full) using "batch":(100.0 * column("rows") / column("batch")) ls 1 title "places taken"
set key left top
set yrange [0:*]
set title "Realignment, share of simulated time, queue full"
plot for [i in "2 3 7"] line(word(methods, i + 0), full) using "batch":(100.0 * column("realign_share")) \
     ls (i + 0) title word(methods, i + 0)
unset multiplot
