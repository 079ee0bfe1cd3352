/* The median of measured times, which other programs on the machine disturb less than a mean. */
#ifndef BENCH_MEDIAN_H
#define BENCH_MEDIAN_H

/* Sorts the n values, 1 or more, and returns the middle one; of two, the larger. */
double median(double *values, int n);

#endif
