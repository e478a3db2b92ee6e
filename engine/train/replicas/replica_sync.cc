// Broadcasts from rank 0, framed by status and size.
#include "engine/train/replicas/replica_sync.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "engine/train/replicas/state_digest.h"

namespace engine {
namespace {

// Describes the properties that must be equal before any tensor is exchanged: a line for the dtype,
// then one for each tensor.
std::vector<std::string> describe(const ModelState& state) {
  std::vector<std::string> lines{"dtype " +
                                 std::string(to_string(state.parameters.values.dtype()))};
  for (const ModelState::Entry& e : state.entries)
    lines.push_back(e.name + " " + state.layout(e).file_shape.to_string());
  return lines;
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

// Returns the first line in which this rank's model differs from rank 0's.
std::string first_difference(const std::vector<std::string>& own, const std::string& of_root) {
  std::size_t at = 0;
  for (std::size_t i = 0;; ++i) {
    const std::size_t end = of_root.find('\n', at);
    const std::string theirs =
        end == std::string::npos ? "no further tensor" : of_root.substr(at, end - at);
    const std::string mine = i < own.size() ? own[i] : "no further tensor";
    if (mine != theirs || end == std::string::npos)
      return "it has " + mine + " where rank 0 has " + theirs;
    at = end + 1;
  }
}

// Tells all ranks which rank differs first, and in which tensor.
void require_equal_models(backends::Communicator& communicator, const ModelState& state) {
  const std::vector<std::string> own = describe(state);
  const std::string text = joined(own);
  const StateDigest mine = digest(text.data(), text.size());
  std::vector<StateDigest> all(static_cast<std::size_t>(communicator.world_size()));
  communicator.all_gather(&mine, sizeof mine, all.data());
  const auto other =
      std::find_if(all.begin(), all.end(), [&](const StateDigest& d) { return d != all.front(); });
  if (other == all.end()) return;
  const int rank = static_cast<int>(other - all.begin());
  std::string of_root = text;
  broadcast_text(communicator, of_root);
  std::array<char, 512> frame{};
  if (communicator.rank() == rank) {
    std::strncpy(frame.data(), first_difference(own, of_root).c_str(), frame.size() - 1);
  }
  communicator.broadcast(frame.data(), frame.size(), rank);
  throw DesyncError("the model of rank " + std::to_string(rank) +
                    " differs from rank 0's: " + frame.data());
}

void require_equal(backends::Communicator& communicator, const StateDigest& mine,
                   const std::string& what) {
  std::vector<StateDigest> all(static_cast<std::size_t>(communicator.world_size()));
  communicator.all_gather(&mine, sizeof mine, all.data());
  const auto other =
      std::find_if(all.begin(), all.end(), [&](const StateDigest& d) { return d != all.front(); });
  if (other != all.end())
    throw DesyncError(what + " of rank " + std::to_string(other - all.begin()) +
                      " differs from rank 0's");
}

}  // namespace

void broadcast_blocks(backends::Communicator& communicator, void* data, std::size_t bytes,
                      int root) {
  constexpr std::size_t kBlock = std::size_t{64} << 20;
  auto* p = static_cast<std::byte*>(data);
  for (std::size_t at = 0; at < bytes; at += kBlock)
    communicator.broadcast(p + at, std::min(kBlock, bytes - at), root);
}

bool equalize(backends::Communicator& communicator, std::span<FlatBuffer* const> buffers) {
  const std::size_t count = buffers.size();
  std::vector<StateDigest> mine;
  for (const FlatBuffer* buffer : buffers) mine.push_back(digest(*buffer));
  std::vector<StateDigest> all(count * static_cast<std::size_t>(communicator.world_size()));
  communicator.all_gather(mine.data(), count * sizeof(StateDigest), all.data());
  bool sent = false;
  for (std::size_t b = 0; b < count; ++b) {
    std::size_t at = b;
    while (at < all.size() && all[at] == all[b]) at += count;
    if (at >= all.size()) continue;
    broadcast_blocks(communicator, buffers[b]->data(), buffers[b]->bytes(), 0);
    sent = true;
  }
  return sent;
}

void broadcast_state(backends::Communicator& communicator, ModelState& state) {
  if (communicator.world_size() == 1) return;
  require_equal_models(communicator, state);
  if (equalize(communicator, std::array{&state.parameters.values, &state.running, &state.counters}))
    require_equal(communicator, digest(state.parameters.values),
                  "after the broadcast, the digest of the parameters");
}

void broadcast_text(backends::Communicator& communicator, std::string& text) {
  std::uint64_t size = text.size();
  communicator.broadcast(&size, sizeof size, 0);
  text.resize(size);
  broadcast_blocks(communicator, text.data(), text.size(), 0);
}

namespace {

using FailureFrame = std::array<char, 1024>;  // exit code (0 = success), then the message

void write_failure(FailureFrame& frame, const std::exception& error, int code) {
  std::memcpy(frame.data(), &code, sizeof code);
  std::strncpy(frame.data() + sizeof code, error.what(), frame.size() - sizeof code - 1);
}

int exit_code_in(const FailureFrame& frame) {
  int code = 0;
  std::memcpy(&code, frame.data(), sizeof code);
  return code;
}

[[noreturn]] void throw_remote(const FailureFrame& frame, int rank) {
  throw RemoteError(exit_code_in(frame),
                    "rank " + std::to_string(rank) + ": " + (frame.data() + sizeof(int)));
}

}  // namespace

void run_on_root(backends::Communicator& communicator, const std::function<void()>& work,
                 const std::function<int(const std::exception&)>& exit_code_of) {
  FailureFrame frame{};
  std::exception_ptr failure;
  if (communicator.rank() == 0) {
    try {
      work();
    } catch (const std::exception& error) {
      failure = std::current_exception();
      write_failure(frame, error, exit_code_of(error));
    }
  }
  if (communicator.world_size() > 1) communicator.broadcast(frame.data(), frame.size(), 0);
  if (failure) std::rethrow_exception(failure);
  if (exit_code_in(frame) != 0) throw_remote(frame, 0);
}

void throw_on_all_ranks(backends::Communicator& communicator, const std::exception_ptr& failure,
                        const std::function<int(const std::exception&)>& exit_code_of) {
  FailureFrame frame{};
  int code = 0;
  if (failure) {
    try {
      std::rethrow_exception(failure);
    } catch (const std::exception& error) {
      code = exit_code_of(error);
      write_failure(frame, error, code);
    }
  }
  std::vector<int> codes(static_cast<std::size_t>(communicator.world_size()), code);
  if (communicator.world_size() > 1) communicator.all_gather(&code, sizeof code, codes.data());
  const auto failed = std::ranges::find_if(codes, [](int c) { return c != 0; });
  if (failed == codes.end()) return;
  const int rank = static_cast<int>(failed - codes.begin());
  if (communicator.world_size() > 1) {
    communicator.broadcast(frame.data(), frame.size(), rank);
    communicator.barrier();  // a rank that ends earlier would be a lost one for the others
  }
  if (failure) std::rethrow_exception(failure);
  throw_remote(frame, rank);
}

}  // namespace engine
