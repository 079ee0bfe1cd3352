/*
 * A digest of a model: 128 bits that tell one checkpoint from another.
 *
 * It guards against mistakes: auditing a result on a model that has not made it, or on one whose
 * files have changed. It does not guard against somebody who makes two checkpoints of one digest on
 * purpose. Who can do that can also change the library that would tell.
 *
 * So it is fast rather than cryptographic, since every byte of every weight goes through it while a
 * model is opened. The four lanes are those of XXH64: each step is a bijection of the lane for
 * given data and of the data for a given lane, so a difference in one word is never lost. Rejected:
 * BLAKE2b, which takes more than ten times as long. For 512 MiB, b2sum takes 0.75 s of processor
 * time, and this digest 0.055 s.
 *
 * The same bytes give the same digest however they are cut into calls, and in every version of the
 * library (test/ground/test_digest.c).
 */
#ifndef SB_DIGEST_H
#define SB_DIGEST_H

#include <stddef.h>
#include <stdint.h>

enum { SB_DIGEST_TEXT = 33 }; /* 32 hexadecimal digits and a NUL */

struct sb_digest {
    uint64_t lane[4];
    uint64_t n; /* bytes so far */
    /* The last n % 32 of them, which do not fill a stripe of one word for each lane yet. */
    unsigned char tail[32];
};

void sb_digest_begin(struct sb_digest *digest);
void sb_digest_add(struct sb_digest *digest, const void *data, size_t n);
void sb_digest_end(const struct sb_digest *digest, char text[SB_DIGEST_TEXT]);

#endif
