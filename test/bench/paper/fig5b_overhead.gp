# Figure 5b: realignment, as a share of the time of decode rounds and in time a round. d_: sums over
# decode rounds alone.
load "test/bench/paper/common.gp"
set multiplot layout 1,2
set key inside left top
set title "Realignment, share of decode rounds"
set ylabel "percent"
set yrange [0:*]
plot for [i=2:4] csv("speed", word(methods, i)) \
     using "batch":(100.0 * column("d_realign_ns") / column("d_round_ns")) ls i title word(methods, i)
set title "Realignment, time a round"
set ylabel "microseconds"
plot for [i=2:4] csv("speed", word(methods, i)) \
     using "batch":(column("d_realign_ns") / column("d_rounds") / 1000.0) ls i title word(methods, i)
unset multiplot
