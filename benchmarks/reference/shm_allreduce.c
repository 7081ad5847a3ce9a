/* Three stages per chunk: stage the others' slices, sum my slice (my own part straight from my input), collect theirs.
 * A chunk is small enough that all of it stays in cache; IN_FLIGHT of them are under way. Progress is published as
 * counters of chunks since the start, so a slot is free when everybody's counter has passed its former chunk. */
#include "shm_allreduce.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { IN_FLIGHT = 4, MAX_RANKS = 64, LINE = 64, SPINS = 500 };

typedef struct {
  _Alignas(LINE) _Atomic uint64_t staged;
  _Alignas(LINE) _Atomic uint64_t summed;
  _Alignas(LINE) _Atomic uint64_t collected;
  _Alignas(LINE) _Atomic uint64_t barrier;
} Progress;

struct ShmGroup {
  Progress* progress; /* one per rank */
  float* staging;     /* [slot][rank][chunk]: what a rank gives the others; its own slice stays unused */
  float* sums;        /* [slot][chunk]: what the owners of the slices have summed */
  size_t chunk;       /* elements */
  int rank, ranks;
  uint64_t done; /* chunks of all former calls */
};

size_t shm_group_bytes(int ranks, size_t chunk_bytes) {
  return ranks * sizeof(Progress) + IN_FLIGHT * (size_t)(ranks + 1) * chunk_bytes;
}

ShmGroup* shm_group_open(void* memory, int rank, int ranks, size_t chunk_bytes) {
  ShmGroup* group = calloc(1, sizeof *group);
  if (!group) abort();
  group->progress = memory;
  group->chunk = chunk_bytes / sizeof(float);
  group->staging = (float*)(group->progress + ranks);
  group->sums = group->staging + IN_FLIGHT * ranks * group->chunk;
  group->rank = rank;
  group->ranks = ranks;
  return group;
}

typedef struct {
  size_t begin, length; /* elements of the array */
  float *staging, *sums;
} Chunk;

static Chunk chunk_at(const ShmGroup* group, size_t count, uint64_t index) {
  const size_t begin = index * group->chunk, slot = (group->done + index) % IN_FLIGHT;
  return (Chunk){begin, count - begin < group->chunk ? count - begin : group->chunk,
                 group->staging + slot * group->ranks * group->chunk, group->sums + slot * group->chunk};
}

/* Where the slice of `owner` begins in a chunk; whole cache lines, the last slice takes what is left. */
static size_t slice_begin(const ShmGroup* group, size_t length, int owner) {
  const size_t lines = (length + LINE / sizeof(float) - 1) / (LINE / sizeof(float));
  const size_t begin = lines * owner / group->ranks * (LINE / sizeof(float));
  return begin < length ? begin : length;
}

static void stage(ShmGroup* group, Chunk chunk, const float* in) {
  float* mine = chunk.staging + group->rank * group->chunk;
  const size_t own = slice_begin(group, chunk.length, group->rank);
  const size_t after = slice_begin(group, chunk.length, group->rank + 1);
  memcpy(mine, in + chunk.begin, own * sizeof(float));
  memcpy(mine + after, in + chunk.begin + after, (chunk.length - after) * sizeof(float));
}

static void sum(ShmGroup* group, Chunk chunk, const float* in, float* out, float scale) {
  const size_t end = slice_begin(group, chunk.length, group->rank + 1);
  const float* sources[MAX_RANKS];
  for (int rank = 0; rank < group->ranks; ++rank)
    sources[rank] = rank == group->rank ? in + chunk.begin : chunk.staging + rank * group->chunk;
  float *const total = chunk.sums, *const mine = out + chunk.begin;
  enum { BLOCK = 1024 };
  for (size_t at = slice_begin(group, chunk.length, group->rank); at < end; at += BLOCK) {
    const size_t n = end - at < BLOCK ? end - at : BLOCK;
    float block[BLOCK];
    for (size_t i = 0; i < n; ++i) block[i] = sources[0][at + i];
    for (int rank = 1; rank < group->ranks; ++rank) {
      const float* source = sources[rank] + at;
      for (size_t i = 0; i < n; ++i) block[i] += source[i];
    }
    for (size_t i = 0; i < n; ++i) total[at + i] = mine[at + i] = block[i] * scale;
  }
}

static void collect(ShmGroup* group, Chunk chunk, float* out) {
  const size_t own = slice_begin(group, chunk.length, group->rank);
  const size_t after = slice_begin(group, chunk.length, group->rank + 1);
  memcpy(out + chunk.begin, chunk.sums, own * sizeof(float));
  memcpy(out + chunk.begin + after, chunk.sums + after, (chunk.length - after) * sizeof(float));
}

/* Has the counter at `offset` of every rank reached `wanted`? */
static int all_reached(const ShmGroup* group, size_t offset, uint64_t wanted) {
  for (int rank = 0; rank < group->ranks; ++rank) {
    _Atomic uint64_t* counter = (_Atomic uint64_t*)((char*)&group->progress[rank] + offset);
    if (atomic_load_explicit(counter, memory_order_acquire) < wanted) return 0;
  }
  return 1;
}
#define REACHED(field, wanted) all_reached(group, offsetof(Progress, field), wanted)
#define PUBLISH(field, value) atomic_store_explicit(&group->progress[group->rank].field, value, memory_order_release)

static void pause_or_yield(int* spins) {
  if (++*spins < SPINS)
    __builtin_ia32_pause();
  else
    sched_yield();
}

void shm_allreduce(ShmGroup* group, const float* in, float* out, size_t count, float scale) {
  const uint64_t chunks = (count + group->chunk - 1) / group->chunk, base = group->done;
  uint64_t staged = 0, summed = 0, collected = 0;
  int spins = 0;
  while (collected < chunks) { /* what was begun longest ago first: it is still in cache */
    if (collected < summed && REACHED(summed, base + collected + 1)) {
      collect(group, chunk_at(group, count, collected), out);
      PUBLISH(collected, base + ++collected);
    } else if (summed < staged && REACHED(staged, base + summed + 1) &&
               (base + summed < IN_FLIGHT || REACHED(collected, base + summed + 1 - IN_FLIGHT))) {
      sum(group, chunk_at(group, count, summed), in, out, scale);
      PUBLISH(summed, base + ++summed);
    } else if (staged < chunks &&
               (base + staged < IN_FLIGHT || REACHED(summed, base + staged + 1 - IN_FLIGHT))) {
      stage(group, chunk_at(group, count, staged), in);
      PUBLISH(staged, base + ++staged);
    } else {
      pause_or_yield(&spins);
      continue;
    }
    spins = 0;
  }
  group->done = base + chunks;
}

void shm_barrier(ShmGroup* group) {
  const uint64_t round = atomic_load(&group->progress[group->rank].barrier) + 1;
  PUBLISH(barrier, round);
  for (int spins = 0; !REACHED(barrier, round);) pause_or_yield(&spins);
}
