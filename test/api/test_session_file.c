/*
 * The bytes of a session file: a small one that was put together by hand, with digests that a
 * program in Python has computed; and files that are damaged, cut off, or contradict themselves.
 */
#include "pool/session_file.h"
#include "sbtest.h"
#include "support/model_files.h"

enum { N_IDS = 5, TARGET_BLOCK = 24, DRAFT_BLOCK = 4, HEAD = 776, IDS = 808, BYTES = 976 };

static struct test_dir dir;
static char path[128];
static unsigned char known[BYTES];

/* Block columns 2; the target has heads of 3 elements of 2 bytes, the draft of 1 of 1. */
static const struct sb_session_head head = {
    .block_columns = 2,
    .n_ids = N_IDS,
    .n_blocks = 2,
    .n_drafted = 1,
    .target = {"0123456789abcdef0123456789abcdef", "the target", 1, 1, 3, 2},
    .draft = {"fedcba9876543210fedcba9876543210", "the draft", 1, 1, 1, 1}};
static const int32_t ids[N_IDS] = {1, 256, 65536, 16777216, 0x01020304};

static void put(size_t *at, const void *bytes, size_t n)
{
    memcpy(known + *at, bytes, n);
    *at += n;
}

/* Numbers are below 256 here. */
static void put_small(size_t *at, const char *numbers, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        known[*at] = (unsigned char)numbers[i];
        *at += 4;
    }
}

static void put_known_file(void)
{
    unsigned char columns[TARGET_BLOCK];
    size_t at = 0;

    put(&at, "specbatch-kv", 12);
    put_small(&at, "\1\2\0\5\0\2\1", 7);
    put(&at, "0123456789abcdef0123456789abcdef", 32);
    memcpy(known + at, "the target", 10);
    at += 320;
    put_small(&at, "\1\1\3\2", 4);
    put(&at, "fedcba9876543210fedcba9876543210", 32);
    memcpy(known + at, "the draft", 9);
    at += 320;
    put_small(&at, "\1\1\1\1", 4);
    put(&at, "1698c54a83171d155140962054c3dfc3", 32);
    put(&at, "\1\0\0\0\0\1\0\0\0\0\1\0\0\0\0\1\4\3\2\1", 20);
    put(&at, "e13470362a9925b4b3a4413a035112f6", 32);
    for (int i = 0; i < TARGET_BLOCK; i++)
        columns[i] = (unsigned char)i;
    put(&at, columns, TARGET_BLOCK);
    put(&at, "\xa0\xa1\xa2\xa3", DRAFT_BLOCK);
    put(&at, "d98b4504c8b6e98c6c11a630c9cd7abd", 32);
    for (int i = 0; i < TARGET_BLOCK; i++)
        columns[i] = (unsigned char)(100 + i);
    put(&at, columns, TARGET_BLOCK);
    put(&at, "b5b971aa47dba4430c1c05ae4c402904", 32);
}

static void test_the_bytes_are_these(void)
{
    const unsigned char *first = known + 860, *second = known + 920;
    struct sb_checked_out out;
    size_t n = 0;
    char *bytes;

    CHECK_OK(sb_session_create(&out, path, &head, ids));
    CHECK_OK(sb_session_write_block(&out, first, TARGET_BLOCK + DRAFT_BLOCK));
    CHECK_OK(sb_session_write_block(&out, second, TARGET_BLOCK));
    CHECK_OK(sb_new_file_keep(&out.file));
    sb_new_file_drop(&out.file);
    bytes = test_read(dir.path, "known", &n);
    CHECK(bytes && n == BYTES);
    CHECK_MEM(bytes, known, BYTES);
    free(bytes);
}

static int same_model(const struct sb_session_model *a, const struct sb_session_model *b)
{
    return strcmp(a->digest, b->digest) == 0 && strcmp(a->fingerprint, b->fingerprint) == 0 &&
           a->layers == b->layers && a->kv_heads == b->kv_heads && a->head_dim == b->head_dim &&
           a->element_bytes == b->element_bytes;
}

/* Reads everything, up to the first failure. */
static int32_t read_all(const char *name, struct sb_session_head *found, int32_t found_ids[N_IDS],
                        unsigned char blocks[2][TARGET_BLOCK + DRAFT_BLOCK])
{
    struct sb_session_in in;
    int32_t rc = sb_session_open(&in, name);

    if (rc != SPECBATCH_OK)
        return rc;
    *found = in.head;
    if (in.head.n_ids != N_IDS || in.head.n_blocks != 2 || in.head.n_drafted != 1)
        rc = SPECBATCH_E_INVALID;
    if (rc == SPECBATCH_OK)
        rc = sb_session_read_ids(&in, found_ids);
    for (int i = 0; i < 2 && rc == SPECBATCH_OK; i++) {
        rc = sb_checked_read(&in.from, blocks[i], TARGET_BLOCK + (i == 0 ? DRAFT_BLOCK : 0));
        if (rc == SPECBATCH_OK)
            rc = sb_checked_read_check(&in.from);
    }
    sb_session_close(&in);
    return rc;
}

static int32_t read_bytes(const unsigned char *bytes, size_t n)
{
    unsigned char blocks[2][TARGET_BLOCK + DRAFT_BLOCK];
    struct sb_session_head found;
    int32_t found_ids[N_IDS];

    test_write(&dir, "known", bytes, n);
    return read_all(path, &found, found_ids, blocks);
}

static void test_they_are_read_back(void)
{
    unsigned char blocks[2][TARGET_BLOCK + DRAFT_BLOCK];
    struct sb_session_head found;
    int32_t found_ids[N_IDS];

    test_write(&dir, "known", known, BYTES);
    CHECK_OK(read_all(path, &found, found_ids, blocks));
    CHECK(found.block_columns == 2 && found.span == 0 && found.n_spanned == 0);
    CHECK(same_model(&found.target, &head.target) && same_model(&found.draft, &head.draft));
    CHECK_MEM(found_ids, ids, sizeof ids);
    CHECK_MEM(blocks[0], known + 860, TARGET_BLOCK + DRAFT_BLOCK);
    CHECK_MEM(blocks[1], known + 920, TARGET_BLOCK);
}

static void test_every_bit_counts(void)
{
    unsigned char bytes[BYTES];

    for (size_t bit = 0; bit < 8 * (size_t)BYTES; bit++) {
        const int is_version = bit / 8 >= 12 && bit / 8 < 16;
        memcpy(bytes, known, BYTES);
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
        CHECK_ERROR(read_bytes(bytes, BYTES),
                    is_version ? SPECBATCH_E_UNSUPPORTED : SPECBATCH_E_FORMAT, "known: ");
    }
}

static void test_every_length_counts(void)
{
    unsigned char bytes[BYTES + 1] = {0};

    memcpy(bytes, known, BYTES);
    for (size_t n = 0; n < BYTES; n++)
        CHECK_ERROR(read_bytes(bytes, n), SPECBATCH_E_FORMAT, "known: ");
    CHECK_ERROR(read_bytes(bytes, BYTES + 1), SPECBATCH_E_FORMAT, "its head says 976");
    CHECK_OK(read_bytes(bytes, BYTES));
}

static void test_other_files_are_refused_by_name(void)
{
    struct sb_session_in in;

    CHECK_ERROR(sb_session_open(&in, "build/none/x.session"), SPECBATCH_E_IO,
                "x.session: cannot open: No such");
    CHECK_ERROR(sb_session_open(&in, "build"), SPECBATCH_E_IO, "not a regular file");
    CHECK_ERROR(read_bytes((const unsigned char *)"{\"name\": \"not a session\"}", 25),
                SPECBATCH_E_FORMAT, "known: not a session");
}

/* Puts numbers into the head, and a check that vouches for them. The file is cut off behind it. */
static int32_t read_numbers(const uint32_t numbers[6], const uint32_t target[4])
{
    unsigned char bytes[IDS];
    struct sb_digest digest;
    char check[SB_DIGEST_TEXT];

    memcpy(bytes, known, IDS);
    for (int i = 0; i < 6 * 4; i++)
        bytes[16 + i] = (unsigned char)(numbers[i / 4] >> i % 4 * 8);
    for (int i = 0; i < 4 * 4; i++)
        bytes[40 + 352 + i] = (unsigned char)(target[i / 4] >> i % 4 * 8);
    sb_digest_begin(&digest);
    sb_digest_add(&digest, bytes, HEAD);
    sb_digest_end(&digest, check);
    memcpy(bytes + HEAD, check, 32);
    return read_bytes(bytes, IDS);
}

static void test_numbers_that_contradict_each_other(void)
{
    static const uint32_t good[6] = {2, 0, 5, 0, 2, 1}, shape[4] = {1, 1, 3, 2};
    static const struct {
        int at;
        uint32_t number;
    } bad[] = {{0, 0}, {0, UINT32_MAX}, {1, UINT32_MAX}, {2, 0},          {2, 3}, {2, UINT32_MAX},
               {3, 6}, {3, UINT32_MAX}, {4, 3},          {4, UINT32_MAX}, {5, 3}, {5, UINT32_MAX}};
    static const uint32_t huge[4] = {INT32_MAX, INT32_MAX, INT32_MAX, INT32_MAX};
    uint32_t numbers[6], none[4];

    CHECK_ERROR(read_numbers(good, shape), SPECBATCH_E_FORMAT, "has 808 bytes, its head says 976");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        memcpy(numbers, good, sizeof good);
        numbers[bad[i].at] = bad[i].number;
        CHECK_ERROR(read_numbers(numbers, shape), SPECBATCH_E_FORMAT, "contradict");
    }
    for (int i = 0; i < 4; i++) {
        memcpy(none, shape, sizeof none);
        none[i] = 0;
        CHECK_ERROR(read_numbers(good, none), SPECBATCH_E_FORMAT, "contradict");
    }
    /* A product that does not fit in 64 bits, and one that does. */
    CHECK_ERROR(read_numbers(good, huge), SPECBATCH_E_FORMAT, "contradict");
    memcpy(none, huge, sizeof none);
    none[1] = none[2] = none[3] = 1;
    CHECK_ERROR(read_numbers(good, none), SPECBATCH_E_FORMAT, "its head says");
}

TEST_BEGIN
dir = test_dir_make();
snprintf(path, sizeof path, "%s/known", dir.path);
put_known_file();
RUN(test_the_bytes_are_these);
RUN(test_they_are_read_back);
RUN(test_every_bit_counts);
RUN(test_every_length_counts);
RUN(test_other_files_are_refused_by_name);
RUN(test_numbers_that_contradict_each_other);
test_dir_remove(&dir);
TEST_END
