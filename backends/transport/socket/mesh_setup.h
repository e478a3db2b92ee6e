// Sets up a SocketMesh: publishes where this rank listens, looks up the other ranks, and waits
// until every connection is established. MeshRepair restores connections that break later.
#pragma once

#include <poll.h>

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "backends/transport/socket/mesh_connector.h"
#include "backends/transport/socket/mesh_link.h"
#include "io/base/time/deadline.h"

namespace backends {

class MeshSetup final : public MeshConnector::Client {
 public:
  // `connector` outlives this.
  MeshSetup(MeshConnector& connector, MeshLink::Resuming resuming);
  // Throws as SocketMesh's constructor does.
  void run();
  // Returns the links, [peer][stream]; null for this rank. REQUIRES: after run().
  std::vector<std::unique_ptr<MeshLink>> take_links() { return std::move(links_); }
  bool is_oversubscribed() const override { return oversubscribed_; }

 private:
  Deadline direct_limit() const override { return deadline_; }
  Deadline relay_limit() const override { return deadline_; }
  void on_connect(MeshTarget&) override {}
  bool may_take(const MeshHello&) override { return true; }
  void on_proof(const MeshHello&) override {}
  std::uint64_t received(int, int) const override { return 0; }
  bool use(MeshAttempt& attempt, MeshTarget& target, const LinkKeys& keys) override;
  bool handles(const MeshAttempt&, const std::exception&) override { return false; }
  void on_no_files() override;

  void publish();
  void look_up_peers();
  void wait();
  void report_links();
  std::set<int> relayed_peers() const;
  std::string timeout_hint() const;
  std::string missing_ranks() const;
  [[noreturn]] void throw_timeout() const;
  bool accepts() const { return context_.rank + 1 < context_.world_size; }

  MeshConnector& connector_;
  const BackendContext& context_;
  const MeshLink::Resuming resuming_;
  const Deadline deadline_;
  bool oversubscribed_;
  int missing_;  // connections
  std::vector<std::unique_ptr<MeshLink>> links_;
};

}  // namespace backends
