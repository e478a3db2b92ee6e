// Restores broken connections of a mesh, with the connector of its set-up.
#pragma once

#include <stop_token>
#include <string>
#include <vector>

#include "backends/transport/socket/mesh_connector.h"
#include "io/base/time/deadline.h"

namespace backends {

class MeshLink;
class SocketMesh;

// Bytes of a link that are kept to be sent again: more than is held on the way.
std::size_t replay_bytes(bool may_be_relayed);

class MeshRepair final : public MeshConnector::Client {
 public:
  // After the set-up. Both outlive this.
  MeshRepair(SocketMesh& mesh, MeshConnector& connector);
  // In a thread of its own until `stop` or the end of the mesh: restores broken connections for
  // which that succeeds within the patience.
  void run(const std::stop_token& stop);

 private:
  Deadline direct_limit() const override;
  Deadline relay_limit() const override { return Deadline::max(); }  // the patience ends it
  void on_connect(MeshTarget& target) override;
  bool may_take(const MeshHello& hello) override;
  void on_proof(const MeshHello& hello) override;
  std::uint64_t received(int peer, int stream) const override;
  bool use(MeshAttempt& attempt, MeshTarget& target, const LinkKeys& keys) override;
  bool handles(const MeshAttempt& attempt, const std::exception& error) override;
  void on_no_files() override {}  // it pauses: the connection may be anyone's

  void check_links();
  void look_at(MeshLink& link, int& half_closed) const;
  void report_break(MeshTarget& target, bool in_any_case);
  std::string missing_text(const MeshTarget& target) const;
  void wait();
  bool has_broken() const;
  bool is_oversubscribed() const override;
  std::string name_of(int peer) const {
    return "rank " + std::to_string(context_.group_rank(peer));
  }
  MeshLink& link_of(const MeshTarget& target) const;

  SocketMesh& mesh_;
  MeshConnector& connector_;
  const BackendContext& context_;
  // Looks that found the other end closed, with data left to be read; indexed as the links.
  std::vector<int> half_closed_;
  Deadline next_look_{};
};

}  // namespace backends
