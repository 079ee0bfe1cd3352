/*
 * Deliberate faults, for tests only. Each is a mistake that a published batch speculative decoder
 * makes or could make. The library is built a second time with SB_FAULTS defined, and
 * test/contract/test_mutations.c shows with it that the contract test catches every fault. In the
 * library itself SB_FAULT(name) is the constant 0.
 *
 * Faults are bits, because a published decoder may have several of them at once
 * (test/bench/paper_faults.c). DSD is one such decoder.
 */
#ifndef SB_FAULT_H
#define SB_FAULT_H

#ifdef SB_FAULTS
enum sb_fault {
    SB_FAULT_NONE = 0,
    /* The correction after a rejection is the draft's token, not the target's (DSD). */
    SB_FAULT_BONUS_FROM_DRAFT = 1 << 0,
    /* Padding that realignment has added is counted as content (DSD). */
    SB_FAULT_REPAD_WITHOUT_UNPAD = 1 << 1,
    /* The last committed token is believed to have a cache entry already. */
    SB_FAULT_LAST_KV_PRESENT = 1 << 2,
    /* The token that ends a sequence is noticed one token too late. */
    SB_FAULT_STOP_LATE = 1 << 3,
    /* The entry of a rejected proposal stays in the draft's cache. */
    SB_FAULT_DRAFT_NOT_ROLLED_BACK = 1 << 4,
    /* A token gets the log-probability of the token after it. */
    SB_FAULT_LOGPROB_SHIFTED = 1 << 5,
    /* A token is lost at the boundary of two prompt chunks. */
    SB_FAULT_PREFILL_SKIPS_ONE = 1 << 6,
    /* A kept prefix is taken for one token longer than it is. */
    SB_FAULT_HIT_ONE_LONG = 1 << 7,
    /* A kept prefix may end inside a span. */
    SB_FAULT_SPAN_CUT = 1 << 8,
    /* A request that is computed anew counts its answer so far as its prompt. */
    SB_FAULT_RECOMPUTED_AS_PROMPT = 1 << 9,
    /* A block of kept columns is still found by its old tokens when others have got it. */
    SB_FAULT_STALE_BLOCK = 1 << 10,
    /* A session that was saved in another numerics class is loaded. */
    SB_FAULT_SESSION_OF_ANY_CLASS = 1 << 11,
    /* Where many rows are multiplied together (on a GPU in the f32 class), a group of quantised
     * weights gets the scale of its neighbour in the next row, */
    SB_FAULT_SCALE_OF_NEIGHBOUR = 1 << 12,
    /* or loses its minimum, */
    SB_FAULT_MINIMUM_DROPPED = 1 << 13,
    /* or has one half of a byte taken for the other. */
    SB_FAULT_NIBBLES_EXCHANGED = 1 << 14,
    /* In the class INT8 a row's integers are multiplied by the scale of the row before it. */
    SB_FAULT_SCALE_OF_ANOTHER_ROW = 1 << 15,
    /* A stop string is noticed one token too late. */
    SB_FAULT_STOP_STRING_LATE = 1 << 16,
    /* The text of an answer goes on to the end of the token in which a stop string begins. */
    SB_FAULT_STOP_TEXT_KEPT = 1 << 17,
    /* All answers to a prompt are sampled with the seed of the first. */
    SB_FAULT_SEED_SHARED = 1 << 18,
    /* The mask of a position behind a proposal is asked without that proposal. */
    SB_FAULT_MASK_OF_WRONG_PREFIX = 1 << 19,
    /* What a mask alone allows becomes a token without the target's choice. */
    SB_FAULT_FORCED_NOT_VERIFIED = 1 << 20,
    /* A token gets the alternatives to the token after it. */
    SB_FAULT_TOPS_SHIFTED = 1 << 21,
    /* The noise of a position depends on the round in which it is sampled. */
    SB_FAULT_NOISE_BY_ROUND = 1 << 22,
    /* Penalties count the proposals of a row, also those behind the position. */
    SB_FAULT_PENALTY_OF_REJECTED = 1 << 23,
    /* Of the largest logits of a row with a sampler the highest id is chosen. */
    SB_FAULT_TIES_TO_HIGHEST = 1 << 24,
    /* Of several answers those are chosen whose tokens have the largest log-probability together,
     * and not on average. */
    SB_FAULT_BEST_BY_SUM = 1 << 25,
    /* A request that still waits for a slot does not end at its deadline. */
    SB_FAULT_DEADLINE_SPARES_QUEUED = 1 << 26,
    /* A request of lower priority waits for as long as others come, however long it has waited. */
    SB_FAULT_PRIORITY_ALONE = 1 << 27,
    /* In the order of blocks a query attends to keys of its tile that lie behind it. */
    SB_FAULT_TILE_SEEN_WHOLE = 1 << 28,
    /* In the order of blocks all queries of a tile have the window of the first. */
    SB_FAULT_WINDOW_OF_FIRST = 1 << 29,
    /* All rows of a pass go to the experts of the first. */
    SB_FAULT_EXPERTS_OF_FIRST = 1 << 30,
};
extern unsigned sb_fault_now; /* the set of faults in force */
#define SB_FAULT(name) ((sb_fault_now & SB_FAULT_##name) != 0)
#else
#define SB_FAULT(name) 0
#endif

#endif
