/* Files of checked parts; checked.h draws them. Numbers go through bytes, so that neither the order
 * of the machine nor the padding of its structs is in a file. */
#include "checked.h"

#include <string.h>

#include "status.h"

enum { AT_ONCE = 256 }; /* numbers that are converted in one go */

unsigned char *sb_put_number(unsigned char *at, int32_t number)
{
    for (int i = 0; i < 4; i++)
        *at++ = (unsigned char)((uint32_t)number >> 8 * i);
    return at;
}

const unsigned char *sb_get_number(const unsigned char *at, int32_t *number)
{
    uint32_t bits = 0;

    for (int i = 3; i >= 0; i--)
        bits = bits << 8 | at[i];
    *number = bits > INT32_MAX ? -1 : (int32_t)bits;
    return at + 4;
}

/* ---------------------------------------------------------------------------- writing */

int32_t sb_checked_create(struct sb_checked_out *out, const char *path)
{
    sb_digest_begin(&out->digest);
    return sb_new_file_create(&out->file, path);
}

int32_t sb_checked_write(struct sb_checked_out *out, const void *bytes, size_t n)
{
    sb_digest_add(&out->digest, bytes, n);
    return sb_new_file_write(&out->file, bytes, n);
}

int32_t sb_checked_write_numbers(struct sb_checked_out *out, const int32_t *numbers, size_t n)
{
    unsigned char bytes[4 * AT_ONCE];
    int32_t rc = SPECBATCH_OK;

    for (size_t i = 0; i < n && rc == SPECBATCH_OK;) {
        unsigned char *at = bytes;
        for (size_t end = n - i < AT_ONCE ? n : i + AT_ONCE; i < end; i++)
            at = sb_put_number(at, numbers[i]);
        rc = sb_checked_write(out, bytes, (size_t)(at - bytes));
    }
    return rc;
}

int32_t sb_checked_end_part(struct sb_checked_out *out)
{
    char text[SB_DIGEST_TEXT];

    sb_digest_end(&out->digest, text);
    return sb_checked_write(out, text, SB_CHECK);
}

/* ---------------------------------------------------------------------------- reading */

int32_t sb_checked_open(struct sb_checked_in *in, const char *path)
{
    const int32_t rc = sb_file_open(&in->file, path);

    in->at = in->checked = 0;
    sb_digest_begin(&in->digest);
    return rc == SPECBATCH_E_NOT_FOUND ? SPECBATCH_E_IO : rc; /* with the message that is there */
}

int32_t sb_checked_read(struct sb_checked_in *in, void *into, size_t n)
{
    const int32_t rc = sb_file_read(&in->file, in->at, into, n);

    if (rc == SPECBATCH_OK) {
        sb_digest_add(&in->digest, into, n);
        in->at += n;
    }
    return rc;
}

int32_t sb_checked_read_numbers(struct sb_checked_in *in, int32_t *numbers, size_t n)
{
    unsigned char bytes[4 * AT_ONCE];
    int32_t rc = SPECBATCH_OK;

    for (size_t i = 0; i < n;) {
        const size_t end = n - i < AT_ONCE ? n : i + AT_ONCE;
        const unsigned char *at = bytes;
        SB_TRY(sb_checked_read(in, bytes, 4 * (end - i)));
        for (; i < end; i++)
            at = sb_get_number(at, &numbers[i]);
    }
done:
    return rc;
}

int32_t sb_checked_read_check(struct sb_checked_in *in)
{
    char expected[SB_DIGEST_TEXT], found[SB_CHECK];
    int32_t rc;

    sb_digest_end(&in->digest, expected);
    if ((rc = sb_checked_read(in, found, SB_CHECK)) != SPECBATCH_OK)
        return rc;
    if (memcmp(found, expected, SB_CHECK) != 0)
        return sb_fail(SPECBATCH_E_FORMAT, "%.100s: damaged between byte %llu and byte %llu",
                       in->file.name, (unsigned long long)in->checked, (unsigned long long)in->at);
    in->checked = in->at;
    return SPECBATCH_OK;
}
