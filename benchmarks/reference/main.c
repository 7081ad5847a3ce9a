/* reference RANKS CHUNK_BYTES BYTES...: forks the ranks, checks and times each size, prints one JSON line per size. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "shm_allreduce.h"

enum { REPETITIONS = 25, WARMUP = 3 };

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec + time.tv_nsec * 1e-9;
}

static int by_value(const void* a, const void* b) {
  return (*(const double*)a > *(const double*)b) - (*(const double*)a < *(const double*)b);
}

static void* shared(size_t bytes) {
  void* memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) abort();
  return memory;
}

static size_t wrong_elements(ShmGroup* group, float* data, size_t count, int rank, int ranks) {
  size_t wrong = 0;
  for (size_t i = 0; i < count; ++i) data[i] = (float)(i % 1021 + 7 * rank);
  shm_allreduce(group, data, data, count, 1.0F);
  for (size_t i = 0; i < count; ++i) wrong += data[i] != (float)(i % 1021 * ranks + 7 * ranks * (ranks - 1) / 2);
  return wrong;
}

static void measure(ShmGroup* group, size_t bytes, int rank, int ranks, double* times, size_t* wrong) {
  const size_t count = bytes / sizeof(float);
  float* data = malloc(bytes);
  if (!data) abort();
  wrong[rank] = wrong_elements(group, data, count, rank, ranks);
  for (int repetition = -WARMUP; repetition < REPETITIONS; ++repetition) {
    shm_barrier(group);
    const double start = now();
    shm_allreduce(group, data, data, count, 1.0F / ranks);
    if (repetition >= 0) times[rank * REPETITIONS + repetition] = now() - start;
  }
  shm_barrier(group);
  free(data);
}

static void report(size_t bytes, int ranks, size_t chunk, const double* times, const size_t* wrong) {
  double slowest[REPETITIONS];
  size_t all_wrong = 0;
  for (int repetition = 0; repetition < REPETITIONS; ++repetition) {
    slowest[repetition] = 0;
    for (int rank = 0; rank < ranks; ++rank)
      if (times[rank * REPETITIONS + repetition] > slowest[repetition])
        slowest[repetition] = times[rank * REPETITIONS + repetition];
  }
  for (int rank = 0; rank < ranks; ++rank) all_wrong += wrong[rank];
  qsort(slowest, REPETITIONS, sizeof *slowest, by_value);
  printf("{\"bytes\": %zu, \"ranks\": %d, \"chunk\": %zu, \"wrong\": %zu, \"median\": %.3e, \"p10\": %.3e, \"p90\": %.3e}\n",
         bytes, ranks, chunk, all_wrong, slowest[REPETITIONS / 2], slowest[REPETITIONS / 10],
         slowest[REPETITIONS * 9 / 10]);
  fflush(stdout);
}

int main(int argc, char** argv) {
  if (argc < 4) return fprintf(stderr, "use: %s RANKS CHUNK_BYTES BYTES...\n", argv[0]), 2;
  const int ranks = atoi(argv[1]);
  const size_t chunk = strtoull(argv[2], NULL, 10);
  void* memory = shared(shm_group_bytes(ranks, chunk));
  double* times = shared(sizeof(double) * ranks * REPETITIONS);
  size_t* wrong = shared(sizeof(size_t) * ranks);
  int rank = 0;
  for (int child = 1; child < ranks && rank == 0; ++child)
    if (fork() == 0) rank = child;
  ShmGroup* group = shm_group_open(memory, rank, ranks, chunk);
  for (int arg = 3; arg < argc; ++arg) {
    const size_t bytes = strtoull(argv[arg], NULL, 10);
    measure(group, bytes, rank, ranks, times, wrong);
    if (rank == 0) report(bytes, ranks, chunk, times, wrong);
    shm_barrier(group);
  }
  free(group);
  while (rank == 0 && wait(NULL) > 0) {
  }
  return 0;
}
