/*
 * The counters of a pool. This one list gives their enum, their names and their number;
 * docs/stats.md explains each of them. If you add a counter, append it, and explain it there.
 */
#ifndef SB_STATS_H
#define SB_STATS_H

#include <stdint.h>

/* clang-format off */
#define SB_STATS(X)       \
    X(rounds)             \
    X(target_passes)      \
    X(draft_passes)       \
    X(decode_rows)        \
    X(prefill_tokens)     \
    X(tokens_committed)   \
    X(tokens_drafted)     \
    X(tokens_accepted)    \
    X(group_rows)         \
    X(mixed_rows)         \
    X(realigned_rows)     \
    X(realign_bytes)      \
    X(realign_ns)         \
    X(draft_ns)           \
    X(verify_ns)          \
    X(round_ns)           \
    X(requests_finished)  \
    X(cache_bytes)        \
    X(work_bytes)         \
    X(plain_rounds)       \
    X(probe_rounds)       \
    X(decode_rounds)      \
    X(group_rounds)       \
    X(newcomer_rows)      \
    X(moved_bytes)        \
    X(preemptions)        \
    X(cache_columns)      \
    X(prefix_hits)        \
    X(prefix_tokens)      \
    X(prefix_evictions)   \
    X(prefix_blocks)      \
    X(target_bytes)       \
    X(draft_bytes)        \
    X(kv_reserved_bytes)  \
    X(prefix_bytes)       \
    X(kv_live_bytes)      \
    X(kv_live_peak_bytes) \
    X(activation_bytes)   \
    X(logits_bytes)       \
    X(table_bytes)        \
    X(request_bytes)      \
    X(tokens_forced)      \
    X(shared_prompts)     \
    X(shared_tokens)
/* clang-format on */

#define SB_STAT_ENUM(name) SB_STAT_##name,
enum sb_stat { SB_STATS(SB_STAT_ENUM) SB_N_STATS };
#undef SB_STAT_ENUM

/* The name of a counter, or NULL when the index is out of range. */
const char *sb_stat_name(int32_t index);
/* The index of a counter by its name. E_NOT_FOUND. */
int32_t sb_stat_by_name(const char *name);

#endif
