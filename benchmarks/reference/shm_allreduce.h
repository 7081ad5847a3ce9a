/* The mark our engine is held against: the plainest fast allreduce over shared memory. Benchmarks only. */
#pragma once
#include <stddef.h>

typedef struct ShmGroup ShmGroup;

/* Bytes of zeroed memory, shared by all ranks, that a group needs. */
size_t shm_group_bytes(int ranks, size_t chunk_bytes);

/* One per rank, over the same memory; `mine` is freed with free(). No call may run while another rank still opens. */
ShmGroup* shm_group_open(void* memory, int rank, int ranks, size_t chunk_bytes);

/* out = scale * sum over the ranks of in; `out` may be `in`. All ranks call it with the same count and scale. */
void shm_allreduce(ShmGroup* group, const float* in, float* out, size_t count, float scale);

/* Returns when all ranks have called it. */
void shm_barrier(ShmGroup* group);
