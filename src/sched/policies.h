/*
 * The policies: what one is, and the list of them.
 *
 * To add a policy: a constant in include/specbatch.h, a file policy_*.c that defines its struct
 * sb_policy, and a line in SB_POLICIES. All that differs between policies is in that struct, so
 * nothing else in the library asks which policy a pool has.
 */
#ifndef SB_POLICIES_H
#define SB_POLICIES_H

#include <stdint.h>

struct sb_sched;

/* How many residents a pool keeps under a policy. */
enum sb_kept_slots {
    SB_SLOTS_BATCH, /* B */
    SB_SLOTS_SPARE, /* B and a spare for every eight rows or part of them (pool/create.c) */
    SB_SLOTS_WINDOW /* W, the option `window` */
};

struct sb_policy {
    const char *name;
    enum sb_kept_slots slots;
    int32_t speculates;    /* 0: K is 0, whatever the options say */
    int32_t grouped;       /* it asks residents.h for rows by column */
    int32_t realigns;      /* rows may start in another column than 0 */
    int32_t ends_together; /* after a round all residents that have run end in one column, unless
                              the pool lets newcomers in meanwhile (limits.replace) */
    /* Whether a queued request may take a free slot now. */
    int (*admits)(const struct sb_sched *sched);
    /* Takes the round's rows, and asks for the realignments to be made before its passes. The
     * round's prompt chunks are chosen already. */
    void (*form)(struct sb_sched *sched);
    /* After the verdict and before commitment: may lower n_accept of rows that are not newcomers.
     * NULL: no row is cut. */
    void (*trim)(struct sb_sched *sched);
    /* After commitment: asks for realignments. NULL: asks for none. */
    void (*after_commit)(struct sb_sched *sched);
};

/* The table of policies: the constant of the public header without its prefix, and the name of the
 * struct. */
#define SB_POLICIES(X) \
    X(RAGGED, ragged)  \
    X(PLAIN, plain)    \
    X(EQSPEC, eqspec)  \
    X(EXSPEC, exspec)  \
    X(ROLLBACK, rollback)

#define SB_POLICY_DECLARE(NUMBER, name) extern const struct sb_policy sb_policy_##name;
SB_POLICIES(SB_POLICY_DECLARE)
#undef SB_POLICY_DECLARE

/* Policies are numbered from 0 without a gap. */
int32_t sb_policy_count(void);
const struct sb_policy *sb_policy_at(int32_t policy); /* NULL when out of range */

#endif
