/* See sort.h. The heap has its greatest element on top: the children of element i are elements
 * 2 i + 1 and 2 i + 2, and none is greater than its parent. */
#include "sort.h"

#include <string.h>

struct heap {
    char *base;
    size_t n, size;
    int (*compare)(const void *, const void *);
};

static char *element(const struct heap *heap, size_t i)
{
    return heap->base + i * heap->size;
}

static void swap(char *a, char *b, size_t size)
{
    char piece[64];

    for (size_t n; size > 0; a += n, b += n, size -= n) {
        n = size < sizeof piece ? size : sizeof piece;
        memcpy(piece, a, n);
        memcpy(a, b, n);
        memcpy(b, piece, n);
    }
}

/* Lets element i sink to its place. */
static void sift(const struct heap *heap, size_t i)
{
    size_t child;

    while ((child = 2 * i + 1) < heap->n) {
        if (child + 1 < heap->n &&
            heap->compare(element(heap, child), element(heap, child + 1)) < 0)
            child++;
        if (heap->compare(element(heap, i), element(heap, child)) >= 0)
            break;
        swap(element(heap, i), element(heap, child), heap->size);
        i = child;
    }
}

void sb_sort(void *base, size_t n, size_t size, int (*compare)(const void *, const void *))
{
    struct heap heap = {base, n, size, compare};

    for (size_t i = n / 2; i-- > 0;)
        sift(&heap, i);
    while (heap.n > 1) {
        heap.n--;
        swap(element(&heap, 0), element(&heap, heap.n), size);
        sift(&heap, 0);
    }
}
