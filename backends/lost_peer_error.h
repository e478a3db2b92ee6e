// The error of ranks whose group another rank has ended.
#pragma once

#include "backends/backend_error.h"

namespace backends {

// Another rank has failed before, as the text says: a consequence of its failure, and no cause.
class LostPeerError : public PeerError {
 public:
  using PeerError::PeerError;
};

}  // namespace backends
