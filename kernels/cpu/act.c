/* Operations on single elements: what a gate does to up (enum sb_gate), and soft caps. Lanes do not
 * mix, so the work may be cut anywhere. */
#include "level.h"
#include "math.h"

/* What GELU takes to the power of e: sqrt(8 / pi) (x + 0.044715 x^3). */
V_INLINE v16 gelu_exponent(v16 x)
{
    const v16 first = v_set1(SB_GELU_FIRST), third = v_set1(SB_GELU_THIRD);
    return v_mul(x, v_fma(v_mul(x, x), third, first));
}

/* gate / (1 + e^-u) * up, with u = gate for silu. Where u is very negative, e^-u is infinite, and
 * the quotient is -0 and not NaN. */
V_INLINE v16 gated_by(v16 gate, v16 u, v16 up)
{
    v16 e = v_exp(v_sub(v_set1(0.0f), u));
    return v_mul(v_div(gate, v_add(v_set1(1.0f), e)), up);
}

/* v_min and v_max return their second argument if it is a NaN, so NaNs stay. */
V_INLINE v16 gated(v16 gate, v16 up, const enum sb_gate kind)
{
    const v16 limit = v_set1(SB_CLAMPED_LIMIT), lowest = v_set1(-SB_CLAMPED_LIMIT);

    if (kind == SB_GATE_GELU)
        return gated_by(gate, gelu_exponent(gate), up);
    if (kind == SB_GATE_SILU)
        return gated_by(gate, gate, up);
    gate = v_min(limit, gate);
    up = v_max(lowest, v_min(limit, up));
    return gated_by(gate, v_mul(gate, v_set1(SB_CLAMPED_SLOPE)), v_add(up, v_set1(1.0f)));
}

static inline __attribute__((always_inline)) void gate_all(float *y, const float *gate,
                                                           const float *up, int64_t n,
                                                           const enum sb_gate kind)
{
    int64_t i;
    for (i = 0; i + V16 <= n; i += V16)
        v_store(y + i, gated(v_load(gate + i), v_load(up + i), kind));
    if (i < n)
        v_store_n(y + i, gated(v_load_n(gate + i, n - i), v_load_n(up + i, n - i), kind), n - i);
}

/* y, gate, up [n] */
void SB_LEVEL(gate)(float *y, const float *gate, const float *up, int64_t n, enum sb_gate kind)
{
    if (kind == SB_GATE_GELU)
        gate_all(y, gate, up, n, SB_GATE_GELU);
    else if (kind == SB_GATE_SILU)
        gate_all(y, gate, up, n, SB_GATE_SILU);
    else
        gate_all(y, gate, up, n, SB_GATE_CLAMPED);
}

void SB_LEVEL(soft_cap)(float *x, float cap, int64_t n)
{
    const v16 at = v_set1(cap);
    int64_t i;

    for (i = 0; i + V16 <= n; i += V16)
        v_store(x + i, v_soft_cap(v_load(x + i), at));
    if (i < n)
        v_store_n(x + i, v_soft_cap(v_load_n(x + i, n - i), at), n - i);
}
