/* MPI as a peer: the median time of an all-reduce (sum) of n floats in place, of the slower rank
   from a common barrier in each call, as `engine bench comm` measures itself.

   Build: mpicc -O3 mpi_allreduce.c -o mpi_allreduce      Run: mpirun -n 2 ./mpi_allreduce
   Prints "mpi all-reduce <n> floats: <microseconds> us" for each size; exit status 1 where a sum is
   wrong. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int by_value(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

int main(int argc, char** argv) {
  const int counts[] = {2, 1024, 16384, 65536, 262144, 1048576, 6553600, 25000000};
  int rank, size, wrong = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  for (unsigned k = 0; k < sizeof counts / sizeof *counts; ++k) {
    const int n = counts[k];
    const int rounds = n > 6000000 ? 5 : n > 15000 ? 30000000 / n : 2000;
    float* x = malloc((size_t)n * sizeof *x);
    double* own = malloc((size_t)rounds * sizeof *own);
    double* slowest = malloc((size_t)rounds * sizeof *slowest);
    for (int i = -3; i < rounds; ++i) {
      for (int j = 0; j < n; ++j) x[j] = (float)(rank + 1);
      MPI_Barrier(MPI_COMM_WORLD);
      const double start = MPI_Wtime();
      MPI_Allreduce(MPI_IN_PLACE, x, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      if (i >= 0) own[i] = MPI_Wtime() - start;
      const float sum = (float)(size * (size + 1) / 2);
      if (x[0] != sum || x[n - 1] != sum) wrong = 1;
    }
    MPI_Reduce(own, slowest, rounds, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0) {
      qsort(slowest, (size_t)rounds, sizeof *slowest, by_value);
      printf("mpi all-reduce %9d floats: %10.3f us\n", n, slowest[rounds / 2] * 1e6);
      fflush(stdout);
    }
    free(x);
    free(own);
    free(slowest);
  }
  MPI_Finalize();
  return wrong;
}
