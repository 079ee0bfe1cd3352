/*
 * RMSNorm: y = x / sqrt(mean(x^2) + eps) * weight.
 *
 * Sixteen running sums, lane i over x[i], x[i + 16], ..., added by the fixed tree; sqrt and division are
 * correctly rounded, so no level may use the approximate reciprocal root. A short last vector is filled with
 * zeros, which add nothing to a sum of squares.
 */
#include "norm.h"

#include "level.h"

/* x, y [n], may be the same; weight [n] */
void SB_LEVEL(rmsnorm)(float *y, const float *x, const float *weight, int32_t n, float eps)
{
    norm_row(y, x, weight, n, eps);
}
