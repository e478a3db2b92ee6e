// Groups for tests: ranks as threads that join through a real store on loopback, or as threads of
// an inproc group.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backends/group.h"

namespace group_harness {

inline constexpr const char* kSecret =
    "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

// A listening loopback socket and its port. The caller hands the descriptor to rank 0.
struct Listener {
  int fd = -1, port = 0;
};
Listener open_listener();

backends::GroupOptions options_for(int rank, int world_size, int port);

// The name of a backend whose ranks are started from outside, one process each, such as by mpirun:
// with ENGINE_TEST_BACKEND (mpi, or the path of a plug-in), ENGINE_TEST_RANK,
// ENGINE_TEST_WORLD_SIZE and ENGINE_TEST_FOLDER (empty, of this run). It is then the only backend,
// and run_ranks() and outcomes() run this process's rank only.
inline constexpr const char* kExternal = "external";
std::optional<int> only_rank();

// Ways to form a group that the conformance suite knows. A further backend is a further name here.
std::vector<std::string> backend_names();
// A made-up host for a rank. Hosts have two ranks each for even world sizes, else uneven numbers:
// 2 and 1; 3, 3 and 1.
int host_of(int rank, int world_size);
// Sets backend, local stage and, for "shm+gloo" and the like, this rank's made-up
// host.
void choose_backend(backends::GroupOptions& options, const std::string& backend);
bool backend_fits(const std::string& backend, int world_size);

// The group of one rank. `listener` is rank 0's, for all backends but inproc and kExternal.
std::unique_ptr<backends::Group> join(const std::string& backend, int rank, int world_size,
                                      const Listener& listener);

// Runs `body` on every rank, each in its own thread with its own group, and leaves in order.
// Rethrows the first error.
void run_ranks(const std::string& backend, int world_size,
               const std::function<void(backends::Group&)>& body);

// The same with a process for each rank, of a backend that joins processes; returns what each
// body returned, in rank order. Rethrows the first rank's error. REQUIRES: no other
// thread runs in this process.
std::vector<std::string> run_processes(const std::string& backend, int world_size,
                                       const std::function<std::string(backends::Group&)>& body);

// Runs body(rank) in `world_size` threads; returns what each threw ("" when nothing), prefixed with
// the kind: "peer: ", "mismatch: ", "authentication: ", "configuration: ", "other: ".
std::vector<std::string> outcomes(int world_size, const std::function<void(int rank)>& body);

}  // namespace group_harness
