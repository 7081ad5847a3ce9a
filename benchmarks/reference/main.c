/* reference RANKS CHUNK_BYTES BYTES...: forks the ranks, checks and times each size, prints one JSON line per size. */
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "shm_allreduce.h"

enum { MAX_REPETITIONS = 2000, WARMUP = 3 };

static int repetitions_for(size_t bytes) { return bytes <= 65536 ? MAX_REPETITIONS : bytes <= 1 << 20 ? 500 : 25; }

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

/* As NumPy does for large arrays: huge pages, if the system gives them. */
static float* private_array(size_t bytes) {
  const size_t page = 2 << 20;
  float* data = aligned_alloc(page, (bytes + page - 1) / page * page);
  if (!data) abort();
  madvise(data, bytes, MADV_HUGEPAGE);
  return data;
}

/* After fork() the ranks may share a core for a while: moves each to its own, then leaves it free again. */
static void spread(int rank) {
  cpu_set_t all, one;
  sched_getaffinity(0, sizeof all, &all);
  int nth = rank % CPU_COUNT(&all), core = 0;
  while (!CPU_ISSET(core, &all) || nth-- > 0) ++core;
  CPU_ZERO(&one);
  CPU_SET(core, &one);
  sched_setaffinity(0, sizeof one, &one);
  sched_setaffinity(0, sizeof all, &all);
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
  const int repetitions = repetitions_for(bytes);
  float* data = private_array(bytes);
  wrong[rank] = wrong_elements(group, data, count, rank, ranks);
  for (int repetition = -WARMUP; repetition < repetitions; ++repetition) {
    shm_barrier(group);
    const double start = now();
    shm_allreduce(group, data, data, count, 1.0F / ranks);
    if (repetition >= 0) times[rank * MAX_REPETITIONS + repetition] = now() - start;
  }
  shm_barrier(group);
  free(data);
}

static void report(size_t bytes, int ranks, size_t chunk, const double* times, const size_t* wrong) {
  static double slowest[MAX_REPETITIONS];
  const int repetitions = repetitions_for(bytes);
  size_t all_wrong = 0;
  for (int repetition = 0; repetition < repetitions; ++repetition) {
    slowest[repetition] = 0;
    for (int rank = 0; rank < ranks; ++rank)
      if (times[rank * MAX_REPETITIONS + repetition] > slowest[repetition])
        slowest[repetition] = times[rank * MAX_REPETITIONS + repetition];
  }
  for (int rank = 0; rank < ranks; ++rank) all_wrong += wrong[rank];
  qsort(slowest, repetitions, sizeof *slowest, by_value);
  printf("{\"bytes\": %zu, \"ranks\": %d, \"chunk\": %zu, \"wrong\": %zu, \"median\": %.3e, \"p10\": %.3e, \"p90\": %.3e}\n",
         bytes, ranks, chunk, all_wrong, slowest[repetitions / 2], slowest[repetitions / 10],
         slowest[repetitions * 9 / 10]);
  fflush(stdout);
}

int main(int argc, char** argv) {
  if (argc < 4) return fprintf(stderr, "use: %s RANKS CHUNK_BYTES BYTES...\n", argv[0]), 2;
  const int ranks = atoi(argv[1]);
  const size_t chunk = strtoull(argv[2], NULL, 10);
  void* memory = shared(shm_group_bytes(ranks, chunk));
  double* times = shared(sizeof(double) * ranks * MAX_REPETITIONS);
  size_t* wrong = shared(sizeof(size_t) * ranks);
  int rank = 0;
  for (int child = 1; child < ranks && rank == 0; ++child)
    if (fork() == 0) rank = child;
  ShmGroup* group = shm_group_open(memory, rank, ranks, chunk);
  spread(rank);
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
