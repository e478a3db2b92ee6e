// Joins the store that all ranks of a job share.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backends/group.h"
#include "backends/identity/rendezvous_file.h"
#include "backends/store/store_client.h"
#include "backends/store/store_server.h"
#include "io/base/time/clock.h"

namespace backends {

struct JoinedStore {
  // Destroyed in reverse order: the client, the server (rank 0), the rendezvous file (rank 0).
  std::unique_ptr<RendezvousFile> file;
  std::unique_ptr<StoreServer> server;
  std::shared_ptr<TcpStore> store;
  // This group's secret, derived from the job's: proofs of other groups are invalid here.
  Secret secret;
  Secret job_secret;
  // This rank's address for the others: loopback if all ranks are on one host.
  std::string address;
  std::string rendezvous_address;  // address of the store, as seen from this rank
};

// Blocks until all ranks have joined. Notices and exceptions are those of join_group(). The clock
// measures the rendezvous timeout and the time between notices.
JoinedStore join_store(const GroupOptions& options, const base::Clock& clock = base::kSteadyClock);

// Returns an addition to notices of ranks that wait for connections with each other; "" if all are
// on one host.
std::string relay_advice(const std::vector<PeerInfo>& peers);

}  // namespace backends
