// oneCCL as a peer: the median time of an all-reduce (sum) of n floats in place, on rank 0, with as
// many calls of each size as mpi_allreduce.c makes. MPI, which oneCCL needs to start with,
// passes its address on and parts the ranks at each call.
//
// Build: mpicxx -O3 -std=c++17 oneccl_allreduce.cc -lccl -o oneccl_allreduce      Run: mpirun -n 2
// ./oneccl_allreduce Prints "oneccl all-reduce <n> floats: <microseconds> us" for each size; exit
// status 1 where a sum is wrong.
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <oneapi/ccl.hpp>
#include <vector>

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);  // as oneCCL would do
  int rank = 0, size = 1, wrong = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  {
    ccl::init();
    ccl::shared_ptr_class<ccl::kvs> store;
    ccl::kvs::address_type address;
    if (rank == 0) {
      store = ccl::create_main_kvs();
      address = store->get_address();
    }
    MPI_Bcast(address.data(), static_cast<int>(address.size()), MPI_BYTE, 0, MPI_COMM_WORLD);
    if (rank != 0) store = ccl::create_kvs(address);
    const auto all = ccl::create_communicator(size, rank, store);
    for (const std::size_t n :
         {2u, 1024u, 16384u, 65536u, 262144u, 1048576u, 6553600u, 25000000u}) {
      const int rounds = n > 6'000'000 ? 5 : n > 15'000 ? static_cast<int>(30'000'000 / n) : 2000;
      std::vector<float> x(n);
      std::vector<double> times;
      for (int i = -3; i < rounds; ++i) {
        std::fill(x.begin(), x.end(), static_cast<float>(rank + 1));
        MPI_Barrier(MPI_COMM_WORLD);
        const double start = MPI_Wtime();
        ccl::allreduce(x.data(), x.data(), n, ccl::datatype::float32, ccl::reduction::sum, all)
            .wait();
        if (i >= 0) times.push_back(MPI_Wtime() - start);
        const auto sum = static_cast<float>(size * (size + 1) / 2);
        if (x.front() != sum || x.back() != sum) wrong = 1;
      }
      std::sort(times.begin(), times.end());
      if (rank != 0) continue;
      std::printf("oneccl all-reduce %9zu floats: %10.1f us\n", n, times[times.size() / 2] * 1e6);
      std::fflush(stdout);
    }
  }
  MPI_Finalize();
  return wrong;
}
