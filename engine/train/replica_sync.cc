// Broadcasts from rank 0, framed by status and size.
#include "engine/train/replica_sync.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "engine/train/weights.h"

namespace engine {
namespace {

// Broadcast in blocks: a frame's size is then no limit of any backend.
constexpr std::size_t kBlock = std::size_t{64} << 20;

void broadcast_blocks(backends::Communicator& communicator, void* data, std::size_t bytes) {
  auto* p = static_cast<std::byte*>(data);
  for (std::size_t at = 0; at < bytes; at += kBlock) communicator.broadcast(p + at, std::min(kBlock, bytes - at), 0);
}

// What must be equal before any tensor is exchanged.
StateDigest describe(const ModelState& state) {
  std::string text(to_string(state.parameters.values.dtype()));
  for (const ModelState::Entry& e : state.entries) text += '\n' + e.name + state.layout(e).file_shape.to_string();
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return {hash.low64, hash.high64};
}

void require_equal(backends::Communicator& communicator, const StateDigest& mine, const std::string& what) {
  std::vector<StateDigest> all(static_cast<std::size_t>(communicator.world_size()));
  communicator.all_gather(&mine, sizeof mine, all.data());
  const auto other = std::find_if(all.begin(), all.end(), [&](const StateDigest& d) { return d != all.front(); });
  if (other != all.end()) throw DesyncError(what + " of rank " + std::to_string(other - all.begin()) + " differs from rank 0's");
}

}  // namespace

void broadcast_state(backends::Communicator& communicator, ModelState& state) {
  if (communicator.world_size() == 1) return;
  require_equal(communicator, describe(state), "the model (names, shapes, dtype)");
  for (FlatBuffer* buffer : {&state.parameters.values, &state.running, &state.counters})
    if (buffer->bytes() > 0) broadcast_blocks(communicator, buffer->data(), buffer->bytes());
  require_equal(communicator, digest(state.parameters.values), "after the broadcast, the digest of the parameters");
}

void broadcast_bytes(backends::Communicator& communicator, std::vector<std::byte>& bytes) {
  std::uint64_t size = bytes.size();
  communicator.broadcast(&size, sizeof size, 0);
  bytes.resize(size);
  broadcast_blocks(communicator, bytes.data(), bytes.size());
}

void run_on_root(backends::Communicator& communicator, const std::function<void()>& work,
                 const std::function<int(const std::exception&)>& exit_code_of) {
  std::array<char, 1024> frame{};  // exit code (0 = well), then the message
  std::exception_ptr failure;
  if (communicator.rank() == 0) {
    try {
      work();
    } catch (const std::exception& error) {
      failure = std::current_exception();
      const int code = exit_code_of(error);
      std::memcpy(frame.data(), &code, sizeof code);
      std::strncpy(frame.data() + sizeof code, error.what(), frame.size() - sizeof code - 1);
    }
  }
  if (communicator.world_size() > 1) communicator.broadcast(frame.data(), frame.size(), 0);
  if (failure) std::rethrow_exception(failure);
  int code = 0;
  std::memcpy(&code, frame.data(), sizeof code);
  if (code != 0) throw RemoteError(code, std::string("rank 0: ") + (frame.data() + sizeof code));
}

}  // namespace engine
