/* Counts the MPI calls of each rank of a job, as a preloaded library (PMPI). Appends a line to the file MPI_COUNT:
 * LABEL RANKS, then messages and bytes sent (maximum of a rank, sum of all), ranks that a rank sends to (maximum),
 * groups made, mean processor time in ms, and mean and maximum resident memory in KiB. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

enum { messages, bytes, peers, groups, processor_ms, resident_kib, count };
static long counts[count];
static char is_peer[1 << 16];

int MPI_Isend(const void* data, int size, MPI_Datatype type, int peer, int tag, MPI_Comm comm, MPI_Request* request) {
  MPI_Group group, world;
  int world_rank = 0;
  PMPI_Comm_group(comm, &group);
  PMPI_Comm_group(MPI_COMM_WORLD, &world);
  PMPI_Group_translate_ranks(group, 1, &peer, world, &world_rank);
  PMPI_Group_free(&group);
  PMPI_Group_free(&world);
  is_peer[world_rank & 0xffff] = 1;
  __atomic_add_fetch(&counts[messages], 1, __ATOMIC_RELAXED);
  __atomic_add_fetch(&counts[bytes], size, __ATOMIC_RELAXED);
  return PMPI_Isend(data, size, type, peer, tag, comm, request);
}

int MPI_Comm_split(MPI_Comm comm, int colour, int key, MPI_Comm* group) {
  ++counts[groups];
  return PMPI_Comm_split(comm, colour, key, group);
}

int MPI_Finalize(void) {
  struct rusage usage;
  long most[count], sum[count];
  int ranks = 0, rank = 0;
  FILE* file;
  getrusage(RUSAGE_SELF, &usage);
  counts[processor_ms] = (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000 +
                         (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1000;
  counts[resident_kib] = usage.ru_maxrss;
  for (int i = 0; i < 1 << 16; ++i) counts[peers] += is_peer[i];
  PMPI_Comm_size(MPI_COMM_WORLD, &ranks);
  PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
  PMPI_Reduce(counts, most, count, MPI_LONG, MPI_MAX, 0, MPI_COMM_WORLD);
  PMPI_Reduce(counts, sum, count, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0 && (file = fopen(getenv("MPI_COUNT"), "a")) != NULL) {
    fprintf(file, "%s %d %ld %ld %ld %ld %ld %ld %ld %ld %ld\n", getenv("MPI_COUNT_LABEL"), ranks, most[messages],
            sum[messages], most[bytes], sum[bytes], most[peers], most[groups], sum[processor_ms] / ranks,
            sum[resident_kib] / ranks, most[resident_kib]);
    fclose(file);
  }
  return PMPI_Finalize();
}
