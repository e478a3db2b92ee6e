// Sets up the links of one communicator: exchanges keys, addresses and greetings.
//
// After the greetings (zmq_ends.h) the connector tells the store that the link is established. By
// then it may have sent more, which the listener keeps for the first call.
#pragma once

#include "backends/transport/zmq/zmq_ends.h"

namespace backends {

class ZmqLinks::SetUp {
 public:
  // Both outlive this.
  SetUp(ZmqLinks& links, Ends& ends);
  // Collective. REQUIRES: called once.
  void run();

 private:
  void exchange_greetings();
  int first_missing();
  void serve(int peer);
  bool is_established_by_store(int peer) const;

  ZmqLinks& links_;
  Ends& ends_;
  const BackendContext& context_;
};

}  // namespace backends
