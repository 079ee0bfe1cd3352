/* Sorting: every order of a few elements, elements of any size, and few comparisons in any case. */
#include "sbtest.h"
#include "sort.h"

enum { N_MAX = 4096, SIZE_MAX_BYTES = 200 };

static char array[N_MAX * SIZE_MAX_BYTES];
static long n_compared;

/* Elements begin with what they are sorted by, one byte or two. */
static int by_first(const void *a, const void *b)
{
    n_compared++;
    return *(const unsigned char *)a - *(const unsigned char *)b;
}

static int by_two(const void *a, const void *b)
{
    uint16_t x, y;

    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    n_compared++;
    return (x > y) - (x < y);
}

/* Element number `to`: sorted by `key`, and filled with what follows from it. */
static void put(size_t to, size_t size, uint16_t key)
{
    char *element = array + to * size;

    memset(element, key % 251, size);
    memcpy(element, &key, sizeof key);
}

/* Sorts n elements of which key(i) are the numbers below n in some order. */
static void sort_numbers(size_t n, size_t size, uint16_t (*key)(size_t i, size_t n))
{
    static char wanted[SIZE_MAX_BYTES];

    for (size_t i = 0; i < n; i++)
        put(i, size, key(i, n));
    n_compared = 0;
    sb_sort(array, n, size, by_two);
    CHECK(n_compared <= 2 * 12 * (long)n); /* 12 is the logarithm of N_MAX */
    for (size_t i = 0; i < n; i++) {
        memset(wanted, (int)(i % 251), size);
        memcpy(wanted, &(uint16_t){(uint16_t)i}, sizeof(uint16_t));
        CHECK(memcmp(array + i * size, wanted, size) == 0);
    }
}

static uint16_t ascending(size_t i, size_t n)
{
    (void)n;
    return (uint16_t)i;
}

static uint16_t descending(size_t i, size_t n)
{
    return (uint16_t)(n - 1 - i);
}

/* An order without one: 1237 is a prime that divides none of the sizes. */
static uint16_t mixed(size_t i, size_t n)
{
    return (uint16_t)(i * 1237 % n);
}

static void test_orders_and_sizes(void)
{
    static const size_t sizes[] = {2, 3, 8, 63, 64, 65, 144, SIZE_MAX_BYTES},
                        ns[] = {1, 2, 3, 100, N_MAX};

    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (size_t i = 0; i < sizeof ns / sizeof *ns; i++) {
            sort_numbers(ns[i], sizes[s], ascending);
            sort_numbers(ns[i], sizes[s], descending);
            sort_numbers(ns[i], sizes[s], mixed);
        }
}

/* All words of six of the letters a to d, so with every order of equal ones too. */
static void test_every_order_of_few(void)
{
    for (int word = 0; word < 4096; word++) {
        int counts[4] = {0, 0, 0, 0}, at = 0;
        for (int i = 0; i < 6; i++) {
            array[i] = (char)('a' + (word >> 2 * i & 3));
            counts[word >> 2 * i & 3]++;
        }
        sb_sort(array, 6, 1, by_first);
        for (int letter = 0; letter < 4; letter++)
            while (counts[letter]-- > 0)
                CHECK_INT(array[at++], 'a' + letter);
    }
}

static void test_nothing_is_sorted(void)
{
    n_compared = 0;
    sb_sort(NULL, 0, 8, by_first);
    sb_sort(array, 1, 8, by_first);
    CHECK(n_compared == 0);
}

TEST_BEGIN
RUN(test_orders_and_sizes);
RUN(test_every_order_of_few);
RUN(test_nothing_is_sorted);
TEST_END
