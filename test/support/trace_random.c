/* Random numbers that are the same on every machine: splitmix64, of which any 64 bits are a seed.
 * It is a file of its own for the tests that want nothing else of traces. */
#include "support/trace.h"

uint64_t trace_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}
