/* Writing and reading session files; session_file.h draws them. Numbers go through bytes, so that
 * neither the order of the machine nor the padding of its structs is in a file. */
#include "pool/session_file.h"

#include <string.h>

#include "alloc.h"
#include "status.h"

enum {
    VERSION = 1,
    MAGIC = 12,
    CHECK = SB_DIGEST_TEXT - 1,
    DIGEST = SB_DIGEST_TEXT - 1,
    MODEL = DIGEST + SB_FINGERPRINT + 4 * 4,
    HEAD = MAGIC + 7 * 4 + 2 * MODEL,
    IDS_AT_ONCE = 256 /* ids that are converted in one go */
};
static const char magic[MAGIC + 1] = "specbatch-kv";

int sb_session_block_bytes(const struct sb_session_head *head, const struct sb_session_model *model,
                           size_t *bytes)
{
    size_t n = (size_t)head->block_columns;

    return sb_mul_size(n, (size_t)model->layers, &n) && sb_mul_size(n, 2, &n) &&
           sb_mul_size(n, (size_t)model->kv_heads, &n) &&
           sb_mul_size(n, (size_t)model->head_dim, &n) &&
           sb_mul_size(n, (size_t)model->element_bytes, bytes);
}

/* ---------------------------------------------------------------------------- numbers */

static unsigned char *put_number(unsigned char *at, int32_t number)
{
    for (int i = 0; i < 4; i++)
        *at++ = (unsigned char)((uint32_t)number >> 8 * i);
    return at;
}

/* What is no int32_t from 0 on becomes -1. */
static const unsigned char *get_number(const unsigned char *at, int32_t *number)
{
    uint32_t bits = 0;

    for (int i = 3; i >= 0; i--)
        bits = bits << 8 | at[i];
    *number = bits > INT32_MAX ? -1 : (int32_t)bits;
    return at + 4;
}

static unsigned char *put_text(unsigned char *at, const char *text, size_t size)
{
    const size_t n = strlen(text);

    memset(at, 0, size);
    memcpy(at, text, n < size ? n : size);
    return at + size;
}

static unsigned char *put_model(unsigned char *at, const struct sb_session_model *model)
{
    at = put_text(at, model->digest, DIGEST);
    at = put_text(at, model->fingerprint, SB_FINGERPRINT);
    at = put_number(at, model->layers);
    at = put_number(at, model->kv_heads);
    at = put_number(at, model->head_dim);
    return put_number(at, model->element_bytes);
}

/* A text may fill its place up to the last byte; the struct has room for a NUL behind the digest,
 * and a fingerprint without one loses its last byte. */
static const unsigned char *get_model(const unsigned char *at, struct sb_session_model *model)
{
    memcpy(model->digest, at, DIGEST);
    model->digest[DIGEST] = '\0';
    at += DIGEST;
    memcpy(model->fingerprint, at, SB_FINGERPRINT);
    model->fingerprint[SB_FINGERPRINT - 1] = '\0';
    at = get_number(at + SB_FINGERPRINT, &model->layers);
    at = get_number(at, &model->kv_heads);
    at = get_number(at, &model->head_dim);
    return get_number(at, &model->element_bytes);
}

/* ---------------------------------------------------------------------------- writing */

static int32_t write_bytes(struct sb_session_out *out, const void *bytes, size_t n)
{
    sb_digest_add(&out->digest, bytes, n);
    return sb_new_file_write(&out->file, bytes, n);
}

static int32_t write_check(struct sb_session_out *out)
{
    char text[SB_DIGEST_TEXT];

    sb_digest_end(&out->digest, text);
    return write_bytes(out, text, CHECK);
}

static int32_t write_head(struct sb_session_out *out, const struct sb_session_head *head)
{
    unsigned char bytes[HEAD], *at = put_text(bytes, magic, MAGIC);
    int32_t rc = SPECBATCH_OK;

    at = put_number(at, VERSION);
    at = put_number(at, head->block_columns);
    at = put_number(at, head->span);
    at = put_number(at, head->n_ids);
    at = put_number(at, head->n_spanned);
    at = put_number(at, head->n_blocks);
    at = put_number(at, head->n_drafted);
    at = put_model(at, &head->target);
    put_model(at, &head->draft);
    SB_TRY(write_bytes(out, bytes, sizeof bytes));
    SB_TRY(write_check(out));
done:
    return rc;
}

static int32_t write_ids(struct sb_session_out *out, const int32_t *ids, int32_t n)
{
    unsigned char bytes[4 * IDS_AT_ONCE];
    int32_t rc = SPECBATCH_OK;

    for (int32_t i = 0; i < n;) {
        unsigned char *at = bytes;
        for (int32_t end = n - i < IDS_AT_ONCE ? n : i + IDS_AT_ONCE; i < end; i++)
            at = put_number(at, ids[i]);
        SB_TRY(write_bytes(out, bytes, (size_t)(at - bytes)));
    }
    SB_TRY(write_check(out));
done:
    return rc;
}

int32_t sb_session_create(struct sb_session_out *out, const char *path,
                          const struct sb_session_head *head, const int32_t *ids)
{
    int32_t rc = SPECBATCH_OK;

    sb_digest_begin(&out->digest);
    SB_TRY(sb_new_file_create(&out->file, path));
    SB_TRY(write_head(out, head));
    SB_TRY(write_ids(out, ids, head->n_ids));
done:
    return rc;
}

int32_t sb_session_write_block(struct sb_session_out *out, const void *columns, size_t bytes)
{
    const int32_t rc = write_bytes(out, columns, bytes);

    return rc == SPECBATCH_OK ? write_check(out) : rc;
}

int32_t sb_session_keep(struct sb_session_out *out)
{
    return sb_new_file_keep(&out->file);
}

void sb_session_drop(struct sb_session_out *out)
{
    sb_new_file_drop(&out->file);
}

/* ---------------------------------------------------------------------------- reading */

int32_t sb_session_read(struct sb_session_in *in, void *into, size_t bytes)
{
    const int32_t rc = sb_file_read(&in->file, in->at, into, bytes);

    if (rc == SPECBATCH_OK) {
        sb_digest_add(&in->digest, into, bytes);
        in->at += bytes;
    }
    return rc;
}

int32_t sb_session_skip(struct sb_session_in *in, size_t bytes)
{
    char piece[4096];
    int32_t rc = SPECBATCH_OK;

    while (bytes > 0 && rc == SPECBATCH_OK) {
        const size_t n = bytes < sizeof piece ? bytes : sizeof piece;
        rc = sb_session_read(in, piece, n);
        bytes -= n;
    }
    return rc;
}

int32_t sb_session_read_check(struct sb_session_in *in)
{
    char expected[SB_DIGEST_TEXT], found[CHECK];
    int32_t rc;

    sb_digest_end(&in->digest, expected);
    if ((rc = sb_session_read(in, found, CHECK)) != SPECBATCH_OK)
        return rc;
    if (memcmp(found, expected, CHECK) != 0)
        return sb_fail(SPECBATCH_E_FORMAT, "%.100s: damaged between byte %llu and byte %llu",
                       in->file.name, (unsigned long long)in->checked, (unsigned long long)in->at);
    in->checked = in->at;
    return SPECBATCH_OK;
}

static void parse_head(struct sb_session_head *head, const unsigned char *at)
{
    at = get_number(at, &head->block_columns);
    at = get_number(at, &head->span);
    at = get_number(at, &head->n_ids);
    at = get_number(at, &head->n_spanned);
    at = get_number(at, &head->n_blocks);
    at = get_number(at, &head->n_drafted);
    at = get_model(at, &head->target);
    get_model(at, &head->draft);
}

static int is_shape(const struct sb_session_model *model)
{
    return model->layers > 0 && model->kv_heads > 0 && model->head_dim > 0 &&
           model->element_bytes > 0;
}

static int numbers_agree(const struct sb_session_head *head)
{
    return head->block_columns > 0 && head->span >= 0 && head->n_ids > 0 && head->n_spanned >= 0 &&
           head->n_spanned <= head->n_ids && head->n_blocks >= 0 &&
           head->n_blocks <= head->n_ids / head->block_columns && head->n_drafted >= 0 &&
           head->n_drafted <= head->n_blocks && is_shape(&head->target) &&
           (head->n_drafted == 0 || is_shape(&head->draft));
}

/* The bytes of the whole file that the head describes. Returns 0 when they do not fit in size_t. */
static int file_bytes(const struct sb_session_head *head, size_t *bytes)
{
    size_t target, draft = 0, all = HEAD + CHECK + CHECK;

    return sb_session_block_bytes(head, &head->target, &target) &&
           (head->n_drafted == 0 || sb_session_block_bytes(head, &head->draft, &draft)) &&
           sb_mul_size(draft, (size_t)head->n_drafted, &draft) &&
           sb_add_size(target, CHECK, &target) &&
           sb_mul_size(target, (size_t)head->n_blocks, &target) && sb_add_size(all, target, &all) &&
           sb_add_size(all, draft, &all) && sb_add_size(all, (size_t)head->n_ids * 4, bytes);
}

static int32_t read_head(struct sb_session_in *in)
{
    const char *name = in->file.name;
    unsigned char bytes[HEAD];
    int32_t version, rc = SPECBATCH_OK;
    size_t size = 0;

    if (in->file.size < MAGIC + 4)
        SB_FAIL(SPECBATCH_E_FORMAT, "%.100s: too short for a session", name);
    SB_TRY(sb_session_read(in, bytes, MAGIC + 4));
    if (memcmp(bytes, magic, MAGIC) != 0)
        SB_FAIL(SPECBATCH_E_FORMAT, "%.100s: not a session", name);
    get_number(bytes + MAGIC, &version);
    if (version != VERSION)
        SB_FAIL(SPECBATCH_E_UNSUPPORTED, "%.100s: version %d of the format, this library reads %d",
                name, (int)version, VERSION);
    if (in->file.size < HEAD + CHECK)
        SB_FAIL(SPECBATCH_E_FORMAT, "%.100s: ends within its head", name);
    SB_TRY(sb_session_read(in, bytes + MAGIC + 4, HEAD - MAGIC - 4));
    SB_TRY(sb_session_read_check(in));
    parse_head(&in->head, bytes + MAGIC + 4);
    if (!numbers_agree(&in->head) || !file_bytes(&in->head, &size))
        SB_FAIL(SPECBATCH_E_FORMAT, "%.100s: the numbers in its head contradict each other", name);
    if (size != in->file.size)
        SB_FAIL(SPECBATCH_E_FORMAT, "%.100s: has %llu bytes, its head says %zu", name,
                (unsigned long long)in->file.size, size);
done:
    return rc;
}

int32_t sb_session_open(struct sb_session_in *in, const char *path)
{
    int32_t rc = sb_file_open(&in->file, path);

    if (rc == SPECBATCH_E_NOT_FOUND)
        return SPECBATCH_E_IO; /* with the message that is there */
    if (rc != SPECBATCH_OK)
        return rc;
    in->at = in->checked = 0;
    sb_digest_begin(&in->digest);
    rc = read_head(in);
    if (rc != SPECBATCH_OK)
        sb_session_close(in);
    return rc;
}

int32_t sb_session_read_ids(struct sb_session_in *in, int32_t *ids)
{
    unsigned char bytes[4 * IDS_AT_ONCE];
    int32_t rc = SPECBATCH_OK;

    for (int32_t i = 0, n = in->head.n_ids; i < n;) {
        const int32_t end = n - i < IDS_AT_ONCE ? n : i + IDS_AT_ONCE;
        const unsigned char *at = bytes;
        SB_TRY(sb_session_read(in, bytes, 4 * (size_t)(end - i)));
        for (; i < end; i++)
            at = get_number(at, &ids[i]);
    }
    SB_TRY(sb_session_read_check(in));
done:
    return rc;
}

void sb_session_close(struct sb_session_in *in)
{
    sb_file_close(&in->file);
}
