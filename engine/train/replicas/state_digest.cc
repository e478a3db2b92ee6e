// Computes XXH3 over flat memory.
#include "engine/train/replicas/state_digest.h"

namespace engine {

StateDigest digest(const void* data, std::size_t bytes) {
  return base::digest_of({static_cast<const std::byte*>(data), bytes});
}

StateDigest digest(const FlatBuffer& buffer) { return digest(buffer.data(), buffer.bytes()); }

}  // namespace engine
