/*
 * Tiles: up to sixteen rows of W on their way into the columns of a panel (panel.h). Rows are read
 * along, and panels written across, so each tile is turned in words of four bytes.
 *
 *     row 0    word 0   word 1  ..            words [0]    row 0   row 1  ..   row 15
 *     row 1    word 0   word 1  ..     ->     words [1]    row 0   row 1  ..   row 15
 *      ..                                      ..
 *
 * A word is one element of f32, two of 16 bits or four bytes. What a line of a panel takes of one
 * or two words is then the same few operations for sixteen columns, which compilers make vectors
 * of, and a line of words that is stored is a cache line. (To write element by element down a
 * column, as it was before, made a store of each element.)
 */
#ifndef SB_CPU_PACK_TILE_H
#define SB_CPU_PACK_TILE_H

#include "panel.h"
#include "vec_turn.h"

enum {
    TILE = 16,       /* rows, and words of a row that are turned at a time */
    TILE_BYTES = 64, /* of these words */
    TILE_HALVES = 32 /* elements of 16 bits in them */
};

struct tile {
    char *panel;      /* where the panel begins */
    int64_t column;   /* the first of its columns */
    int n;            /* columns: 1 .. TILE */
    const char *rows; /* one for each */
    size_t stride;    /* bytes from a row to the next */
};

typedef uint32_t tile_words[TILE][TILE];

/* words[i][r] = word i of row r, `n` words. The columns that a narrow tile has too few are copies
 * of the last one. */
V_INLINE void turn(tile_words words, const char *rows, size_t stride, int n_rows, const int n)
{
    for (int r = 0; r < TILE; r++) {
        const char *row = rows + (size_t)(r < n_rows ? r : n_rows - 1) * stride;
        for (int i = 0; i < n; i++)
            memcpy(&words[i][r], row + 4 * i, 4);
    }
}

/* Stores a line of a tile's columns, of `size` bytes each. line: where the panel's line begins. */
V_INLINE void put_line(char *line, const struct tile *t, const void *columns, const size_t size)
{
    if (t->n == TILE)
        memcpy(line + (size_t)t->column * size, columns, TILE * size);
    else
        memcpy(line + (size_t)t->column * size, columns, (size_t)t->n * size);
}

#endif
