# The real scheduler's time a round over batch size, arithmetic taken out (sched_sim), the queue
# kept full.
load "test/bench/paper/common.gp"
set title "Scheduling, time a round"
set ylabel "microseconds"
set logscale y
set xrange [4:8192]
set xtics (8, 64, 512, 4096)
full(m) = sprintf("< grep -e '^policy,' -e '^%s,[0-9]*,[0-9]*,full,' %s/sched.csv", m, dir)
plot for [i=1:5] full(word(methods, i)) using "batch":"sched_us" ls i \
     title word(methods, i), 2000 lc rgb "#999999" title "2 ms"
